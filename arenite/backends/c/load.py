"""A compiled program of C in this process: what is exported, compiled by the system's compiler,
loaded, and run over one arena. Constants are read where they lie, by a table of addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.c.header import header
from arenite.backends.c.layout import ALIGNMENT, ERRORS, Layout, SourceOptions
from arenite.backends.c.program import source
from arenite.backends.c.shared_object import SharedObject
from arenite.device import Buffer, get
from arenite.dtype import UINT8, Array
from arenite.errors import IndexOutOfRange, NotSupported, RunCancelled, RunFailed
from arenite.ir.dim import bounds, evaluate
from arenite.ir.element import numpy_dtype, packed, unpacked
from arenite.ir.interface import GraphInterface
from arenite.program.arguments import capacity_of, check_room, write_to
from arenite.program.compiled import Compiled
from arenite.program.loaded import LoadedProgram, OnPacked, Timings
from arenite.program.value_spec import copy_name

if TYPE_CHECKING:
    from arenite.schedule import Schedule


OPTIONS = SourceOptions("program", memory="caller", weights="table", cancellable=True)
_TEXTS = dict(ERRORS.values())
_CANCELLED = ERRORS["CANCELLED"][0]


class _State(ctypes.Structure):
    """`program_program` of the header."""

    _fields_ = (
        ("arena", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("cancelled", ctypes.c_int),
        ("status", ctypes.c_int),
    )


class CProgram(LoadedProgram):
    """Runs on the caller's thread; `threads` are not used."""

    def __init__(self, interface: GraphInterface, compiled: Compiled) -> None:
        super().__init__(interface, compiled)
        self.layout = Layout(compiled, interface, OPTIONS)
        self._library = SharedObject(sources(self.layout))
        arena = Buffer.allocate(get("cpu"), UINT8, (max(ALIGNMENT, self.layout.arena_nbytes),))
        self._arena: NDArray[np.uint8] = arena.as_array_mut(UINT8)
        self._buffer: Buffer | None = arena
        self._constants = [_constant(self.layout, number) for number in self.layout.offsets]
        self._table = (ctypes.c_void_p * max(1, len(self._constants)))(
            *map(_address, self._constants)
        )
        self._state = _State()
        self._values = [compiled.values[number] for number in compiled.outputs]
        self._ports = [(value.shape, value.dtype) for value in self._values]
        #: Which copy in the plan holds a set of states: the program works on the first.
        self._place_of = list(range(self.n_state_sets))
        for number in self.state_numbers:
            for copy in self._place_of:
                self._bytes_of(number, copy)[:] = 0

    # Running.

    def run(
        self, arrays: list[Array], sizes: dict[str, int], out: Sequence[Array | None] | None
    ) -> list[Array]:
        self.pack(None)
        self.n_binds = 1
        if out is not None:
            check_room(out, self._ports, sizes)
        given = [
            _readable(packed(array, port.dtype) if port.dtype.bits < 8 else array)
            for array, port in zip(arrays, self.interface.inputs, strict=True)
        ]
        results = [_aligned(bounds(value.nbytes)[1]) for value in self._values]
        found = (ctypes.c_int64 * max(1, len(self.layout.found)))()
        arguments: list[Any] = [ctypes.byref(self._state)]
        arguments += [ctypes.c_void_p(_address(array)) for array in (*given, *results)]
        arguments += [ctypes.c_int64(sizes[var.name]) for var in self.layout.sizes]
        first = ctypes.addressof(found)
        arguments += [ctypes.c_void_p(first + 8 * k) for k in range(len(self.layout.found))]
        self._state.cancelled = 0
        self._check(self._library.call("program_run", *arguments))
        known = {**sizes, **{size.name: found[k] for k, size in enumerate(self.layout.found)}}
        made = []
        for raw, value in zip(results, self._values, strict=True):
            shape = tuple(evaluate(dim, known) for dim in value.shape)
            whole = raw[: value.dtype.nbytes(shape)]
            if value.dtype.bits < 8:
                made.append(unpacked(whole, value.dtype, shape).copy())
            else:
                made.append(whole.view(numpy_dtype(value.dtype)).reshape(shape))
        if out is None:
            return made
        capacities = [capacity_of(shape, sizes) for shape, _ in self._ports]
        return write_to(out, made, capacities, "the run is over, and states are written")

    def pack(self, on_progress: OnPacked | None) -> None:
        if self.load_ns is not None:
            return
        began = perf_counter_ns()
        arguments: list[Any] = [ctypes.byref(self._state)]
        arguments += [ctypes.c_void_p(_address(self._arena)), ctypes.c_size_t(self._arena.nbytes)]
        if self.layout.offsets:
            arguments.append(self._table)
        states = {number: self._bytes_of(number).copy() for number in self.state_numbers}
        self._check(self._library.call("program_init", *arguments))
        for number, content in states.items():  # what was put there before the first run
            self._bytes_of(number)[:] = content
        self.load_ns = perf_counter_ns() - began
        if on_progress is not None:
            on_progress(1, 1)

    def cancel(self) -> None:
        self._state.cancelled = 1

    def _check(self, code: int) -> None:
        if code == 0:
            return
        about = "; its states may be half written: reset_state() them" * bool(self.state_numbers)
        if code == _CANCELLED:
            self._state.status = 0
            raise RunCancelled(f"the run was cancelled; the Executable can be called again{about}")
        kind = IndexOutOfRange if code == IndexOutOfRange.code else RunFailed
        error = kind(f"{_TEXTS.get(code, f'a kernel failed with code {code}')}{about}")
        self.fail(str(error))
        raise error

    # State.

    def _bytes_of(self, number: int, copy: int = 0) -> NDArray[np.uint8]:
        slot = self.compiled.plan.slots[copy_name(self.compiled.values[number].name, copy)]
        return self._arena[slot.offset : slot.offset + slot.nbytes]

    @contextmanager
    def state(self, number: int) -> Iterator[NDArray[np.uint8]]:
        yield self._bytes_of(number)

    def use_state_set(self, number: int) -> None:
        """The first place is where the program works: what is there goes where the set was."""
        place = self._place_of[number]
        if place == 0:
            return
        for one in self.state_numbers:
            first, other = self._bytes_of(one), self._bytes_of(one, place)
            first[:], other[:] = other.copy(), first.copy()
        self._place_of[self._place_of.index(0)] = place
        self._place_of[number] = 0

    # What it shows.

    def verify(self, schedule: Callable[[], Schedule]) -> None:
        """One launch comes behind the other: there is no order to prove but that of the plan."""
        self.compiled.plan.verify()

    def profile(self, arrays: list[Array], sizes: dict[str, int]) -> Timings:
        raise NotSupported(
            "a program of C has no time stamps; profile it as any C program is (perf, gprof), or "
            "compile for device='cpu'"
        )

    def run_checked(self, arrays: list[Array], sizes: dict[str, int]) -> list[Array]:
        raise NotSupported(
            "a program of C is not run launch by launch; export it and compile it with "
            "-fsanitize=address, or compile for device='cpu'"
        )

    # Ending.

    def reset(self) -> None:
        self.failure = None
        if self.load_ns is not None:
            self._state.status = 0

    def close(self) -> None:
        self._arena = np.empty(0, np.uint8)
        self._buffer = None
        self._constants.clear()
        self._library.close()


def load(interface: GraphInterface, compiled: Compiled) -> CProgram:
    """A program in this process."""
    return CProgram(interface, compiled)


def sources(layout: Layout) -> dict[str, str]:
    """The files that are compiled, by name."""
    name = layout.options.name
    return {f"{name}.h": header(layout), f"{name}.c": source(layout)}


def _constant(layout: Layout, number: int) -> Array:
    origin = layout.compiled.values[number].source
    if origin < 0:
        return np.ascontiguousarray(layout.compiled.constants[-1 - origin])
    return layout.interface.constants[origin].held()


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _aligned(nbytes: int) -> NDArray[np.uint8]:
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
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
