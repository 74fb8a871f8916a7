"""wgpu's C declarations as tables, kept in the cache: its header takes half a second to parse, in
every process, which is a third of what a language model takes to its first token.

In: the header that wgpu brings. Out: wgpu imported, with the tables that cffi makes of a header for
modules that are compiled ahead. Where that does not go, wgpu is imported later as it is.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from arenite.backends.cpu.identity import sources
from arenite.errors import AreniteError
from arenite.program import cache

_log = logging.getLogger("arenite.cache")

_USER = "wgpu.backends.wgpu_native"
_HEADER = Path("resources", "combined_header.h")
_SECTION = "tables"


def import_wgpu() -> None:
    """Import wgpu, if it is there and nobody has yet."""
    found = None if _USER in sys.modules else find_spec("wgpu")
    if found is None or not found.submodule_search_locations:
        return
    try:
        header = Path(found.submodule_search_locations[0], _HEADER).read_text()
        tables = _tables(header)
        with _declared(tables):
            __import__(_USER)
    except (OSError, ImportError, AttributeError, KeyError, TypeError, ValueError) as reason:
        _log.info("the declarations of wgpu are parsed: %r", reason)
    except AreniteError as reason:
        _log.info("the declarations of wgpu are parsed: %s", reason)


def _tables(header: str) -> dict[str, Any]:
    """What cffi makes of a header, by the names of its arguments."""
    import cffi  # type: ignore[import-untyped]

    key = cache.key_of("wgpu declarations", cffi.__version__, sources(__file__), header)
    made = cache.default().obtain(key, lambda: {_SECTION: _parsed(header)}, [_SECTION])
    return {name: _decoded(value) for name, value in json.loads(bytes(made[_SECTION])).items()}


def _parsed(header: str) -> bytes:
    """The same as JSON, from the Python text that cffi writes."""
    import cffi
    from cffi.recompiler import make_py_source  # type: ignore[import-untyped]

    declared, text = cffi.FFI(), io.StringIO()
    declared.cdef(header)
    declared.set_source("wgpu_h", None)
    make_py_source(declared, "wgpu_h", text)
    [call] = (one for one in ast.walk(ast.parse(text.getvalue())) if isinstance(one, ast.Call))
    arguments = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    return json.dumps({name: _encoded(value) for name, value in arguments.items()}).encode()


def _encoded(value: Any) -> Any:
    """Bytes as text, whose characters are as many numbers."""
    if isinstance(value, tuple):
        return [_encoded(one) for one in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    return value.encode("latin-1") if isinstance(value, str) else value


@contextmanager
def _declared(tables: dict[str, Any]) -> Iterator[None]:
    """Have wgpu get the tables where it asks for a parser. Who else asks meanwhile gets one."""
    import _cffi_backend  # type: ignore[import-untyped]
    import cffi

    class Declared(_cffi_backend.FFI):  # type: ignore[misc]
        """Knows all declarations from the beginning."""

        def cdef(self, *given: Any, **options: Any) -> None:
            pass

        def set_source(self, *given: Any, **options: Any) -> None:
            pass

    class Parser(cffi.FFI):  # type: ignore[misc]
        def __new__(cls, *given: Any, **options: Any) -> Any:
            if sys._getframe(1).f_globals.get("__name__", "").startswith(_USER):
                return Declared("wgpu_h", **tables)
            return super().__new__(cls)

    usual = cffi.FFI
    cffi.FFI = Parser
    try:
        yield
    finally:
        cffi.FFI = usual
