"""Kept kernels: compiled once, whatever program they are for; damage is compiled anew."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from arenite.backends.cpu.compiling import kernel_cache
from arenite.backends.cpu.compiling.kernel_cache import linked_kernels
from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES, compile_object
from arenite.backends.cpu.compiling.pool import OnCompiled, compile_modules
from arenite.backends.cpu.target import AVX2, X86_64, Target
from arenite.errors import CompileFailed
from arenite.program import cache
from arenite.program.model_file import model_bytes, write_atomically


def module(name: str, number: int = 1) -> str:
    return (
        f"define hidden void @{name}(ptr %p) {FUNCTION_ATTRIBUTES} {{\n"
        f" store i64 {number}, ptr %p\n ret void\n}}\n"
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every module that is compiled, as it is."""
    texts: list[str] = []

    def counting(
        modules: Iterable[str], target: Target, on_progress: OnCompiled | None = None
    ) -> list[bytes]:
        modules = [*modules]
        texts.extend(modules)
        return compile_modules(modules, target, on_progress=on_progress)

    monkeypatch.setattr(kernel_cache, "compile_modules", counting)
    return texts


def test_a_kernel_is_compiled_once_whatever_is_beside_it(compiled: list[str]) -> None:
    a, b, c = (module(name, k) for k, name in enumerate("abc"))
    linked_kernels([a, b], X86_64)
    found = linked_kernels([c, b, a], X86_64)
    assert compiled == [a, b, c]
    assert found == link_objects([compile_object(one, X86_64) for one in (c, b, a)])
    assert linked_kernels([c, b, a], X86_64) == found
    assert compiled == [a, b, c]


def test_every_part_of_what_makes_an_object_counts(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    linked_kernels([module("a")], X86_64)
    linked_kernels([module("a", 2)], X86_64)
    linked_kernels([module("a")], AVX2)
    linked_kernels([module("a")], replace(X86_64, features="+sse4.2"))
    assert len(compiled) == 4
    monkeypatch.setattr(kernel_cache, "compiler_identity", lambda: "another compiler")
    linked_kernels([module("a")], X86_64)
    assert len(compiled) == 5
    monkeypatch.setattr(kernel_cache, "_sources", lambda: b"other sources")
    linked_kernels([module("a")], X86_64)
    assert len(compiled) == 6
    linked_kernels([module("a")], X86_64)
    assert len(compiled) == 6


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped", "writable", "no section", "no object", "another kernel"]
)
def test_damage_is_compiled_anew(compiled: list[str], folder: Path, damage: str) -> None:
    modules = [module("a"), module("b", 2)]
    wanted = linked_kernels(modules, X86_64)
    linked_kernels([module("c")], X86_64)
    entries = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    first = entries[0]
    data = bytearray(first.read_bytes())
    if damage == "truncated":
        first.write_bytes(data[:-1])
    elif damage == "flipped":
        data[-1] ^= 1
        first.write_bytes(data)
    elif damage == "writable":
        first.chmod(0o666)
    elif damage == "no section":
        write_atomically(first, model_bytes({"x": b"1"}))
    elif damage == "no object":
        write_atomically(first, model_bytes({"object": b"\x7fELF" + bytes(100)}))
    else:
        first.write_bytes(entries[2].read_bytes())
    n_compiled = len(compiled)
    assert linked_kernels(modules, X86_64) == wanted
    assert len(compiled) > n_compiled
    n_compiled = len(compiled)
    assert linked_kernels(modules, X86_64) == wanted
    assert len(compiled) == n_compiled, "what was damaged is whole again"


def test_what_cannot_be_compiled_is_told_and_not_kept(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(CompileFailed, match="kernels broken"):
            linked_kernels([module("broken").replace("store", "nonsense")], X86_64)
    assert not [*folder.glob("*.arenite")]


def test_those_that_are_kept_count_as_done() -> None:
    modules = [module(name) for name in "abcde"]
    linked_kernels(modules[:3], X86_64)
    heard: list[tuple[int, int]] = []
    linked_kernels(modules, X86_64, lambda done, total: heard.append((done, total)))
    assert [done for done, _ in heard] == [1, 2, 3, 4, 5]
    assert heard[-1] == (5, 5)
    heard.clear()
    linked_kernels(modules, X86_64, lambda done, total: heard.append((done, total)))
    assert heard == [(k, k) for k in range(1, 6)]


def test_the_folder_has_a_cap(
    compiled: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked_kernels([module("a")], X86_64)
    [entry] = folder.iterdir()
    nbytes = entry.stat().st_size
    monkeypatch.setattr(cache, "KERNELS_CAP_NBYTES", 3 * nbytes + nbytes // 2)
    os.utime(entry, (1, 1))
    linked_kernels([module("b")], X86_64)
    linked_kernels([module("c"), module("d")], X86_64)
    assert len([*folder.iterdir()]) == 3
    assert not entry.exists(), "the least recently used goes first"
    store = cache.kernels()
    assert store is not None
    assert store.info().nbytes <= store.cap_nbytes


def test_without_a_folder_nothing_is_kept(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "file"))
    assert linked_kernels([module("a")], X86_64) == linked_kernels([module("a")], X86_64)
    assert len(compiled) == 2
    assert cache.kernels() is None
