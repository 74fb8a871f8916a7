"""The package is imported quickly: names load on first use, and modules are found in few steps.

Python asks the system eight times for each module it imports, and a start imports a hundred of
them: a sixth of it. Here a module's compiled file is opened at once, where Python has left it, and
used if it is that of the source as it is now. Whatever is otherwise is left to Python's own way.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER
from types import CodeType, ModuleType
from typing import Any

#: Bytes that are read at once; larger blocks would be mapped and given back each time.
_BLOCK_NBYTES = 60_000
#: How a compiled file begins that has the time and the size of its source behind it.
_HEAD = MAGIC_NUMBER + bytes(4)
_HEAD_NBYTES = len(_HEAD) + 8
#: How its name ends.
_TAIL = f".{sys.implementation.cache_tag}.pyc"


def names_of(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package; `places` are the modules in it, each
    with its names. No name may be that of a module: an import of that would take its place."""
    modules = {name: module for module, names in places.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lister(package), sorted(modules)


def lister(package: str) -> Callable[[], list[str]]:
    """The `__dir__` of a package: what it says is public, and what every module has."""

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted([*module.__all__, *(name for name in vars(module) if name.startswith("__"))])

    return names


def folder_of(package: str) -> str | None:
    """Where a package of others lies, without importing it; None where there is none."""
    found = (finder.find_spec(package, None) for finder in sys.meta_path)
    spec = next((spec for spec in found if spec is not None), None)
    folders = spec.submodule_search_locations if spec is not None else None
    return folders[0] if folders else None


def public_names(names: Mapping[str, object]) -> list[str]:
    """The `__all__` of a package: the classes and functions of its own that it imports."""
    return sorted(
        name
        for name, value in names.items()
        if (getattr(value, "__module__", None) or "").startswith(f"{names['__name__']}.")
    )


# Modules.


class _Loader(SourceFileLoader):
    """Python's, for a module whose compiled file has been read."""

    compiled: bytes

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            code = marshal.loads(memoryview(self.compiled)[_HEAD_NBYTES:])
        except (EOFError, TypeError, ValueError):
            code = None
        if isinstance(code, CodeType):
            return code
        return self.source_to_code(self.get_data(self.path), self.path)  # damaged


class _Finder(FileFinder):
    """Python's, which looks for the compiled file first."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder, (SourceFileLoader, SOURCE_SUFFIXES))

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        path = f"{self.path}/{fullname.rpartition('.')[2]}"
        return (
            _spec(fullname, f"{path}.py", None)
            or _spec(fullname, f"{path}/__init__.py", path)
            or super().find_spec(fullname, target)
        )


def _spec(fullname: str, source: str, package: str | None) -> ModuleSpec | None:
    """That of a module whose compiled file is the one of its source; None: it is not so."""
    folder, _, name = source.rpartition("/")
    cached = f"{folder}/__pycache__/{name[:-3]}{_TAIL}"
    try:
        state = os.stat(source)
        compiled = _content(cached)
    except OSError:
        return None
    numbers = int(state.st_mtime), state.st_size
    if compiled[:_HEAD_NBYTES] != _HEAD + b"".join(
        (one & 0xFFFFFFFF).to_bytes(4, "little") for one in numbers
    ):
        return None
    loader = _Loader(fullname, source)
    loader.compiled = compiled
    spec = ModuleSpec(fullname, loader, origin=source, is_package=package is not None)
    spec.has_location = True
    spec.cached = cached
    if package is not None:
        spec.submodule_search_locations = [package]
    return spec


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, _BLOCK_NBYTES)
        while more := os.read(descriptor, _BLOCK_NBYTES):
            content += more
        return content
    finally:
        os.close(descriptor)


def find_quickly(package: ModuleSpec | None) -> None:
    """Find the modules of a package so, and those of the packages in it. Nothing is done where
    Python keeps what it compiles in another place than usual."""
    folders = package.submodule_search_locations if package is not None else None
    if package is None or not folders:
        return
    root = folders[0]
    if package.cached != f"{root}/__pycache__/__init__{_TAIL}":
        return

    def hook(folder: str) -> _Finder:
        if not folder.startswith(f"{root}/"):
            raise ImportError(f"{folder} is not below {root}")
        return _Finder(folder)

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache[root] = _Finder(root)
