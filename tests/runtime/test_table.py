"""Tables: built, relocated, verified; a table that breaks a rule is refused by entry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite.backends.cpu.driver.native import BoundTable, OutcomeKind
from arenite.backends.cpu.driver.table_check import check_table
from arenite.errors import InvalidArgument, InvalidTable
from arenite.program.table import (
    ENTRY,
    INSTRUCTION,
    NONE,
    Flag,
    Ins,
    LaunchTable,
    Op,
    aligned_empty,
    relocated,
)
from tests.runtime.table_builder import TableBuilder


def example() -> LaunchTable:
    """All ops: an If with both parts, a loop, two blocks, a segment."""
    build = TableBuilder()
    condition, counter, tiles = build.register(1), build.register(), build.constant(7)
    build.eval((Ins.MIN, condition, condition, tiles))
    with build.if_(condition), build.block(parallel=True):
        first = build.launch(0, [1, 2], tiles, shared=True)
        build.launch(8, [3], tiles, shared=True, waits=[first])
    with build.else_():
        build.eval((Ins.DIV, condition, tiles, 1))
    with build.loop(counter, tiles, condition):
        build.segment(2)
        with build.block(parallel=True):
            solo = build.launch(16, [0], 1)
            other = build.launch(24, [0], 1)
            build.launch(32, [0, 0], 1, shared=True, waits=[solo, other])
    table, _ = build.finish()
    return table


def test_entries_and_instructions_have_the_sizes_the_driver_knows() -> None:
    assert (ENTRY.itemsize, INSTRUCTION.itemsize) == (64, 16)


def test_arrays_of_a_table_begin_on_a_line() -> None:
    kept = [aligned_empty(n, "<u4") for n in range(1, 40)]
    assert all(array.__array_interface__["data"][0] % 64 == 0 for array in kept)
    assert [len(array) for array in kept] == list(range(1, 40))


def test_relocation_adds_the_base_once_where_code_is_meant() -> None:
    table = example()
    moved = relocated(table, 4096, 33)
    launches = table.entries["op"] == Op.LAUNCH
    assert moved.entries["fn"][launches].tolist() == [4096, 4104, 4112, 4120, 4128]
    assert not moved.entries["fn"][~launches].any()
    assert table.entries["fn"][launches].tolist() == [0, 8, 16, 24, 32], "the original is untouched"
    with pytest.raises(InvalidTable, match="entry 4: fn 8 is not below 8"):
        relocated(table, 4096, 8)


def changed(tick: int, **fields: int) -> LaunchTable:
    table = example()
    for name, value in fields.items():
        table.entries[tick][name] = value
    return table


def test_a_right_table_passes() -> None:
    check_table(example())
    build = TableBuilder()
    check_table(build.finish()[0])
    build = TableBuilder()
    with build.block():
        build.launch(0, [1])
    check_table(build.finish()[0])


@pytest.mark.parametrize(
    ("tick", "fields", "message"),
    [
        (0, {"op": 9}, "op 9 is unknown"),
        (0, {"op": Op.LAUNCH}, "LAUNCH outside a block"),
        (0, {"a": 9}, "instructions 9..10 of 2"),
        (0, {"b": 2**32 - 1}, "instructions 0"),
        (0, {"flags": Flag.SIGNALS}, "EVAL with flags"),
        (0, {"flags": Flag.PARALLEL}, "EVAL with flags"),
        (0, {"op": Op.END}, "END before the end"),
        (0, {"op": Op.JUMP}, "not the last entry of a then part"),
        (0, {"op": Op.NEXT, "a": 3, "b": 4}, "not the last entry of a loop"),
        (1, {"a": 999}, "a is r999"),
        (1, {"flags": 1}, "IF with flags 0x1"),
        (1, {"target": 1}, "not ahead within"),
        (1, {"target": 15}, "not ahead within"),
        (1, {"target": 4}, "a block of 2 entries leaves its region"),
        (1, {"target": 5}, "not the last entry of a then part"),
        (1, {"target": 9}, "not the last entry of a then part"),
        (2, {"a": 1}, "LAUNCH outside|SHARED entries"),
        (2, {"a": 3}, "inside a block"),
        (2, {"a": 2**32 - 1}, "leaves its region"),
        (2, {"tiles": 1}, "says 1 SHARED entries and has 2"),
        (2, {"flags": Flag.SHARED}, "BLOCK with flags"),
        (3, {"args": 999}, "args is r999"),
        (3, {"tiles": NONE}, "tiles is r4294967295"),
        (3, {"sync": 99}, "sync word 99 is not there"),
        (3, {"sync": 1}, "waits for sync word 0"),
        (3, {"flags": Flag.SHARED | 32}, "LAUNCH with flags"),
        (3, {"wait_start": 0, "wait_count": 1}, "which nothing earlier in its block signals"),
        (4, {"wait_start": 9}, "waits 9..10 of 3"),
        (4, {"sync": 0}, "belongs to entry 3"),
        (5, {"target": 5}, "not ahead within"),
        (5, {"target": 15}, "not ahead within"),
        (5, {"target": 8}, "entry 7: the loop's end at 14 is not ahead within"),
        (6, {"op": Op.JUMP, "target": 7}, "not the last entry of a then part"),
        (7, {"a": 1}, "counts in r0 or r1"),
        (7, {"a": 2}, "LOOP and its NEXT at 13 name other registers"),
        (7, {"target": 7}, "not ahead within"),
        (7, {"target": 13}, "is not the NEXT"),
        (7, {"c": 999}, "c is r999"),
        (7, {"b": 1}, "name other registers"),
        (8, {"op": Op.NEXT, "a": 3, "b": 4, "c": 2}, "entry 8: NEXT is not the last entry"),
        (11, {"op": Op.SEGMENT}, "inside a block"),
        (11, {"op": Op.EVAL}, "inside a block"),
        (12, {"wait_start": 0}, "waits for sync word 0"),
        (13, {"target": 9}, "is not the NEXT"),
        (13, {"op": Op.EVAL}, "is not the NEXT"),
        (14, {"op": Op.EVAL}, "does not close with END"),
        (14, {"flags": 1}, "END with flags 0x1"),
    ],
)
def test_a_broken_rule_is_found(tick: int, fields: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidTable, match=message):
        check_table(changed(tick, **fields))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t._replace(n_registers=1), "r0 and r1"),
        (lambda t: t._replace(n_registers=5), "register"),
        (lambda t: t._replace(n_registers=2**31 + 1), "2147483649 registers"),
        (lambda t: t._replace(n_syncs=1), "sync word that is not there"),
        (lambda t: t._replace(n_syncs=int(t.waits.max())), "sync word that is not there"),
        (lambda t: t._replace(n_syncs=-1), "sync words"),
        (lambda t: t._replace(n_syncs=2**31 + 1), "2147483649 sync words"),
        (lambda t: t._replace(waits=t.waits.reshape(1, -1)), "waits: not a flat array"),
        (lambda t: t._replace(waits=t.waits.astype(np.int64)), "waits: not a flat array"),
        (lambda t: t._replace(entries=t.entries[::2]), "entries: not a flat array"),
        (lambda t: t._replace(entries=t.entries[:0]), "0 entries"),
    ],
)
def test_broken_arrays_are_found(
    change: Callable[[LaunchTable], LaunchTable], message: str
) -> None:
    with pytest.raises(InvalidTable, match=message):
        check_table(change(example()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"op": 10}, "instruction 1 is unknown"),
        ({"dst": 99}, "not there"),
        ({"a": 99}, "not there"),
        ({"b": 2**32 - 1}, "not there"),
        ({"dst": 1}, "writes r0 or r1"),
    ],
)
def test_broken_instructions_are_found(fields: dict[str, int], message: str) -> None:
    table = example()
    for name, value in fields.items():
        table.instructions[1][name] = value
    with pytest.raises(InvalidTable, match=message):
        check_table(table)


@pytest.mark.parametrize(
    ("tick", "fields"),
    [(1, "a"), (3, "args"), (3, "tiles"), (7, "abc")],
)
def test_the_last_register_is_there_and_the_one_behind_it_is_not(tick: int, fields: str) -> None:
    n = example().n_registers
    for field in fields if tick == 7 else [fields]:
        last, behind = example(), example()
        for table, register in ((last, n - 1), (behind, n)):
            table.entries[tick][field] = register
            if tick == 7:
                table.entries[13][field] = register
        check_table(last)
        with pytest.raises(InvalidTable, match=f"{field} is r{n}"):
            check_table(behind)


@pytest.mark.parametrize("field", ["dst", "a", "b"])
def test_the_last_register_of_an_instruction_is_there_too(field: str) -> None:
    table = example()
    table.instructions[1][field] = table.n_registers - 1
    check_table(table)
    table.instructions[1][field] = table.n_registers
    with pytest.raises(InvalidTable, match="instruction 1 names a register that is not there"):
        check_table(table)


def test_what_reaches_just_too_far_is_found() -> None:
    table = example()
    n = len(table.entries)
    for tick, fields, message in (
        (0, {"a": len(table.instructions)}, "instructions 2..3 of 2"),
        (4, {"wait_start": len(table.waits)}, "waits 3..4 of 3"),
        (4, {"sync": table.n_syncs}, "sync word 5 is not there"),
        (5, {"target": n}, "not ahead within"),
    ):
        with pytest.raises(InvalidTable, match=message):
            check_table(changed(tick, **fields))
    for last in (Op.IF, Op.BLOCK):
        build = TableBuilder()
        with build.if_(build.register()) if last is Op.IF else build.block():
            pass
        table, _ = build.finish()
        check_table(table)
        table.entries[0]["target" if last is Op.IF else "a"] += 1
        with pytest.raises(InvalidTable, match=r"within the region|leaves its region"):
            check_table(table)


def test_a_region_ends_no_later_than_the_one_around_it() -> None:
    build = TableBuilder()
    condition, counter, trips = build.register(1), build.register(), build.constant(2)
    with build.loop(counter, trips):
        with build.if_(condition):
            build.eval((Ins.ADD, condition, condition, 1))
        build.segment(0)
    build.eval((Ins.MOV, condition, counter))
    table, _ = build.finish()
    check_table(table)
    table.entries[1]["target"] = 5
    with pytest.raises(InvalidTable, match="entry 4: NEXT is not the last entry of a loop"):
        check_table(table)
    table.entries[1]["target"] = 6
    with pytest.raises(InvalidTable, match="entry 1: the else part at 6 is not ahead within"):
        check_table(table)
    build = TableBuilder()
    with build.if_(condition), build.loop(counter, trips):
        build.eval((Ins.ADD, condition, condition, 1))
    table, _ = build.finish()
    table = table._replace(n_registers=8)
    check_table(table)
    table.entries[0]["target"] = 3
    with pytest.raises(InvalidTable, match="entry 1: the loop's end at 4 is not ahead within"):
        check_table(table)
    build = TableBuilder()
    with build.loop(counter, trips):
        with build.if_(condition):
            build.eval((Ins.ADD, condition, condition, 1))
        with build.else_():
            build.eval((Ins.SUB, condition, condition, 1))
    build.eval((Ins.MOV, condition, counter))
    table, _ = build.finish()
    table = table._replace(n_registers=8)
    for target in (4, 5):  # no else part at all, and the one that is there
        table.entries[3]["target"] = target
        check_table(table)
    table.entries[3]["target"] = 7
    with pytest.raises(InvalidTable, match="entry 3: jumps to 7, which is not ahead within"):
        check_table(table)


def test_what_a_store_has_as_its_target_is_no_register() -> None:
    build = TableBuilder()
    value = build.register(1)
    build.eval((Ins.STORE64, 0, value, value))
    check_table(build.finish()[0])


def harmless() -> tuple[LaunchTable, NDArray[np.int64]]:
    """A table without launches, so that whatever passes the check may be run."""
    build = TableBuilder()
    condition, counter, trips = build.register(1), build.register(), build.register(3)
    with build.if_(condition):
        build.eval((Ins.ADD, condition, condition, 1))
    with build.else_(), build.block(parallel=True):
        pass
    with build.loop(counter, trips):
        build.eval((Ins.MUL, condition, trips, 1), (Ins.MIN, condition, condition, 1))
        with build.if_(condition):
            build.segment(0)
    return build.finish()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_mutated_table_that_passes_can_be_walked(data: st.DataObject) -> None:
    table, registers = harmless()
    for _ in range(data.draw(st.integers(1, 4))):
        tick = data.draw(st.integers(0, len(table.entries) - 1))
        names = [
            "op",
            "flags",
            "wait_count",
            "wait_start",
            "sync",
            "a",
            "b",
            "c",
            "target",
            "tiles",
        ]
        field = data.draw(st.sampled_from(names))
        limit = int(np.iinfo(ENTRY[field]).max)
        value = data.draw(st.one_of(st.integers(0, 12), st.integers(0, limit)))
        table.entries[tick][field] = min(value, limit)
    try:
        check_table(table)
    except InvalidTable:
        return
    if (table.entries["op"] == Op.LAUNCH).any():
        return
    loops = table.entries["op"] == Op.LOOP
    writes_trips = np.isin(table.instructions["dst"], table.entries["b"][loops])
    if writes_trips.any() or np.isin(table.entries["a"][loops], table.entries["b"][loops]).any():
        return  # it may count for ever, which no rule forbids
    bound = BoundTable(table, registers)
    for threads in (1, 2):
        for _ in range(50):
            if bound.run(threads).kind is not OutcomeKind.SEGMENT:
                break
        bound.reset()


def test_a_builder_refuses_what_makes_no_sense() -> None:
    build = TableBuilder()
    with pytest.raises(InvalidArgument, match="stands in a block"):
        build.launch(0, [])
    with pytest.raises(InvalidArgument, match="an instruction is"):
        build.eval(())
    with pytest.raises(InvalidArgument, match="an else without its if"), build.else_():
        pass
    build = TableBuilder()
    with build.block():
        first = build.launch(0, [])
        with pytest.raises(InvalidArgument, match="a block inside the block"), build.block():
            pass
        with pytest.raises(InvalidArgument, match="SEGMENT inside the block"):
            build.segment(0)
    with build.block(), pytest.raises(InvalidArgument, match="not earlier in its block"):
        build.launch(0, [], waits=[first])


def test_an_else_belongs_to_the_if_it_follows() -> None:
    build = TableBuilder()
    outer, inner, seen = build.register(), build.register(), build.register()
    with build.if_(outer), build.if_(inner):
        build.eval((Ins.MOV, seen, build.constant(11)))
    with build.else_():
        build.eval((Ins.MOV, seen, build.constant(22)))
    table, registers = build.finish()
    check_table(table)
    bound = BoundTable(table, registers)
    for values, expected in (((1, 1), 11), ((1, 0), 0), ((0, 1), 22), ((0, 0), 22)):
        registers[seen], registers[outer], registers[inner] = 0, *values
        assert bound.run().kind is OutcomeKind.END
        assert registers[seen] == expected
