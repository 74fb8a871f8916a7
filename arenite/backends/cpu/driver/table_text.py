"""A launch table as a person reads it.

In: a table, and the names of its kernels where they are known. Out: one line an entry, with the
instructions of an EVAL under it:

    0  EVAL                                       r10 = load64(r8 + r0); r10 = eq(r10, r9)
    1  IF r10 else 6
    2  BLOCK 2 PARALLEL
    3    LAUNCH stft r16.. tiles r2 SHARED -> s0
    4    LAUNCH enc16 r20.. tiles r2 SHARED s0 -> s1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arenite.program.table import NONE, Flag, Ins, LaunchTable, Op, Reason, RuntimeKernel


def table_text(table: LaunchTable, kernel_names: Sequence[str] = ()) -> str:
    """The whole table."""
    lines = []
    block_end = -1
    depth = 0
    width = len(str(len(table.entries)))
    targets = {int(e["target"]) for e in table.entries if e["op"] in (Op.IF, Op.JUMP, Op.LOOP)}
    for tick, entry in enumerate(table.entries):
        op = int(entry["op"])
        if op == Op.NEXT:
            depth = max(depth - 1, 0)
        inside = "  " if tick <= block_end else ""
        mark = ">" if tick in targets else " "
        text = entry_text(table, tick, kernel_names)
        lines.append(f"{tick:>{width}}{mark} {'  ' * depth}{inside}{text}")
        if op == Op.BLOCK:
            block_end = tick + int(entry["a"])
        if op == Op.LOOP:
            depth += 1
    return "\n".join(lines)


def entry_text(table: LaunchTable, tick: int, kernel_names: Sequence[str] = ()) -> str:
    """One entry."""
    entry = table.entries[tick]
    op = int(entry["op"])
    if op == Op.EVAL:
        return f"EVAL {_program(table, entry)}{_sync(table, entry)}"
    if op == Op.LAUNCH:
        guard = "" if entry["guard"] == NONE else f" if r{entry['guard']}"
        shared = " SHARED" if entry["flags"] & Flag.SHARED else ""
        what = f"LAUNCH {_kernel(entry, kernel_names)} r{entry['args']}.. tiles r{entry['tiles']}"
        return f"{what}{shared}{guard}{_sync(table, entry)}"
    if op == Op.BLOCK:
        parallel = " PARALLEL" if entry["flags"] & Flag.PARALLEL else ""
        return f"BLOCK {entry['a']}{parallel}"
    if op == Op.IF:
        return f"IF r{entry['a']} else {entry['target']}"
    if op == Op.JUMP:
        return f"JUMP {entry['target']}"
    if op in (Op.LOOP, Op.NEXT):
        condition = "" if entry["c"] == NONE else f" and r{entry['c']}"
        way = f"else {entry['target']}" if op == Op.LOOP else f"to {entry['target']}"
        return f"{Op(op).name} r{entry['a']} < r{entry['b']}{condition}, {way}"
    if op == Op.SEGMENT:
        known = {int(reason) for reason in Reason}
        reason = Reason(int(entry["b"])).name if int(entry["b"]) in known else str(entry["b"])
        when = "" if entry["c"] == NONE else f" if r{entry['c']}"
        return f"SEGMENT {entry['a']} {reason}{when}"
    return "END" if op == Op.END else f"unknown op {op}"


def instruction_text(op: int, dst: int, a: int, b: int) -> str:
    """One instruction: `r21 = ceildiv(r20, r7)`."""
    if op not in {int(ins) for ins in Ins}:
        return f"unknown instruction {op}"
    ins = Ins(op)
    name = ins.name.lower()
    if ins is Ins.MOV:
        return f"r{dst} = r{a}"
    if ins is Ins.NOT:
        return f"r{dst} = not(r{a})"
    if ins is Ins.SELECT:
        return f"r{dst} = select(r{a}, r{b}, r{dst})"
    if ins in (Ins.LOAD8, Ins.LOAD32, Ins.LOAD64):
        return f"r{dst} = {name}(r{a} + r{b})"
    if ins is Ins.STORE64:
        return f"store64(r{a}) = r{b}"
    if ins is Ins.CHECK:
        return f"check(r{a}) else error r{b} at site {dst}"
    return f"r{dst} = {name}(r{a}, r{b})"


def _program(table: LaunchTable, entry: Any) -> str:
    first, count = int(entry["a"]), int(entry["b"])
    chosen = table.instructions[first : first + count]
    return "; ".join(instruction_text(*map(int, instruction)) for instruction in chosen)


def _kernel(entry: Any, names: Sequence[str]) -> str:
    fn = int(entry["fn"])
    if entry["flags"] & Flag.FN_REGISTER:
        return f"(r{fn})"
    if entry["flags"] & Flag.FN_RUNTIME:
        known = {int(kernel) for kernel in RuntimeKernel}
        return RuntimeKernel(fn).name.lower() if fn in known else f"runtime kernel {fn}"
    kernel = int(entry["kernel"])
    return names[kernel] if kernel < len(names) else f"{fn:#x}"


def _sync(table: LaunchTable, entry: Any) -> str:
    start, count = int(entry["wait_start"]), int(entry["wait_count"])
    waits = " ".join(f"s{sync}" for sync in table.waits[start : start + count].tolist())
    signals = entry["flags"] & (Flag.SHARED | Flag.SIGNALS)
    own = f" -> s{entry['sync']}" if signals and entry["sync"] != NONE else ""
    return (f" after {waits}" if waits else "") + own
