"""A saved program whose numbers name what is not there is damage: rule by rule, up to the edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from arenite import dtype, memory
from arenite.errors import DamagedCache
from arenite.memory import Lifetime, Value
from arenite.program.compiled import Compiled
from arenite.program.launch import Launch
from arenite.program.options import USUAL
from arenite.program.program_check import check_objects
from arenite.program.program_json import Objects
from arenite.program.steps import ZERO, Cell, HostSpec, Step, StepKind
from arenite.program.value_spec import ValueSpec

ALWAYS = Lifetime(0, 9)
PLAN = memory.plan(
    [
        Value("w", 64, ALWAYS, region="mapped"),
        Value("once", 64, ALWAYS, region="source"),
        Value("x", 64, ALWAYS, region="io"),
        Value("y", 64, ALWAYS, region="io"),
        Value("t", 64, ALWAYS),
    ]
)


def value(kind: str, name: str, source: int = 0, targets: tuple[int, ...] = ()) -> ValueSpec:
    return ValueSpec(kind, name, (16,), dtype.float32, 64, source, targets)


def launch(name: str, **changes: Any) -> Launch:
    return Launch(name, 8, (2, 5), (2,), (5,), (), 1, 0)._replace(**changes)


FOUND = Objects(
    load=(launch("pack", arrays=(1, 4), reads=(1,), writes=(4,)),),
    launches=(
        launch("first", arrays=(0, 5), reads=(0,)),
        launch("second", entry=0),
        launch("third", entry=15),
        launch("fourth"),
    ),
    values=(
        value("constant", "w"),
        value("constant", "once", 1),
        value("input", "x"),
        value("output", "y"),
        value("work", "t"),
        value("pointer", "p", 0, (4, 0)),
    ),
    steps=(
        Step(StepKind.EVAL, instructions=((0, 0, 2, ZERO),)),
        Step(StepKind.IF, 0),
        Step(StepKind.LAUNCH, 0),
        Step(StepKind.ELSE),
        Step(StepKind.HOST, 0),
        Step(StepKind.END),
        Step(StepKind.IF, 2),
        Step(StepKind.LAUNCH, 1),
        Step(StepKind.END),
        Step(StepKind.LOOP, 0, 2),
        Step(StepKind.LAUNCH, 2),
        Step(StepKind.NEXT),
        Step(StepKind.LAUNCH, 3),
        Step(StepKind.HOST, 1),
    ),
    cells=(Cell(), Cell(address=4), Cell(size=3)),
    late={3: 2},
)
PROGRAM = Compiled(
    USUAL, (), bytes(16), (), FOUND.load, (), FOUND.launches,
    FOUND.values, (3,), (), PLAN, FOUND.steps,
    FOUND.cells, {"n": 2}, FOUND.late,
    (HostSpec(0, (2, 0), 3, (1, 0, 2)), HostSpec(0, (), 3, (2,))),
)  # fmt: skip


def with_(part: str, k: int, **changes: Any) -> Objects:
    some = list(getattr(FOUND, part))
    some[k] = some[k]._replace(**changes)
    made: dict[str, Any] = {part: tuple(some)}
    return replace(FOUND, **made)


def with_kind(k: int, kind: StepKind) -> Objects:
    return with_("steps", k, kind=kind)


def test_what_names_only_what_is_there_passes() -> None:
    check_objects(FOUND, PROGRAM)


@pytest.mark.parametrize("part", ["load", "launches", "values", "steps", "cells"])
def test_a_part_that_is_too_short_is_found(part: str) -> None:
    short: dict[str, Any] = {part: getattr(FOUND, part)[:-1]}
    with pytest.raises(DamagedCache, match="not those of the frame"):
        check_objects(replace(FOUND, **short), PROGRAM)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (with_("load", 0, entry=16), "pack begins behind the code"),
        (with_("launches", 2, entry=16), "third begins behind the code"),
        (with_("launches", 2, entry=-1), "third begins behind the code"),
        (with_("launches", 1, arrays=(2, 6)), "second names a value there is not"),
        (with_("launches", 1, reads=(-1, 2)), "second names a value there is not"),
        (with_("launches", 1, writes=(5, 6)), "second names a value there is not"),
        (with_("launches", 1, parts=((0, 0, 8),)), "second touches a part of a state there is not"),
        (with_("launches", 1, parts=((2, 0, 8),)), "second touches a part of a state there is not"),
        (with_("values", 5, source=3), "'p' points nowhere"),
        (with_("values", 5, source=-1), "'p' points nowhere"),
        (with_("values", 5, targets=()), "'p' points nowhere"),
        (with_("values", 5, targets=(4, 6)), "'p' points to a value there is not"),
        (with_("values", 5, targets=(-1, 4)), "'p' points to a value there is not"),
        (with_("values", 4, name="other"), "'other' is not in the plan"),
        (with_("values", 4, kind="state"), "'t' is no state of the plan"),
        (with_("values", 4, kind="heap"), "'t' is no heap of the plan"),
        (with_("values", 1, kind="input"), "'once' is no input of the plan"),
        (with_("values", 2, kind="constant"), "'x' is no constant of the plan"),
        (with_kind(1, StepKind.EVAL), "a step else closes nothing"),
        (with_kind(5, StepKind.NEXT), "a step next closes nothing"),
        (with_kind(8, StepKind.ELSE), "a step else is not closed|a step if is not closed"),
        (with_kind(8, StepKind.EVAL), "a step if is not closed|closes nothing"),
        (with_kind(11, StepKind.END), "a step end closes nothing"),
        (with_kind(11, StepKind.EVAL), "a step loop is not closed"),
        (with_kind(9, StepKind.EVAL), "a step next closes nothing"),
        (with_("steps", 2, a=1), "not those of the launches"),
        (with_kind(2, StepKind.EVAL), "not those of the launches"),
        (with_("steps", 4, a=1), "not those of the calls of the host"),
        (with_kind(4, StepKind.EVAL), "not those of the calls of the host"),
        (with_("steps", 0, instructions=((0, 3, 2, ZERO),)), "names a cell there is not"),
        (with_("steps", 0, instructions=((0, 0, 2, -2),)), "names a cell there is not"),
        (with_("steps", 1, a=3), "names a cell there is not"),
        (with_("steps", 9, a=3), "names a cell there is not"),
        (with_("steps", 9, b=3), "names a cell there is not"),
        (with_("steps", 9, c=3), "names a cell there is not"),
        (with_("cells", 1, address=6), "names a value there is not"),
        (with_("cells", 1, address=-1), "names a value there is not"),
        (replace(FOUND, late={3: 3}), "names a cell there is not"),
    ],
)
def test_a_number_that_names_nothing_is_found(found: Objects, message: str) -> None:
    with pytest.raises(DamagedCache, match=message):
        check_objects(found, PROGRAM)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda host: host._replace(reads=(2, 6)), "names a value there is not"),
        (lambda host: host._replace(write=6), "names a value there is not"),
        (lambda host: host._replace(addresses=(1, 0)), "names a value there is not"),
        (lambda host: host._replace(addresses=(1, 0, 3)), "names a cell there is not"),
    ],
)
def test_a_call_of_the_host_names_what_is_there(
    change: Callable[[HostSpec], HostSpec], message: str
) -> None:
    with pytest.raises(DamagedCache, match=message):
        check_objects(FOUND, PROGRAM._replace(hosts=(change(PROGRAM.hosts[0]), PROGRAM.hosts[1])))


def test_a_size_that_is_found_has_a_cell() -> None:
    with pytest.raises(DamagedCache, match="names a cell there is not"):
        check_objects(FOUND, PROGRAM._replace(found={"n": 3}))


def test_no_value_lies_behind_the_arena() -> None:
    slot = PLAN.slots["t"]
    moved = PLAN._replace(slots={**PLAN.slots, "t": slot._replace(offset=slot.offset + 64)})
    with pytest.raises(DamagedCache, match="'t' lies behind the end of the arena"):
        check_objects(FOUND, PROGRAM._replace(plan=moved))
