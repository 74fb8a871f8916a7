"""What the driver and the team share: reading entries, calling kernels, counting down to a poll.

In: a function under construction. Out: the IR for one step in it. `stamp` is the one function that
stands by itself: a profiled driver calls it after each kernel.
"""

from __future__ import annotations

from arenite.backends.cpu.driver.ir_text import Function, Module, Operand, Value
from arenite.backends.cpu.driver.layout import Run, Stamps, Worker
from arenite.program.table import ENTRY

#: Work, by the table's estimates, after which the clock is read to see whether a poll is due.
CLOCK_EVERY_NS = 200_000
#: What an entry counts for whose estimate is 0, which is none.
UNKNOWN_NS = 50_000
#: Added to each estimate, and what an iteration counts for.
ENTRY_NS = 16


def i32(number: int) -> Value:
    return Value("i32", str(number))


def i64(number: int) -> Value:
    return Value("i64", str(number))


def suffixed(name: str, profiled: bool) -> str:
    return f"{name}_profiled" if profiled else name


def entry_field(f: Function, entry: Value, name: str) -> Value:
    """A field of an entry, widened to i64."""
    raw = f.load(f"i{8 * ENTRY[name].itemsize}", entry, _offset(name))
    return f.convert("zext", raw, "i64")


def _offset(name: str) -> int:
    assert ENTRY.fields is not None
    return int(ENTRY.fields[name][1])


def entry_at(f: Function, table: Value, tick: Value) -> Value:
    return f.at(table, f.mul(tick, ENTRY.itemsize))


def register_at(f: Function, registers: Value, index: Value) -> Value:
    return f.at(registers, f.shl(index, 3))


def tile_count(f: Function, registers: Value, entry: Value) -> Value:
    """How many tiles the launch has."""
    return f.load("i64", register_at(f, registers, entry_field(f, entry, "tiles")))


def call_kernel(
    f: Function,
    run: Value,
    entry: Value,
    tick: Value,
    tiles: tuple[Value, Value],
    worker: Value,
    profiled: bool,
) -> None:
    registers = f.load("ptr", run, Run.REGISTERS)
    kernel = f.load("ptr", entry, _offset("fn"))
    window = register_at(f, registers, entry_field(f, entry, "args"))
    if not profiled:
        f.call("void", kernel, window, *tiles, worker)
        return
    begin = f.call("i64", "clock")
    f.call("void", kernel, window, *tiles, worker)
    f.call("void", "stamp", run, worker, tick, tiles[0], begin, f.call("i64", "clock"))


def spend(f: Function, run: Value, entry: Value) -> None:
    """Worker 0: count an entry's estimate down, and poll when it has run out."""
    cost = entry_field(f, entry, "cost_ns")
    spend_ns(f, run, f.add(f.select(f.eq(cost, 0), UNKNOWN_NS, cost), ENTRY_NS))


def spend_ns(f: Function, run: Value, cost: Operand) -> None:
    left = f.sub(f.load("i64", run, Run.BUDGET_NS), cost)
    f.store(left, run, Run.BUDGET_NS)
    with f.if_(f.lt(left, 0)):
        f.call("void", "poll", run)


def stamp(module: Module) -> None:
    """Note one kernel call; what is over the capacity is counted and dropped."""
    f = module.function(
        "stamp",
        "void",
        run="ptr",
        worker="ptr",
        tick="i64",
        tile="i64",
        begin="i64",
        end="i64",
    )
    stamps = f.load("ptr", f["run"], Run.STAMPS)
    index = f.load("i64", f["worker"], Worker.INDEX)
    start = f.mul(index, f.load("i64", stamps, Stamps.STRIDE))
    region = f.at(stamps, f.add(start, Stamps.REGIONS))
    count = f.load("i64", region)
    f.store(f.add(count, 1), region)
    with f.if_(f.lt(count, f.load("i64", stamps, Stamps.CAPACITY))):
        offset = f.add(f.mul(count, Stamps.RECORD_NBYTES), Stamps.RECORDS)
        record = f.at(region, offset)
        for at, name in ((0, "tick"), (8, "tile"), (16, "begin"), (24, "end")):
            f.store(f[name], record, at)
