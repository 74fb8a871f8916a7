"""Quick calls: a program bound to sizes, called with arrays that are just like the last ones.

In: a bound table and what its arrays are like. Out: `run`, which enters native code with the array
objects themselves; there their type, dtype, shape and order are compared, word by word, and their
addresses taken. What differs in any way is not run: the caller takes the long way, which can say
what is wrong, or copy.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakMethod

import numpy as np

from arenite.backends.cpu.driver.layout import END, ArrayObject
from arenite.backends.cpu.driver.layout import Quick as Layout
from arenite.backends.cpu.driver.native import BoundTable, runtime, team
from arenite.backends.cpu.driver.team import Team
from arenite.backends.cpu.execution.arrays import Results
from arenite.dtype import Array
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray


_METH_FASTCALL = 0x80


#: Raises what a run that did not end well raises; weak, for it is the program's.
Check: TypeAlias = WeakMethod[Callable[..., None]]


class Wanted(NamedTuple):
    """What an array must be like, and the register its address goes to."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    register: int


class QuickCall:
    """A table with its registers, for the inputs and new results of one set of sizes."""

    __slots__ = (
        "_alone", "_check", "_crew", "_makers", "_n_inputs", "_n_threads", "_together", "_wanted",
        "table",
    )  # fmt: skip

    def __init__(
        self,
        table: BoundTable,
        inputs: Sequence[Wanted],
        results: Sequence[tuple[Results, int, tuple[int, ...]]],
        n_threads: int,
        check: Check,
    ) -> None:
        self.table = table
        self._makers = [fresh.maker(shape) for fresh, _, shape in results]
        made = [Wanted(fresh.numpy_dtype, shape, register) for fresh, register, shape in results]
        self._n_inputs = len(inputs)
        self._wanted = [*inputs, *made]
        self._alone = self._entry(runtime().run_serial_at)
        self._together = self._alone
        self._crew: Team | None = None
        self._n_threads = n_threads
        self._check = check

    def run(self, arrays: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array] | None:
        """The results, new or those of `out`; None if nothing was done, because arrays do not fit.

        A team in use by another run is not waited for.
        """
        if out is None:
            made = []
            for make in self._makers:
                made.append(make())
        elif len(out) != len(self._makers):
            return None
        else:
            made = [*out]
        n_threads = self._n_threads
        crew = team() if n_threads > 1 else None
        if crew is None or not crew.lock.acquire(False):
            returned = self._alone(*arrays, *made)
        else:
            try:
                if crew.n_threads < n_threads:
                    crew.grow(n_threads)
                if crew is not self._crew:
                    self._together = self._entry(runtime().run_parallel_at, crew, n_threads)
                    self._crew = crew
                returned = self._together(*arrays, *made)
            finally:
                crew.lock.release()
        if returned == END:
            return made
        if returned > END:
            check = self._check()
            assert check is not None, "who runs it holds it"
            check(self.table.outcome(returned))
        return None

    def _entry(
        self, entry: int, crew: Team | None = None, n_threads: int = 1
    ) -> Callable[..., int]:
        """A builtin function over words of its own."""
        words = [0] * (Layout.SIZES // 8)
        for offset, word in (
            (Layout.N_ARRAYS, len(self._wanted)),
            (Layout.N_INPUTS, self._n_inputs),
            (Layout.TYPE, id(np.ndarray)),
            (Layout.ENTRY, entry),
            (Layout.RUN, self.table.address),
            (Layout.IMPORTS, runtime().imports),
            (Layout.TEAM, 0 if crew is None else crew.address),
            (Layout.N_THREADS, n_threads),
        ):
            words[offset // 8] = word
        words += [math.prod(one.shape) * one.dtype.itemsize for one in self._wanted]
        for one in self._wanted:
            target = self.table.register_address(one.register)
            words += [id(one.dtype), target, len(one.shape), *one.shape]
        return _function(np.array(words, np.int64))


class _Method(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def _method() -> _Method:
    """One for the life of the process: functions refer to it."""
    return _Method(b"quick", runtime().quick_at, _METH_FASTCALL, None)


def _function(words: NDArray[np.int64]) -> Callable[..., int]:
    """A builtin function with these words as its `self`."""
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    new = kind(("PyCFunction_NewEx", ctypes.pythonapi))
    made: Callable[..., int] = new(ctypes.addressof(_method()), words, None)
    return made


@cache
def can_be_quick() -> bool:
    """Whether array objects are laid out as native code reads them; it is tried on some."""
    wide: Array = np.zeros((3, 4, 5), np.float32)
    closed = wide[1:]
    closed.flags.writeable = False
    probes: list[Array] = [wide, wide[1:, ::2], np.zeros((), np.int8), wide.T, np.zeros(0)]
    probes.append(closed)

    def word(array: Array, offset: int) -> int:
        return ctypes.c_int64.from_address(id(array) + offset).value

    def half(array: Array, offset: int) -> int:
        return ctypes.c_int32.from_address(id(array) + offset).value

    def is_as_meant(array: Array) -> bool:
        n_axes, flags = half(array, ArrayObject.RANK), half(array, ArrayObject.FLAGS)
        in_order = array.flags.c_contiguous and array.flags.aligned
        return (
            word(array, ArrayObject.TYPE) == id(type(array))
            and word(array, ArrayObject.DATA) == array.__array_interface__["data"][0]
            and word(array, ArrayObject.DTYPE) == id(array.dtype)
            and (flags & ArrayObject.IN_ORDER == ArrayObject.IN_ORDER) == in_order
            and bool(flags & ArrayObject.WRITEABLE) == array.flags.writeable
            and n_axes == array.ndim
            and tuple(
                ctypes.c_int64.from_address(word(array, ArrayObject.SHAPE) + 8 * k).value
                for k in range(n_axes)
            )
            == array.shape
        )

    return all(map(is_as_meant, probes))
