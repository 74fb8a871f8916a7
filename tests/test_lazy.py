"""Modules are found in few steps, and as Python itself would find them."""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arenite import lazy

if TYPE_CHECKING:
    from _typeshed.importlib import MetaPathFinderProtocol

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
    (root / "others_own.py").write_text("")
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
def finder(package: Path) -> Iterator[MetaPathFinderProtocol]:
    told(package)
    finders, root = list(sys.meta_path), str(package)
    spec = ModuleSpec("made", None, is_package=True)
    spec.submodule_search_locations = [root]
    spec.cached = importlib.util.cache_from_source(f"{root}/__init__.py")
    lazy.find_quickly(spec)
    [found] = [one for one in sys.meta_path if one not in finders]
    yield found
    sys.meta_path[:] = finders


@pytest.mark.parametrize("name", ["made.inner", "made.lazy"])
def test_a_spec_is_that_of_python(package: Path, finder: MetaPathFinderProtocol, name: str) -> None:
    found = finder.find_spec(name, [str(package)])
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


def test_what_is_not_there_is_not_found(package: Path, finder: MetaPathFinderProtocol) -> None:
    assert finder.find_spec("made.nothing", [str(package)]) is None
    assert finder.find_spec("others.inner", [str(package)]) is None, "of another package"
    assert finder.find_spec("made", None) is None, "the package itself"


STARTED = """
import json, sys
import made
from made import lazy
lazy.begin_start()
import made.inner
lazy.pause_start()
import made.others_own
lazy.begin_start()
import made.inner.leaf
known = sorted(lazy._finders[0]._used)
leaf = sys.modules.pop("made.inner.leaf") if "removes" in sys.argv else None
lazy.end_start(is_usual=len(sys.argv) < 2 or leaf is not None)
from made.inner.leaf import where
spec = made.inner.leaf.__spec__
told = [spec.cached, spec.loader.get_source(spec.name)]
print(json.dumps([known, made.inner.leaf.TEXT, where(), *told]))
"""


def started(package: Path, *arguments: str, **environment: str) -> list[object]:
    """Modules that came together, and what one of them is."""
    done = subprocess.run(
        [sys.executable, "-c", STARTED, *arguments],
        env=usual_environment() | {"PYTHONPATH": str(package.parent)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


def start_files(package: Path) -> list[Path]:
    return sorted((package / "__pycache__").glob("start.*"))


def test_modules_of_a_start_come_together_the_next_time(package: Path) -> None:
    started(package)  # Python compiles what is not compiled yet
    assert started(package, "unusual")[0] == []
    assert not start_files(package)
    alone = started(package)
    assert alone[0] == []
    [file] = start_files(package)
    before = file.stat().st_mtime_ns
    together = started(package)
    assert together[0] == ["made.inner", "made.inner.leaf"]
    assert together[1:] == alone[1:]
    assert file.stat().st_mtime_ns == before, "written once"
    assert started(package, PYTHONDONTWRITEBYTECODE="1")[1:] == alone[1:]


def test_a_module_that_was_removed_meanwhile_does_no_harm(package: Path) -> None:
    alone = started(package)
    assert started(package, "removes") == alone
    assert not start_files(package)


def test_what_is_together_is_as_its_source_is_now(package: Path) -> None:
    started(package)
    started(package)
    leaf = package / "inner" / "leaf.py"
    leaf.write_text(LEAF.format("longer"))
    assert started(package)[:2] == [["made.inner"], "longer"]
    assert started(package)[:2] == [["made.inner"], "longer"], "compiled now"
    assert started(package)[:2] == [["made.inner", "made.inner.leaf"], "longer"]


@pytest.mark.parametrize("damage", [b"", b"nonsense", "cut", "no magic", "other", "a folder"])
def test_a_damaged_start_file_does_no_harm(package: Path, damage: bytes | str) -> None:
    started(package)
    started(package)
    [file] = start_files(package)
    content = file.read_bytes()
    file.unlink()
    if damage == "a folder":
        file.mkdir()
    elif isinstance(damage, bytes):
        file.write_bytes(damage)
    else:
        head = content[:4]
        other = head + marshal.dumps(["no dict"])
        file.write_bytes(
            {"cut": content[:-9], "no magic": b"\0" * 4 + content[4:], "other": other}[damage]
        )
    assert started(package)[:2] == [[], "leaf"]
    whole = ["made.inner", "made.inner.leaf"]
    assert started(package)[0] == ([] if damage == "a folder" else whole)


def test_a_process_that_did_other_things_leaves_no_start_file(package: Path) -> None:
    others = [f"other{k}" for k in range(lazy.FEW + 1)]
    for name in others:
        (package / f"{name}.py").write_text("")
    imports = "import made\n" + "".join(f"import made.{name}\n" for name in others)
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", imports + STARTED],
            env=usual_environment() | {"PYTHONPATH": str(package.parent)},
            capture_output=True,
            check=True,
        )
    assert not start_files(package)


def test_our_own_modules_are_found_so() -> None:
    code = "import arenite.ir.dim; print(type(arenite.ir.dim.__spec__.loader).__module__)"
    folder = Path(lazy.__file__).parent.parent
    usual = usual_environment() | {"PYTHONPATH": str(folder)}

    def start() -> str:
        given = [sys.executable, "-c", code]
        return subprocess.run(given, capture_output=True, text=True, check=True, env=usual).stdout

    start()  # compiles what is not compiled yet
    assert start().strip() == "arenite.lazy"
