"""What errors and reprs say of a hostile name is shown, and never obeyed by a terminal."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import arenite
from arenite import device, errors, memory
from arenite.errors import AreniteError

#: Sets a title, rings, turns red, turns text around, goes back.
EVIL = "m\x1b]0;x\x07\x9b31m\u202etxt\x08\r"


def acting(text: str) -> list[str]:
    return [c for c in text if not c.isprintable() and c != "\n"]


def all_errors(root: type[AreniteError] = AreniteError) -> list[type[AreniteError]]:
    """All that are made of a message alone."""
    below = [one for child in root.__subclasses__() for one in all_errors(child)]
    return [root, *below] if "__init__" not in vars(root) else below


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_no_error_acts_on_a_terminal(kind: type[AreniteError]) -> None:
    error = kind(f"two\nlines about {EVIL}, \u0644\u200c\u0627")
    assert acting(str(error)) in ([], ["\u200c"])
    assert "m\\x1b]0;x\\x07\\x9b31m\\u202etxt\\x08\\r" in str(error).replace("\\\\", "\\")
    assert error.args[0].count(EVIL) == 1


def test_an_error_is_pickled_as_it_was_raised() -> None:
    error = errors.InvalidFile(EVIL)
    assert pickle.loads(pickle.dumps(error)).args == (EVIL,)


@pytest.mark.parametrize(
    "open_it",
    [
        lambda path: arenite.load(path),
        lambda path: device.get(f"disk:{path}"),
        lambda path: memory.plan([memory.Value(path, 64, memory.Lifetime(0, 2))], capacity=3),
    ],
)
def test_a_name_in_a_message_is_spelled_out(
    open_it: Callable[[str], object], tmp_path: Path
) -> None:
    (tmp_path / f"a{EVIL}.gguf").write_bytes(b"GGUF")
    with pytest.raises(AreniteError) as caught:
        open_it(str(tmp_path / EVIL))
    assert acting(str(caught.value)) == []


def test_reprs_spell_names_out(tmp_path: Path) -> None:
    path = tmp_path / EVIL
    path.write_bytes(bytes(64))
    disk = device.get(f"disk:{path}")
    assert isinstance(disk, device.DiskAllocator)
    assert acting(repr(disk) + repr(disk.file)) == []
