"""The package is imported quickly: names load on first use, and modules are found in few steps.

Python asks four finders for each module it imports, and the last of them asks the system eight
times; a start imports a hundred modules: a quarter of it. Here a module's compiled file is opened
at once, where Python has left it, and used if it is that of the source as it is now. Whatever is
otherwise is left to Python's own way.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER
from types import CodeType, ModuleType
from typing import Any, TypeAlias

#: Bytes that are read at once; larger blocks would be mapped and given back each time.
_BLOCK_NBYTES = 60_000
#: How a compiled file begins that has the time and the size of its source behind it.
_HEAD = MAGIC_NUMBER + bytes(4)
_HEAD_NBYTES = len(_HEAD) + 8
#: Modules that may have been imported before a start begins.
FEW = 8
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


#: A module that was compiled: how its compiled file begins, which tells the state of its source;
#: whether it is a package; its code.
_Known: TypeAlias = tuple[bytes, bool, CodeType]


class _Loader(SourceFileLoader):
    """Python's, for a module whose compiled file has been read; that is kept until it is used."""

    compiled: bytes | CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        compiled, self.compiled = self.compiled, None
        if compiled is None:
            return super().get_code(fullname)
        if isinstance(compiled, CodeType):
            return compiled
        try:
            code = marshal.loads(memoryview(compiled)[_HEAD_NBYTES:])
        except (EOFError, TypeError, ValueError):
            code = None
        if isinstance(code, CodeType):
            return code
        return self.source_to_code(self.get_data(self.path), self.path)  # damaged


class _Finder:
    """Of the modules of a package, and of the packages in it."""

    def __init__(self, package: str, root: str) -> None:
        self._prefix = f"{package}."
        self._start_file = f"{root}/__pycache__/start.{sys.implementation.cache_tag}"
        self._n_found = 0
        self._stage = "before"  # a start: then inside, paused, over
        self._together: dict[str, _Known] = {}  # of the file of a start, until it is asked for
        self._used: list[str] = []  # of these
        self._new: list[str] = []  # that a start has asked for and are not there

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith(self._prefix):
            return None
        found = f"{path[0]}/{fullname.rpartition('.')[2]}"
        known = self._together.pop(fullname, None)
        if known is not None:
            head, is_package, code = known
            source = f"{found}/__init__.py" if is_package else f"{found}.py"
            if _head_of(source) == head:
                self._used.append(fullname)
                return _spec(fullname, source, found if is_package else None, code)
        for source, package in ((f"{found}.py", None), (f"{found}/__init__.py", found)):
            compiled = _compiled(source)
            if compiled is not None:
                self._n_found += 1
                if self._stage == "inside":
                    self._new.append(fullname)
                return _spec(fullname, source, package, compiled)
        return None

    # The modules of a start in one file.

    def begin_start(self) -> None:
        if self._stage == "paused":
            self._stage = "inside"
        if self._stage != "before" or self._n_found > FEW:
            return
        self._stage = "inside"
        import mmap

        try:
            # Mapped: so large a block of the heap would stay with the process.
            with (
                open(self._start_file, "rb", buffering=0) as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as content,
            ):
                if content[: len(MAGIC_NUMBER)] == MAGIC_NUMBER:
                    with content[len(MAGIC_NUMBER) :] as code:
                        self._together |= marshal.loads(code)
        except (EOFError, OSError, TypeError, ValueError):
            return  # there is none, or it is damaged

    def pause_start(self) -> None:
        if self._stage == "inside":
            self._stage = "paused"

    def end_start(self, is_usual: bool) -> None:
        together, self._together = self._together, {}
        self._stage = "over"
        if not self._new or not is_usual or sys.dont_write_bytecode:
            return
        written = f"{self._start_file}.{os.getpid()}"
        with suppress(OSError, EOFError, LookupError, TypeError, ValueError):
            for name in (*self._used, *self._new):
                together[name] = _known(sys.modules[name])
            with open(written, "wb") as file:
                file.write(MAGIC_NUMBER + marshal.dumps(together))
            os.replace(written, self._start_file)


def _known(module: ModuleType) -> _Known:
    """A module of ours, as its compiled file has it."""
    spec = module.__spec__
    assert spec is not None
    assert spec.cached is not None
    content = _content(spec.cached)
    code = marshal.loads(memoryview(content)[_HEAD_NBYTES:])
    return content[:_HEAD_NBYTES], spec.submodule_search_locations is not None, code


def _head_of(source: str) -> bytes | None:
    """How the compiled file of a source begins; None: there is no source."""
    try:
        state = os.stat(source)
    except OSError:
        return None
    numbers = int(state.st_mtime), state.st_size
    return _HEAD + b"".join((one & 0xFFFFFFFF).to_bytes(4, "little") for one in numbers)


def _cached(source: str) -> str:
    folder, _, name = source.rpartition("/")
    return f"{folder}/__pycache__/{name[:-3]}{_TAIL}"


def _compiled(source: str) -> bytes | None:
    """The compiled file of a source as it is now; None: there is none."""
    head = _head_of(source)
    try:
        content = b"" if head is None else _content(_cached(source))
    except OSError:
        return None
    return content if content and content[:_HEAD_NBYTES] == head else None


def _spec(
    fullname: str, source: str, package: str | None, compiled: bytes | CodeType
) -> ModuleSpec:
    loader = _Loader(fullname, source)
    loader.compiled = compiled
    spec = ModuleSpec(fullname, loader, origin=source, is_package=package is not None)
    spec.has_location = True
    spec.cached = _cached(source)
    if package is not None:
        spec.submodule_search_locations = [package]
    return spec


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = more = os.read(descriptor, _BLOCK_NBYTES)
        while len(more) == _BLOCK_NBYTES:  # of a file less comes at its end alone
            more = os.read(descriptor, _BLOCK_NBYTES)
            content += more
        return content
    finally:
        os.close(descriptor)


_finders: list[_Finder] = []


def find_quickly(package: ModuleSpec | None) -> None:
    """Find the modules of a package so, and those of the packages in it. Nothing is done where
    Python keeps what it compiles in another place than usual."""
    folders = package.submodule_search_locations if package is not None else None
    if package is None or not folders:
        return
    if package.cached == f"{folders[0]}/__pycache__/__init__{_TAIL}":
        _finders.append(_Finder(package.name, folders[0]))
        sys.meta_path.insert(0, _finders[-1])


def begin_start() -> None:
    """A model is loaded. In a process that has done nothing else yet, modules come from one file,
    where a start like this has left them: a sixth less of what importing them takes."""
    for finder in _finders:
        finder.begin_start()


def pause_start() -> None:
    """It is not ready yet, but what others import now is not part of it."""
    for finder in _finders:
        finder.pause_start()


def end_start(is_usual: bool) -> None:
    """It is ready. If it was `usual`, and modules came that are not in that file, they are put
    there, beside Python's own compiled files and where these may be written."""
    for finder in _finders:
        finder.end_start(is_usual)
