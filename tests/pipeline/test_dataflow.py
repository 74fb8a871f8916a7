"""The verifier finds tables that are broken on purpose: waits, slots, pointers, conditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arenite
from arenite import Tensor, spec
from arenite.backends.cpu.execution.dataflow import _Memory
from arenite.backends.cpu.execution.meaning import Writer
from arenite.errors import InvalidPlan, InvalidTable, RaceFound
from arenite.program.assemble import Assembly
from arenite.program.table import Ins, LaunchTable, Op
from arenite.runtime.executable import Executable
from tests.pipeline.loaded import loaded


def recurrent(start: Tensor, xs: Tensor) -> Any:
    def step(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        new = (state.sort() + x).cumsum() * 0.5
        return arenite.cond(new.sum() > 0, lambda: new.sort() + state[::-1], lambda: -new), new

    last, stacked = arenite.scan(step, start.exp(), xs)
    return last.sort(), stacked.sum(0)


@pytest.fixture
def program() -> Iterator[Executable]:
    types = spec((64,), "float32"), spec((7, 64), "float32")
    with arenite.compile(recurrent, *types, threads=2) as compiled:
        compiled(np.ones(64, np.float32), np.ones((7, 64), np.float32))
        compiled.executable.verify()
        yield compiled.executables[0]


def bound_table(program: Executable) -> LaunchTable:
    [binding] = loaded(program).binder.bound.values()
    return binding.table.table


def instructions(program: Executable, op: Ins) -> list[int]:
    """Those that run between iterations, not the ones that bind."""
    code = bound_table(program).instructions
    return [k for k in range(loaded(program).assembly.n_bind, len(code)) if code[k]["op"] == op]


def test_a_pointer_that_does_not_change_places(program: Executable) -> None:
    [swap] = instructions(program, Ins.SUB)
    code = bound_table(program).instructions
    code[swap]["op"], code[swap]["a"] = Ins.MOV, code[swap]["b"]
    with pytest.raises(InvalidPlan, match="writes over bytes of its input"):
        program.verify()


def test_a_pointer_that_begins_elsewhere(program: Executable) -> None:
    code = bound_table(program).instructions
    first, second = instructions(program, Ins.MOV)[:2]
    code[first]["a"], code[second]["a"] = code[second]["a"], code[first]["a"]
    with pytest.raises(InvalidPlan, match="as nobody left it"):
        program.verify()


def test_rows_that_are_written_to_one_place(program: Executable) -> None:
    code = bound_table(program).instructions
    for k in instructions(program, Ins.MUL):
        code[k]["a"] = 0
    with pytest.raises(InvalidPlan, match="row 0 would see"):
        program.verify()


def test_a_condition_from_other_bytes(program: Executable) -> None:
    code = bound_table(program).instructions
    [load] = instructions(program, Ins.LOAD8)
    add = instructions(program, Ins.ADD)[0]
    code[load]["a"] = code[add]["a"]
    with pytest.raises(InvalidPlan, match="the condition of a branch"):
        program.verify()


def test_a_slot_that_lies_over_another(program: Executable) -> None:
    [binding] = loaded(program).binder.bound.values()
    names = {value.name: number for number, value in enumerate(program.compiled.values)}
    carried = next(n for name, n in names.items() if name.endswith(".p"))
    for name, number in names.items():
        if name.startswith("sort") and "scratch" not in name and number != carried:
            for column in (binding.places.offset, binding.places.nbytes):
                column[number] = column[carried]
    with pytest.raises((InvalidPlan, RaceFound)):
        program.verify()


def test_launches_in_another_order(program: Executable) -> None:
    entries = bound_table(program).entries
    launches = np.flatnonzero(entries["op"] == Op.LAUNCH)
    first, second = (int(k) for k in launches[1:3])
    entries[[first, second]] = entries[[second, first]]
    with pytest.raises((InvalidPlan, RaceFound, InvalidTable)):
        program.verify()


def test_a_jump_out_of_a_region(program: Executable) -> None:
    entries = bound_table(program).entries
    entries["target"][entries["op"] == Op.NEXT] = 1
    with pytest.raises(InvalidTable, match="NEXT"):
        program.verify()


@pytest.mark.usefixtures("shared")
def test_a_wait_that_is_missing() -> None:
    def chain(i: Tensor, x: Tensor) -> Tensor:
        return (x @ x.T).sort() @ x

    types = (spec((40, 40), "float32"),)
    with arenite.compile(lambda x: arenite.fori_loop(3, chain, x), *types, threads=2) as compiled:
        [executable] = compiled.executables
        compiled(np.ones((40, 40), np.float32))
        executable.verify()
        [binding] = loaded(executable).binder.bound.values()
        entries = binding.table.table.entries
        waiting = np.flatnonzero(entries["wait_count"])
        assert len(waiting)
        entries["wait_count"][waiting[-1]] = 0
        with pytest.raises(RaceFound, match="are not ordered"):
            executable.verify()


def test_an_assembly_of_launches_alone_has_one_block() -> None:
    with arenite.compile(lambda x: x.sort().cumsum(), spec((9,), "float32")) as compiled:
        assembly: Assembly = loaded(compiled.executables[0]).assembly
        assert assembly.skeleton.is_straight
        assert assembly.blocks == [(0, 2)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30))
@settings(max_examples=200, deadline=None)
def test_memory_remembers_the_last_writer_of_every_byte(spans: list[tuple[int, int]]) -> None:
    memory = _Memory()
    brute: list[Writer | None] = [None] * 40
    for writer, (start, end) in enumerate(spans, 1):
        memory.write(start, end, writer)
        brute[start : max(start, end)] = [writer] * max(0, end - start)
    for at, last in enumerate(brute):
        assert memory.stranger(at, at + 1, last) == (at + 1, last)
    for start in range(0, 36, 5):
        expected = next((k for k in range(start, 36) if brute[k] != brute[start]), 36)
        assert memory.stranger(start, 36, brute[start])[0] == expected
