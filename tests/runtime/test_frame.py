"""A frame from a file: a number that leads out of what there is is refused, up to the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite import Var, dtype, memory
from arenite.memory import Lifetime, Value
from arenite.memory.flat import Arrays
from arenite.program.compiled import Compiled
from arenite.program.frame import KINDS, Frame, prepared
from arenite.program.launch import Launch
from arenite.program.options import USUAL
from arenite.program.places import NOWHERE
from arenite.program.skeleton import Skeleton
from arenite.program.steps import Cell, Step, StepKind
from arenite.program.table import ENTRY, INSTRUCTION, Ins, Op
from arenite.program.value_spec import ValueSpec

N = Var("n", 1, 16)
ALWAYS = Lifetime(0, 9)
PLAN = memory.plan(
    [
        Value("w", 64, ALWAYS, region="source"),
        Value("x", 64, ALWAYS, region="io"),
        Value("y", 64, ALWAYS, region="io"),
        Value("p", 64, ALWAYS, region="packed"),
        Value("t", 64, Lifetime(0, 2)),
        Value("u", 64, Lifetime(1, 3)),
    ]
)


def launch(name: str, *arrays: int) -> Launch:
    return Launch(name, 0, arrays, arrays[:-1], arrays[-1:], (N,), N, 1_000_000)


def value(kind: str, name: str, source: int = 0) -> ValueSpec:
    targets = (4, 5) if kind == "pointer" else ()
    return ValueSpec(kind, name, (N,), dtype.float32, 4 * N, source, targets)


PROGRAM = Compiled(
    options=USUAL,
    passes=(),
    image=bytes(16),
    load_kernels=(),
    load=(launch("pack", 0, 3),),
    kernels=(),
    launches=(launch("one", 1, 3, 4), launch("two", 4, 5), launch("three", 6, 2)),
    values=(
        value("constant", "w"),
        value("input", "x"),
        value("output", "y"),
        value("packed", "p"),
        value("work", "t"),
        value("work", "u"),
        value("pointer", "q"),
    ),
    outputs=(2,),
    constants=(),
    plan=PLAN,
    steps=(
        *(Step(StepKind.LAUNCH, k) for k in range(2)),
        Step(StepKind.EVAL, instructions=((Ins.MOV, 0, 1, 1),)),
        Step(StepKind.LAUNCH, 2),
    ),
    cells=(Cell(), Cell(address=4)),
    found={},
    late={},
    hosts=(),
)


@pytest.fixture
def saved() -> tuple[dict[str, Any], Arrays]:
    frame = prepared(PROGRAM)
    return frame.data(), {name: array.copy() for name, array in frame.arrays().items()}


Saved = tuple[dict[str, Any], Arrays]


def test_a_frame_comes_back(saved: Saved) -> None:
    frame = Frame.saved(*saved, PLAN)
    assert frame.is_same(Frame.of(PROGRAM))
    assert frame.data() == saved[0]
    assert all((frame.arrays()[name] == array).all() for name, array in saved[1].items())
    assert len(saved[1]["waits.0.syncs"]) > 0
    assert saved[1]["run.arena_slots"].size


@pytest.mark.parametrize(
    ("name", "first", "behind", "message"),
    [
        ("kinds", 0, len(KINDS), "a kind is not below"),
        ("rows", NOWHERE, 6, "a row is not below"),
        ("nbytes_of", NOWHERE, 1, "a size is not below"),
        ("moving", NOWHERE, 7, "a moving value is not below"),
        ("run.arena_values", 0, 7, "a value is not below"),
        ("load.arena_values", 0, 7, "a value of the load step is not below"),
        ("load_order", 0, 1, "a launch of the load step is not below"),
        ("given_back", 0, 7, "a constant is not below"),
        ("run.size_sources", 0, 1, "a size is not below"),
        ("run.blocks", 0, 4, "a launch of a block is not below"),
        *((f"run.{name}", 0, None, f"a {what} is not below") for name, what in
          [("windows", "window"), ("arena_slots", "register of an address"),
           ("size_slots", "register of a size")]),
    ],
)  # fmt: skip
def test_a_number_that_leads_out_is_refused(
    saved: Saved, name: str, first: int, behind: int | None, message: str
) -> None:
    data, arrays = saved
    if behind is None:
        behind = data["run"]["n_registers"]
    wrong = [behind] if arrays[name].dtype.kind == "u" else [behind, first - 1]
    for number in wrong:
        changed = arrays[name].copy()
        changed[-1] = number
        with pytest.raises(ValueError, match=message):
            Frame.saved(data, arrays | {name: changed}, PLAN)


@pytest.mark.parametrize("name", ["sources", "rows", "nbytes_of"])
def test_columns_of_different_lengths_are_refused(saved: Saved, name: str) -> None:
    data, arrays = saved
    with pytest.raises(ValueError, match="differ in length"):
        Frame.saved(data, arrays | {name: arrays[name][:-1]}, PLAN)


def test_places_and_kinds_belong_together(saved: Saved) -> None:
    data, arrays = saved
    for row, number in ((6, 5), (5, NOWHERE)):
        changed = arrays["rows"].copy()
        changed[row] = number
        with pytest.raises(ValueError, match="has no place, or a pointer has one"):
            Frame.saved(data, arrays | {"rows": changed}, PLAN)
    changed = arrays["rows"].copy()
    changed[[1, 4]] = changed[[4, 1]]
    with pytest.raises(ValueError, match="another region than its kind"):
        Frame.saved(data, arrays | {"rows": changed}, PLAN)
    kinds = arrays["kinds"].copy()
    kinds[0] = KINDS.index("input")
    with pytest.raises(ValueError, match="another region than its kind"):
        Frame.saved(data, arrays | {"kinds": kinds}, PLAN)
    changed = arrays["run.arena_values"].copy()
    changed[0] = 1
    with pytest.raises(ValueError, match="an address in the arena of a value that is not there"):
        Frame.saved(data, arrays | {"run.arena_values": changed}, PLAN)


def test_no_value_lies_behind_the_arena(saved: Saved) -> None:
    last = max((PLAN.slots[name] for name in "tup"), key=lambda slot: slot.end)
    slots = {**PLAN.slots, last.id: last._replace(capacity=last.capacity + 1)}
    with pytest.raises(ValueError, match="behind the end of the arena"):
        Frame.saved(*saved, PLAN._replace(slots=slots))


@pytest.mark.parametrize(
    ("array", "change", "message"),
    [
        ("counts", lambda a: a[:-1], "waits of other launches"),
        ("signals", lambda a: a[:-1], "waits of other launches"),
        ("syncs", lambda a: a[:-1], "waits of other launches"),
        ("counts", lambda a: a * 2, "waits of other launches"),
        ("syncs", lambda a: a + 1000, "sync word there is not"),
        ("overlaps", lambda a: np.append(a, a[:1]), "waits for other values"),
    ],
)
def test_waits_that_do_not_fit_are_refused(
    saved: Saved, array: str, change: Any, message: str
) -> None:
    data, arrays = saved
    name = f"waits.0.{array}"
    with pytest.raises(ValueError, match=message):
        Frame.saved(data, arrays | {name: change(arrays[name])}, PLAN)


def test_the_last_sync_word_is_there_and_the_one_behind_it_is_not(saved: Saved) -> None:
    data, arrays = saved
    syncs = arrays["waits.0.syncs"].copy()
    syncs[0] = data["run"]["n_syncs"] - 1
    Frame.saved(data, arrays | {"waits.0.syncs": syncs}, PLAN)
    syncs[0] += 1
    with pytest.raises(ValueError, match="sync word there is not"):
        Frame.saved(data, arrays | {"waits.0.syncs": syncs}, PLAN)


def skeleton() -> Skeleton:
    made = Frame.of(PROGRAM).skeleton
    return made._replace(entries=made.entries.copy(), instructions=made.instructions.copy())


def changed_entry(op: Op, **fields: int) -> Skeleton:
    made = skeleton()
    [tick, *_] = np.flatnonzero(made.entries["op"] == op).tolist()
    for name, number in fields.items():
        made.entries[tick][name] = number
    return made


def test_what_the_table_names_is_there() -> None:
    right = skeleton()
    right.check()
    n, n_code = right.n_registers, len(right.instructions)
    for wrong, message in (
        (right._replace(entries=right.entries[:0]), "without an end"),
        (right._replace(entries=right.entries[:-1]), "without an end"),
        (right._replace(n_registers=2**31), "without registers"),
        (right._replace(n_registers=1), "without registers"),
        (changed_entry(Op.LAUNCH, tiles=n), "register of tiles is not below"),
        (changed_entry(Op.LAUNCH, sync=right.n_syncs), "sync word is not below"),
        (changed_entry(Op.EVAL, target=len(right.entries)), "jump is not below"),
        (changed_entry(Op.EVAL, a=n_code, b=1), "instruction is not below"),
        (changed_entry(Op.EVAL, a=2**32 - 1, b=1), "instruction is not below"),
        (right._replace(ticks=right.ticks[:-1]), r"not those of the table|of a block"),
        (right._replace(ticks=right.ticks - 1), "not those of the table"),
        (right._replace(is_shared=right.is_shared[:-1]), "not those of the table"),
        (right._replace(arena_slots=right.arena_slots[:-1]), "not every address has a value"),
        (right._replace(n_bind=n_code + 1), "not every address has a value"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong.check()
    changed_entry(Op.LAUNCH, tiles=n - 1, sync=right.n_syncs - 1).check()
    changed_entry(Op.EVAL, a=n_code - 1, b=1, target=len(right.entries) - 1).check()
    right._replace(n_bind=n_code).check()
    for field in ("dst", "a", "b"):
        wrong = skeleton()
        wrong.instructions[-1][field] = n - 1
        wrong.check()
        wrong.instructions[-1][field] = n
        with pytest.raises(ValueError, match=f"operand {field} is not below"):
            wrong.check()


def test_entries_and_instructions_are_saved_as_bytes(saved: Saved) -> None:
    assert saved[1]["run.entries"].dtype == saved[1]["run.instructions"].dtype == np.uint8
    assert len(saved[1]["run.entries"]) % ENTRY.itemsize == 0
    assert len(saved[1]["run.instructions"]) % INSTRUCTION.itemsize == 0
