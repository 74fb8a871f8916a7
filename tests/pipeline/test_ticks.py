"""What a plan says of its schedule, judged by the lifetimes it was planned with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import arenite
from arenite import Tensor
from arenite.frontends.language import LanguageFile
from arenite.generate import Settings
from arenite.memory import MemoryPlan
from tests.generate.gguf_models import write_tiny


def check_lifetimes(plan: MemoryPlan) -> None:
    """A value lives from the first tick that touches it to the last, where there is no loop."""
    touched: dict[object, list[int]] = {}
    for at, tick in enumerate(plan.ticks):
        for value in (*tick.reads, *tick.writes):
            touched.setdefault(value, []).append(at)
    work = [slot for slot in plan.slots.values() if slot.region == "work"]
    assert len(work) > 3
    for slot in work:
        assert slot.lifetime == (min(touched[slot.id]), max(touched[slot.id]) + 1), slot.id
        assert slot.id in plan.ticks[slot.lifetime.start].writes


def test_ticks_are_those_of_lifetimes_and_come_back_from_the_cache() -> None:
    def network(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(3):
            x = x + (x @ w).softmax(-1) @ w
        return x

    def plan_of() -> MemoryPlan:
        program = arenite.compile(network, np.ones((5, 24), np.float32), np.eye(24, dtype="f4"))
        made = program.executables[0].plan
        program.close()
        return made

    first, again = plan_of(), plan_of()
    check_lifetimes(first)
    assert [*again.ticks] == [*first.ticks]
    assert first.ticks[-1].reads
    assert {tick.origin.partition(":")[0] for tick in first.ticks} == {Path(__file__).name}


def test_a_model_packs_at_load_and_runs_after(tmp_path: Path) -> None:
    file = LanguageFile.open(write_tiny("llama", tmp_path))
    plan = Settings(file, context=64).plan
    check_lifetimes(plan)
    at_load = [tick.at_load for tick in plan.ticks]
    assert at_load == sorted(at_load, reverse=True)
    made_at_load = {value for tick in plan.ticks if tick.at_load for value in tick.writes}
    packed = {slot.id for slot in plan.slots.values() if slot.region == "packed"}
    assert packed
    assert packed <= made_at_load
    for source in (slot for slot in plan.slots.values() if slot.region == "source"):
        assert all(t.at_load for t in plan.ticks if source.id in t.reads)


def test_a_loop_is_told_with_what_its_pointers_point_to() -> None:
    def repeated(x: Tensor) -> Tensor:
        def halved(y: Tensor) -> Tensor:
            return (y @ y).softmax(-1) / 2

        result: Tensor = arenite.while_loop(lambda y: y.max() > 0.001, halved, x)
        return result

    program = arenite.compile(repeated, np.ones((8, 8), np.float32))
    plan = program.executables[0].plan
    program.close()
    names = [tick.name for tick in plan.ticks]
    assert names.index("loop") < names.index("next")
    inside = plan.ticks[names.index("loop") + 1 : names.index("next")]
    assert any(tick.writes for tick in inside)
    [decides] = [tick for tick in plan.ticks[names.index("loop") :] if tick.name == "eval"]
    makers = [tick.name for tick in inside if {*tick.writes} & {*decides.reads}]
    assert len(makers) == 1, "the condition is read by the step that decides"
    known = {*plan.slots}
    assert all({*tick.reads, *tick.writes} <= known for tick in plan.ticks)
