"""Handover: arrays of a caller to a program that is bound to sizes, and its results back.

In: arrays that fit. Out: their addresses in the program's registers, with new arrays for what it
returns, or those of the caller where native code can write to them; after a run the results as a
caller knows them, one element a byte where they are narrower, and as long as the run found them to
be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from numpy.lib.array_utils import byte_bounds

from arenite.backends.cpu.execution.arrays import address_of
from arenite.backends.cpu.execution.binding import Binder, Binding
from arenite.backends.cpu.execution.quick import Check, QuickCall, Wanted, can_be_quick
from arenite.dtype import Array
from arenite.ir.dim import evaluate, found_in
from arenite.ir.element import packed, unpacked
from arenite.ir.interface import GraphInterface
from arenite.program.arguments import capacity_of, check_room, in_place, overlaps, write_to
from arenite.program.skeleton import FIRST_IO


class Handover:
    """What is the same for every run of a program."""

    def __init__(self, interface: GraphInterface, binder: Binder) -> None:
        self._binder = binder
        self._compiled = compiled = binder.compiled
        self._input_dtypes = [port.dtype for port in interface.inputs]
        self._input_registers = [
            (compiled.values[number].source, FIRST_IO + binder.io[number])
            for number in compiled.frame.numbers("input")
        ]
        self._returned = self._find_returned()
        self._returns_new = self._returned == [("output", k) for k in range(len(binder.results))]
        #: Whether an output is returned in two places.
        self._has_twins = len({*compiled.outputs}) < len(compiled.outputs)
        self._has_narrow_inputs = any(dtype.bits < 8 for dtype in self._input_dtypes)
        self._has_narrow_outputs = any(
            compiled.values[number].dtype.bits < 8 for number in compiled.outputs
        )
        self._outputs = [
            (compiled.values[number].shape, compiled.values[number].dtype)
            for number in compiled.outputs
        ]
        #: Whether calls with arrays like the last ones may be quick.
        self.may_be_quick = (
            self._returns_new
            and not (self._has_narrow_inputs or self._has_narrow_outputs)
            and not (compiled.found or compiled.hosts)
            and sorted(k for k, _ in self._input_registers) == list(range(len(interface.inputs)))
            and can_be_quick()
        )

    def _find_returned(self) -> list[tuple[str, int]]:
        """What each output of the graph is: the n-th new array, or a copy of an input or constant
        that is handed through."""
        new = {number: k for k, number in enumerate(self._binder.results)}
        found = []
        for number in self._compiled.outputs:
            value = self._compiled.values[number]
            places = {"output": new.get(number, 0), "input": value.source, "constant": number}
            found.append((value.kind, places[value.kind]))
        return found

    def packed(self, arrays: list[Array]) -> list[Array]:
        """The arrays as memory has them: elements narrower than a byte side by side."""
        if not self._has_narrow_inputs:
            return arrays
        return [
            packed(array, dtype) if dtype.bits < 8 else array
            for dtype, array in zip(self._input_dtypes, arrays, strict=True)
        ]

    def prepare(
        self, binding: Binding, arrays: list[Array], out: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """Put the addresses of inputs and outputs into their registers; the results to be. Those of
        `out` that native code can write to are among them."""
        words = binding.words
        for k, register in self._input_registers:
            words[register] = address_of(arrays[k])
        given: dict[int, Array] = {}
        spans: list[tuple[int, int]] = []
        if out is not None:
            check_room(out, self._outputs, binding.sizes)
            spans = [byte_bounds(array) for array in arrays if array.size]
            given = self._in_place(binding, out, spans)
        made: list[Array] = []
        for n, (fresh, register, shape) in enumerate(binding.results):
            array = given[n] if n in given else fresh.new(shape)
            words[register] = address_of(array)
            made.append(array)
        if self._returns_new:
            return made
        # What is handed through is read after the run, unless an output comes to lie on it.
        is_lasting = out is not None and not any(
            overlaps(array, spans) for array in out if array is not None
        )
        found = []
        for n, (kind, k) in enumerate(self._returned):
            if kind == "output":
                found.append(made[k])
            else:
                array = arrays[k] if kind == "input" else self._binder.constants[k]
                is_copied_later = is_lasting and out is not None and out[n] is not None
                found.append(array if is_copied_later else array.copy())
        return found

    def _in_place(
        self, binding: Binding, out: Sequence[Array | None], inputs: list[tuple[int, int]]
    ) -> dict[int, Array]:
        """Which arrays of the caller take the place of new ones, by number of the new array: those
        that have room for whatever native code may write."""
        found: dict[int, Array] = {}
        for (kind, n), array, (_, dtype) in zip(self._returned, out, self._outputs, strict=True):
            if array is None or kind != "output" or n in found or dtype.bits < 8:
                continue
            room = math.prod(binding.results[n][2])
            if array.size >= room and in_place(array, inputs):
                found[n] = array
        return found

    def finished(
        self, binding: Binding, results: list[Array], out: Sequence[Array | None] | None = None
    ) -> list[Array]:
        """What a run wrote, as the caller knows it, and where the caller wants it."""
        if self._has_narrow_outputs:
            results = self._unpacked(binding, results)
        if self._compiled.found:
            results = self._cut_down(binding, results, shrink=out is None)
        if out is not None:
            capacities = [capacity_of(shape, binding.sizes) for shape, _ in self._outputs]
            written = "the run is over, states and outputs of known sizes are written"
            results = write_to(out, results, capacities, written)
        if self._has_twins:
            results = _each_its_own(results)
        return results

    def _unpacked(self, binding: Binding, results: list[Array]) -> list[Array]:
        """The results one element a byte, where they are narrower."""
        made = []
        for number, array in zip(self._compiled.outputs, results, strict=True):
            dtype = self._compiled.values[number].dtype
            if dtype.bits < 8:
                shape = self._binder.room_for(number, binding.plan, binding.sizes)
                array = unpacked(array, dtype, shape)
            made.append(array)
        return made

    def _cut_down(self, binding: Binding, results: list[Array], shrink: bool) -> list[Array]:
        """Results whose size was found while running, which were made as large as they may get;
        to `shrink` them is to give back what they do not need. One value stays one array."""
        sizes = self.sizes_after(binding)
        cut: dict[int, Array] = {}
        for number, array in zip(self._compiled.outputs, results, strict=True):
            dims = self._compiled.values[number].shape
            if number not in cut and any(map(found_in, dims)):
                shape = tuple(evaluate(dim, sizes) for dim in dims)
                whole = array.reshape(-1)
                part = whole[: math.prod(shape)].reshape(shape)
                cut[number] = part.copy() if shrink and 2 * part.size < whole.size else part
        outputs = zip(self._compiled.outputs, results, strict=True)
        return [cut.get(number, array) for number, array in outputs]

    def sizes_after(self, binding: Binding) -> dict[str, int]:
        """All sizes, those that were found in the last run too."""
        first = self._binder.assembly.first_cell
        found = {name: binding.words[first + cell] for name, cell in self._compiled.found.items()}
        return binding.sizes | found

    def quick_for(
        self, binding: Binding, arrays: list[Array], threads: int, check: Check
    ) -> QuickCall:
        """The quick call for arrays like these; `check` hears of a run that did not end well."""
        if binding.quick is None:
            registers = dict(self._input_registers)
            inputs = [
                Wanted(array.dtype, array.shape, registers[k]) for k, array in enumerate(arrays)
            ]
            binding.quick = QuickCall(binding.table, inputs, binding.results, threads, check)
        return binding.quick


def _each_its_own(results: list[Array]) -> list[Array]:
    """Arrays that come a second time as copies: the caller may write to each."""
    seen: set[int] = set()
    made = []
    for array in results:
        made.append(array.copy() if id(array) in seen else array)
        seen.add(id(array))
    return made
