"""Tables built step by step, with registers, sync words and targets filled in.

In: launches, instructions and regions in program order; a launch names the launches it waits for.
Out: a LaunchTable and the first values of its registers. A sync word is given to every SHARED
launch and to every other launch that is waited for; LOOP, IF and their ends find each other.

    build = TableBuilder()
    with build.block(parallel=True):
        first = build.launch(fn, [x, t], tiles, shared=True)
        build.launch(fn, [t, h], tiles, shared=True, waits=[first])
    table, registers = build.finish()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from arenite.errors import InvalidArgument
from arenite.program.table import (
    ENTRY,
    INSTRUCTION,
    NONE,
    Flag,
    LaunchTable,
    Op,
    aligned_empty,
)

#: An instruction: what to do, and the registers dst, a, b; those left out are r0.
Instruction = tuple[int, ...]


class TableBuilder:
    """A table under construction. r0 is 0 and r1 is 1."""

    def __init__(self) -> None:
        self._values: list[int] = [0, 1]
        self._constants: dict[int, int] = {0: 0, 1: 1}
        self._rows: list[dict[str, int]] = []
        self._row_waits: dict[int, list[int]] = {}
        self._instructions: list[Instruction] = []
        self._block: int | None = None

    # Registers

    def register(self, value: int = 0) -> int:
        """A new register with this first value."""
        self._values.append(value)
        return len(self._values) - 1

    def constant(self, value: int) -> int:
        """A register that always holds this value; equal constants are one register."""
        if value not in self._constants:
            self._constants[value] = self.register(value)
        return self._constants[value]

    def window(self, values: Sequence[int]) -> int:
        """Registers in a row with these first values; returns the first."""
        first = len(self._values)
        self._values.extend(values)
        return first

    # Entries

    def program(self, *instructions: Instruction) -> tuple[int, int]:
        """Instructions that no entry runs by itself, such as a bind program: (first, count)."""
        first = len(self._instructions)
        for given in instructions:
            if not 1 <= len(given) <= 4:
                raise InvalidArgument(f"an instruction is (op, dst, a, b), not {given}")
            self._instructions.append((*given, 0, 0, 0)[:4])
        return first, len(instructions)

    def eval(self, *instructions: Instruction) -> None:
        """Run instructions here."""
        first, count = self.program(*instructions)
        self._add(Op.EVAL, a=first, b=count)

    @contextmanager
    def block(self, parallel: bool = False, cost_ns: int = 0) -> Iterator[int]:
        """What is launched within forms one block; yields its tick."""
        if self._block is not None:
            raise InvalidArgument(f"a block inside the block at entry {self._block}")
        flags = Flag.PARALLEL if parallel else 0
        tick = self._add(Op.BLOCK, flags=flags, cost_ns=cost_ns)
        self._block = tick
        yield tick
        self._block = None
        inside = self._rows[tick + 1 :]
        self._rows[tick]["a"] = len(inside)
        self._rows[tick]["tiles"] = sum(bool(row["flags"] & Flag.SHARED) for row in inside)

    def launch(
        self,
        fn: int,
        args: int | Sequence[int],
        tiles: int = 1,
        *,
        shared: bool = False,
        waits: Sequence[int] = (),
        cost_ns: int = 0,
    ) -> int:
        """A launch in the open block; returns its tick.

        `fn`: address or offset of the kernel; `args`: the first register of its window, or the
        values of a new one; `tiles`: the register with the tile count; `waits`: ticks.
        """
        if self._block is None:
            raise InvalidArgument("a launch stands in a block")
        first = args if isinstance(args, int) else self.window(args)
        fields = {"fn": fn, "args": first, "tiles": tiles, "cost_ns": cost_ns}
        return self._add(Op.LAUNCH, waits, flags=Flag.SHARED if shared else 0, **fields)

    @contextmanager
    def if_(self, condition: int) -> Iterator[None]:
        """What is within runs where the register is not zero; `else_` may follow."""
        tick = self._add(Op.IF, a=condition)
        yield
        self._rows[tick]["target"] = len(self._rows)

    @contextmanager
    def else_(self) -> Iterator[None]:
        """Directly after an `if_`: what runs instead."""
        tick = self._add(Op.JUMP)
        before = [
            row for row in self._rows[:tick] if row["op"] == Op.IF and row.get("target") == tick
        ]
        if not before:
            raise InvalidArgument(f"entry {tick}: an else without its if")
        before[0]["target"] = tick + 1
        for inner in before[1:]:  # ifs that end where the outer one did: to the jump
            inner["target"] = tick
        yield
        self._rows[tick]["target"] = len(self._rows)

    @contextmanager
    def loop(self, counter: int, trips: int, condition: int = NONE) -> Iterator[int]:
        """While the register `counter`, from 0 on, is below `trips` and the condition holds."""
        tick = self._add(Op.LOOP, a=counter, b=trips, c=condition)
        yield tick
        self._add(Op.NEXT, a=counter, b=trips, c=condition, target=tick + 1)
        self._rows[tick]["target"] = len(self._rows)

    def segment(self, segment: int) -> int:
        """Leave native code here; returns the tick."""
        return self._add(Op.SEGMENT, a=segment)

    def finish(self) -> tuple[LaunchTable, NDArray[np.int64]]:
        """The table, closed by END, and the registers' first values."""
        self._add(Op.END)
        syncs = self._give_syncs()
        entries = aligned_empty(len(self._rows), ENTRY)
        waits: list[int] = []
        for tick, row in enumerate(self._rows):
            needed = [syncs[waited] for waited in self._row_waits[tick]]
            row |= {"wait_start": len(waits), "wait_count": len(needed)}
            waits += needed
            for field, value in row.items():
                entries[tick][field] = value
        instructions = aligned_empty(len(self._instructions), INSTRUCTION)
        for index, instruction in enumerate(self._instructions):
            instructions[index] = instruction
        all_waits = aligned_empty(len(waits), "<u4")
        all_waits[:] = waits
        registers = aligned_empty(len(self._values), np.int64)
        registers[:] = self._values
        return LaunchTable(entries, instructions, all_waits, len(syncs), len(registers)), registers

    def _give_syncs(self) -> dict[int, int]:
        """Sync words by tick: of SHARED launches, and of all that are waited for."""
        waited = {tick for ticks in self._row_waits.values() for tick in ticks}
        syncs: dict[int, int] = {}
        for tick, row in enumerate(self._rows):
            is_shared = bool(row["flags"] & Flag.SHARED)
            if is_shared or tick in waited:
                syncs[tick] = row["sync"] = len(syncs)
            if tick in waited and not is_shared:
                row["flags"] |= Flag.SIGNALS
        return syncs

    def _add(self, op: Op, waits: Sequence[int] = (), **fields: int) -> int:
        tick = len(self._rows)
        if self._block is not None and op is not Op.LAUNCH:
            raise InvalidArgument(f"{op.name} inside the block at entry {self._block}")
        for waited in waits:
            if self._block is None or not self._block < waited < tick:
                raise InvalidArgument(f"entry {tick} waits for {waited}, not earlier in its block")
        row = {"op": int(op), "flags": 0, "sync": NONE, "c": NONE}
        self._rows.append(row | fields)
        self._row_waits[tick] = sorted({*waits})
        return tick
