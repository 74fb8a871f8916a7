"""A program of C in this process: compiled by the system's compiler, loaded, called with arrays.

In: a Compiled of this back end and its outline. Out: what runs it over one arena. Shared objects
are kept in the cache, by the content of their source.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.c import compile as c_compile
from arenite.backends.c.header import header
from arenite.backends.c.program import ALIGNMENT, ERRORS, Layout, SourceOptions, source
from arenite.errors import IndexOutOfRange, RunFailed
from arenite.ir.dim import bounds, evaluate
from arenite.ir.element import numpy_dtype, packed, unpacked
from arenite.ir.outline import Outline
from arenite.program.compiled import Compiled

Array = NDArray[Any]

OPTIONS = SourceOptions("program", memory="caller", weights="table")
_NAMES = {code: (name, text) for name, (code, text) in ERRORS.items()}


class _State(ctypes.Structure):
    """`program_program` of the header."""

    _fields_ = [  # noqa: RUF012
        ("arena", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("status", ctypes.c_int),
    ]


def sources_of(layout: Layout) -> dict[str, str]:
    """The files that are compiled, by name."""
    name = layout.options.name
    public = '__attribute__((visibility("default"))) '
    text = header(layout)
    for function in ("init", "reset", "run"):
        text = text.replace(f"int {layout.prefix}_{function}(", f"{public}int {layout.prefix}_{function}(")
    return {f"{name}.h": text, f"{name}.c": source(layout)}


class LoadedProgram:
    """One program with its arena; call `run` with the arrays of its inputs."""

    def __init__(self, compiled: Compiled, outline: Outline, library: bytes | None = None) -> None:
        self.compiled, self.outline = compiled, outline
        self.layout = Layout(compiled, outline, OPTIONS)
        sources = sources_of(self.layout)
        self._library = _opened(library or c_compile.shared_object(sources))
        self._arena = _aligned(max(1, self.layout.arena_nbytes))
        self._constants = [self._constant(number) for number in self.layout.offsets]
        self._table = (ctypes.c_void_p * max(1, len(self._constants)))(
            *map(_address, self._constants)
        )
        self._state = _State()
        arguments: list[Any] = [ctypes.byref(self._state), _pointer(self._arena)]
        arguments.append(ctypes.c_size_t(self._arena.nbytes))
        if self.layout.offsets:
            arguments.append(self._table)
        self._check(self._library.program_init(*arguments))

    def _constant(self, number: int) -> Array:
        source_number = self.compiled.values[number].source
        if source_number < 0:
            return np.ascontiguousarray(self.compiled.constants[-1 - source_number])
        return self.outline.constants[source_number].held()

    def reset(self) -> None:
        self._check(self._library.program_reset(ctypes.byref(self._state)))

    def run(self, arrays: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
        """The outputs, new arrays."""
        given = []
        for array, port in zip(arrays, self.outline.inputs, strict=True):
            held = packed(array, port.dtype) if port.dtype.bits < 8 else array
            given.append(_readable(held))
        values = [self.compiled.values[number] for number in self.compiled.outputs]
        results = [_aligned(bounds(value.nbytes)[1]) for value in values]
        found = (ctypes.c_int64 * max(1, len(self.layout.found)))()
        arguments: list[Any] = [ctypes.byref(self._state)]
        arguments += [_pointer(array) for array in (*given, *results)]
        arguments += [ctypes.c_int64(sizes[var.name]) for var in self.layout.sizes]
        arguments += [
            ctypes.c_void_p(ctypes.addressof(found) + 8 * k) for k in range(len(self.layout.found))
        ]
        self._check(self._library.program_run(*arguments))
        known = {**sizes, **{size.name: found[k] for k, size in enumerate(self.layout.found)}}
        made = []
        for raw, value in zip(results, values, strict=True):
            shape = tuple(evaluate(dim, known) for dim in value.shape)
            nbytes = value.dtype.nbytes(shape)
            if value.dtype.bits < 8:
                made.append(unpacked(raw[:nbytes], value.dtype, shape).copy())
            else:
                made.append(raw[:nbytes].view(numpy_dtype(value.dtype)).reshape(shape))
        return made

    def _check(self, code: int) -> None:
        if code == 0:
            return
        name, text = _NAMES.get(code, ("", f"code {code}"))
        kind = IndexOutOfRange if code == IndexOutOfRange.code else RunFailed
        raise kind(f"{text}; the program must be reset" if name else f"a run failed with {text}")


def _opened(library: bytes) -> ctypes.CDLL:
    """The object stays in memory when its file is gone."""
    with tempfile.TemporaryDirectory(prefix="arenite-c-") as folder:
        path = Path(folder) / "program.so"
        path.write_bytes(library)
        return ctypes.CDLL(str(path))


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -_address(memory) % ALIGNMENT
    return memory[start : start + nbytes]


def _readable(array: Array) -> Array:
    """In C order, at an address at which words of any size may be read."""
    made = np.ascontiguousarray(array)
    if _address(made) % 8 == 0:
        return made
    copy = _aligned(made.nbytes).view(made.dtype).reshape(made.shape)
    copy[...] = made
    return copy


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(_address(array))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])

