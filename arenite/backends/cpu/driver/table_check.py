"""Whether a launch table may be run; shares no code with what builds tables.

In: a table from a file, or from anywhere. Out: nothing, or InvalidTable naming the first entry that
breaks a rule. A table that passes never makes the driver read an entry, an instruction, a wait, a
sync word or a register that is not there, jump out of a region, or wait for ever. What kernels do
with the addresses in registers is not judged here.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from arenite.errors import InvalidTable
from arenite.program.table import ENTRY, INSTRUCTION, NONE, Flag, Ins, LaunchTable, Op

_FLAGS = {
    Op.BLOCK: Flag.PARALLEL,
    Op.LAUNCH: Flag.SHARED | Flag.SIGNALS,
}
_N_OPS = len(Op)
_N_INSTRUCTIONS = len(Ins)


def check_table(table: LaunchTable) -> None:
    """Raise InvalidTable unless the driver may walk this table."""
    _check_arrays(table)
    _check_instructions(table)
    entries = table.entries
    n = len(entries)
    if n == 0 or entries[n - 1]["op"] != Op.END:
        raise InvalidTable(f"a table of {n} entries does not close with END")
    owners: dict[int, int] = {}  # sync word -> tick
    # (kind, first tick after it); a loop is closed by its NEXT, the others by reaching their end.
    regions: list[tuple[str, int]] = []
    tick = 0
    while tick < n:
        while regions and regions[-1][1] == tick:
            regions.pop()
        entry = entries[tick]
        op = int(entry["op"])
        if op >= _N_OPS:
            _bad(tick, f"op {op} is unknown")
        allowed = int(_FLAGS.get(Op(op), 0))
        if int(entry["flags"]) & ~allowed:
            _bad(tick, f"{Op(op).name} with flags {int(entry['flags']):#x}")
        inside = regions[-1][1] if regions else n - 1
        if op == Op.LAUNCH:
            _bad(tick, "LAUNCH outside a block")
        elif op == Op.BLOCK:
            tick = _check_block(table, tick, inside, owners)
            continue
        elif op == Op.EVAL:
            _check_program(table, tick)
        elif op == Op.IF:
            _check_register(table, tick, "a")
            _check_if(table, tick, inside, regions)
        elif op == Op.JUMP:
            _check_jump(table, tick, regions)
        elif op == Op.LOOP:
            _check_loop(table, tick, inside, regions)
        elif op == Op.NEXT:
            _check_next(tick, regions)
        elif op == Op.END and tick != n - 1:
            _bad(tick, "END before the end")
        tick += 1


def _check_arrays(table: LaunchTable) -> None:
    for name, array, kind in (
        ("entries", table.entries, ENTRY),
        ("instructions", table.instructions, INSTRUCTION),
        ("waits", table.waits, np.dtype("<u4")),
    ):
        if array.dtype != kind or array.ndim != 1 or not array.flags.c_contiguous:
            raise InvalidTable(f"{name}: not a flat array of {kind}")
    if not 2 <= table.n_registers <= 2**31:
        raise InvalidTable(f"{table.n_registers} registers; r0 and r1 are always there")
    if not 0 <= table.n_syncs <= 2**31:
        raise InvalidTable(f"{table.n_syncs} sync words")
    if bool((table.waits >= table.n_syncs).any()):
        raise InvalidTable("a wait for a sync word that is not there")


def _check_instructions(table: LaunchTable) -> None:
    code = table.instructions
    unknown = code["op"] >= _N_INSTRUCTIONS
    # The driver reads all three before it knows what to do.
    outside = (code["a"] >= table.n_registers) | (code["b"] >= table.n_registers)
    outside |= code["dst"] >= table.n_registers
    # r0 and r1 are constants everywhere.
    writes = code["op"] != Ins.STORE64
    for wrong, what in (
        (unknown, "is unknown"),
        (outside, "names a register that is not there"),
        (writes & (code["dst"] < 2), "writes r0 or r1"),
    ):
        if wrong.any():
            raise InvalidTable(f"instruction {int(np.argmax(wrong))} {what}")


def _check_block(table: LaunchTable, tick: int, inside: int, owners: dict[int, int]) -> int:
    """The block at `tick`; returns the tick after it."""
    block = table.entries[tick]
    stop = tick + 1 + int(block["a"])
    if stop > inside:
        _bad(tick, f"a block of {int(block['a'])} entries leaves its region")
    n_shared = 0
    here: dict[int, int] = {}  # sync words of this block that are signalled
    for inner in range(tick + 1, stop):
        entry = table.entries[inner]
        op, flags = int(entry["op"]), int(entry["flags"])
        if op != Op.LAUNCH:
            _bad(inner, f"op {op} inside a block")
        if flags & ~int(_FLAGS[Op(op)]):
            _bad(inner, f"{Op(op).name} with flags {flags:#x}")
        _check_waits(table, inner, here)
        _check_register(table, inner, "args")
        _check_register(table, inner, "tiles")
        n_shared += bool(flags & Flag.SHARED)
        if flags & (Flag.SHARED | Flag.SIGNALS):
            sync = int(entry["sync"])
            if sync >= table.n_syncs:
                _bad(inner, f"sync word {sync} is not there")
            if sync in owners:
                _bad(inner, f"sync word {sync} belongs to entry {owners[sync]}")
            owners[sync] = here[sync] = inner
    if int(block["tiles"]) != n_shared:
        _bad(tick, f"the block says {int(block['tiles'])} SHARED entries and has {n_shared}")
    return stop


def _check_waits(table: LaunchTable, tick: int, here: dict[int, int]) -> None:
    entry = table.entries[tick]
    start, count = int(entry["wait_start"]), int(entry["wait_count"])
    if start + count > len(table.waits):
        _bad(tick, f"waits {start}..{start + count} of {len(table.waits)}")
    for sync in table.waits[start : start + count].tolist():
        if sync not in here:
            _bad(tick, f"waits for sync word {sync}, which nothing earlier in its block signals")


def _check_program(table: LaunchTable, tick: int) -> None:
    first, count = int(table.entries[tick]["a"]), int(table.entries[tick]["b"])
    if first + count > len(table.instructions):
        _bad(tick, f"instructions {first}..{first + count} of {len(table.instructions)}")


def _check_if(table: LaunchTable, tick: int, inside: int, regions: list[tuple[str, int]]) -> None:
    """IF ... JUMP over ELSE ..., or IF ... and what follows."""
    target = int(table.entries[tick]["target"])
    if not tick < target <= inside:
        _bad(tick, f"the else part at {target} is not ahead within the region")
    regions.append(("then", target))


def _check_jump(table: LaunchTable, tick: int, regions: list[tuple[str, int]]) -> None:
    """The last entry of a then part: opens the else part."""
    if not regions or regions[-1] != ("then", tick + 1):
        _bad(tick, "JUMP is not the last entry of a then part")
    regions.pop()
    inside = regions[-1][1] if regions else len(table.entries) - 1
    target = int(table.entries[tick]["target"])
    if not tick < target <= inside:
        _bad(tick, f"jumps to {target}, which is not ahead within the region")
    regions.append(("else", target))


def _check_loop(table: LaunchTable, tick: int, inside: int, regions: list[tuple[str, int]]) -> None:
    for field in "ab":
        _check_register(table, tick, field)
    _check_register(table, tick, "c", optional=True)
    if int(table.entries[tick]["a"]) < 2:
        _bad(tick, "a loop counts in r0 or r1")
    target = int(table.entries[tick]["target"])
    if not tick + 1 < target <= inside:
        _bad(tick, f"the loop's end at {target} is not ahead within the region")
    closing = table.entries[target - 1]
    if closing["op"] != Op.NEXT or int(closing["target"]) != tick + 1:
        _bad(tick, f"entry {target - 1} is not the NEXT of this loop")
    if any(closing[field] != table.entries[tick][field] for field in "abc"):
        _bad(tick, f"LOOP and its NEXT at {target - 1} name other registers")
    regions.append(("loop", target))


def _check_next(tick: int, regions: list[tuple[str, int]]) -> None:
    if not regions or regions[-1] != ("loop", tick + 1):
        _bad(tick, "NEXT is not the last entry of a loop")
    regions.pop()


def _check_register(table: LaunchTable, tick: int, field: str, optional: bool = False) -> None:
    number = int(table.entries[tick][field])
    if number >= table.n_registers and not (optional and number == NONE):
        _bad(tick, f"{field} is r{number}; there are {table.n_registers} registers")


def _bad(tick: int, what: str) -> NoReturn:
    raise InvalidTable(f"entry {tick}: {what}")
