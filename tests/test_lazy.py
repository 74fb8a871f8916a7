"""Modules are found in few steps, and as Python itself would find them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path

import pytest

from arenite import lazy

TOLD = """
import json, sys
import made, made.inner, made.inner.leaf
print(json.dumps([made.TEXT, made.inner.TEXT, made.inner.leaf.TEXT, made.inner.leaf.where()]))
"""
LEAF = "TEXT = '{}'\ndef where():\n    return [__file__, __cached__, __package__, __name__]\n"


@pytest.fixture(autouse=True)
def usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that finds its own modules so."""
    root = tmp_path / "made"
    (root / "inner").mkdir(parents=True)
    code = Path(lazy.__file__).read_text()
    (root / "lazy.py").write_text(code)
    (root / "__init__.py").write_text(
        "from made import lazy\nTEXT = 'made'\nlazy.find_quickly(__spec__)\n"
    )
    (root / "inner" / "__init__.py").write_text("TEXT = 'inner'\n")
    (root / "inner" / "leaf.py").write_text(LEAF.format("leaf"))
    return root


def usual_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}


def told(package: Path, *flags: str, **environment: str) -> list[object]:
    done = subprocess.run(
        [sys.executable, *flags, "-c", TOLD],
        env=usual_environment() | {"PYTHONPATH": str(package.parent)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[object] = json.loads(done.stdout)
    return found


def expected(package: Path, text: str = "leaf") -> list[object]:
    source = package / "inner" / "leaf.py"
    cached = importlib.util.cache_from_source(str(source))
    return ["made", "inner", text, [str(source), cached, "made.inner", "made.inner.leaf"]]


def test_modules_are_the_same_compiled_now_or_before(package: Path) -> None:
    assert told(package) == expected(package)
    assert Path(str(expected(package)[3][1])).exists()  # type: ignore[index]
    assert told(package) == expected(package)


def test_a_source_that_has_changed_is_compiled_again(package: Path) -> None:
    told(package)
    leaf = package / "inner" / "leaf.py"
    leaf.write_text(LEAF.format("longer"))
    assert told(package) == expected(package, "longer")
    state = leaf.stat()
    leaf.write_text(LEAF.format("langer"))  # as many bytes, another time
    os.utime(leaf, (state.st_atime, state.st_mtime + 5))
    assert told(package) == expected(package, "langer")


@pytest.mark.parametrize("damage", ["cut", "empty", "no code", "no magic", "a folder"])
def test_a_damaged_compiled_file_does_no_harm(package: Path, damage: str) -> None:
    told(package)
    compiled = Path(importlib.util.cache_from_source(str(package / "inner" / "leaf.py")))
    content = compiled.read_bytes()
    if damage == "a folder":
        compiled.unlink()
        compiled.mkdir()
    else:
        compiled.write_bytes(
            {
                "cut": content[:-7],
                "empty": b"",
                "no code": content[:16] + b"N",  # None, as marshal writes it
                "no magic": b"\0" * 4 + content[4:],
            }[damage]
        )
    assert told(package) == expected(package)


def test_other_places_of_compiled_files_are_left_to_python(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    found = told(package, PYTHONPYCACHEPREFIX=str(folder))
    assert found[:3] == ["made", "inner", "leaf"]
    assert str(found[3][1]).startswith(str(folder))  # type: ignore[index]
    assert not (package / "__pycache__").exists()
    assert str(told(package, "-O")[3][1]).endswith(".opt-1.pyc")  # type: ignore[index]


@pytest.fixture
def finder(package: Path) -> Iterator[FileFinder]:
    told(package)
    hooks, known = list(sys.path_hooks), dict(sys.path_importer_cache)
    root = str(package)
    spec = ModuleSpec("made", None, is_package=True)
    spec.submodule_search_locations = [root]
    spec.cached = importlib.util.cache_from_source(f"{root}/__init__.py")
    lazy.find_quickly(spec)
    found = sys.path_importer_cache[root]
    assert isinstance(found, FileFinder)
    yield found
    sys.path_hooks[:] = hooks
    sys.path_importer_cache.clear()
    sys.path_importer_cache.update(known)


@pytest.mark.parametrize("name", ["made.inner", "made.lazy"])
def test_a_spec_is_that_of_python(package: Path, finder: FileFinder, name: str) -> None:
    found = finder.find_spec(name)
    usual = FileFinder(str(package), (SourceFileLoader, [".py"])).find_spec(name)
    assert found is not None
    assert usual is not None
    assert type(found.loader) is not type(usual.loader)
    for part in ("name", "origin", "cached", "parent", "has_location"):
        assert getattr(found, part) == getattr(usual, part)
    assert found.submodule_search_locations == usual.submodule_search_locations
    loader, other = found.loader, usual.loader
    assert isinstance(loader, SourceFileLoader)
    assert isinstance(other, SourceFileLoader)
    assert loader.get_code(name) == other.get_code(name)
    assert loader.get_source(name) == other.get_source(name)
    assert loader.is_package(name) == other.is_package(name)


def test_what_is_not_there_is_not_found(finder: FileFinder) -> None:
    assert finder.find_spec("made.nothing") is None


def test_our_own_modules_are_found_so() -> None:
    code = "import arenite.ir.dim; print(type(arenite.ir.dim.__spec__.loader).__module__)"
    folder = Path(lazy.__file__).parent.parent
    usual = usual_environment() | {"PYTHONPATH": str(folder)}

    def start() -> str:
        given = [sys.executable, "-c", code]
        return subprocess.run(given, capture_output=True, text=True, check=True, env=usual).stdout

    start()  # compiles what is not compiled yet
    assert start().strip() == "arenite.lazy"
