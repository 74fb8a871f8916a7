"""The page of a plan, in a browser: what it says is what the plan says."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np

import arenite
from arenite import memory
from arenite.device.allocator import readable_nbytes
from arenite.errors import printable
from arenite.memory import Lifetime, MemoryPlan, Slot, Tick, Value
from tests.show.browser import failures, needs_chromium
from tests.show.test_page import NAMES

ROWS, WIDTH = 24, 32


def network() -> MemoryPlan:
    """A plan with a schedule: three layers of a network."""
    table = arenite.from_numpy(np.ones((100, WIDTH), np.float32)).named("embedding")

    def layers(params: list[arenite.Tensor], tokens: arenite.Tensor) -> arenite.Tensor:
        x = table[tokens]
        for w in params:
            x = x + (x @ w).softmax(-1) @ w
        return x

    params = [np.ones((WIDTH, WIDTH), np.float32)] * 3
    program = arenite.compile(layers, params, arenite.spec((ROWS,), "int64"))
    plan = program.executables[0].plan
    program.close()
    assert isinstance(plan, MemoryPlan)
    return plan


def used(slots: list[Slot]) -> int:
    """Bytes that at least one slot has, each byte looked at."""
    return len({byte for slot in slots for byte in range(slot.offset, slot.end)})


@needs_chromium
def test_the_page_says_what_the_plan_says(tmp_path: Path) -> None:
    plan = network()
    work = [slot for slot in plan.slots.values() if slot.region == "work"]
    first = min(slot.lifetime.start for slot in work)
    last = max(slot.lifetime.end for slot in work) - 1
    live = {
        tick: [slot for slot in plan.live_at(tick) if slot.region == "work"]
        for tick in range(first, last + 1)
    }
    some = next(slot for slot in work if slot.id == plan.ticks[first + 1].writes[0])
    query = "matmul"
    found = sorted(
        str(one) for one in plan.slots if query in f"{one} {plan.details.get(one, '')}".lower()
    )
    expected = {
        "total": readable_nbytes(plan.total_nbytes),
        "regions": [name for name in ("work", "mapped", "io") if name in plan.regions],
        "n_boxes": len(work),
        "peak_tick": plan.peak_tick,
        "live": {tick: sorted(str(slot.id) for slot in some) for tick, some in live.items()},
        "used": {tick: used(some) for tick, some in live.items()},
        "first": first,
        "last": last,
        "ticks": [
            tick._asdict()
            | {"reads": sorted(map(str, tick.reads)), "writes": sorted(map(str, tick.writes))}
            for tick in plan.ticks
        ],
        "value": {
            "name": str(some.id),
            "told": [
                *(str(some.id), "work", f"float32 [{ROWS}, {WIDTH}]", "3 KiB (3,072 bytes)"),
                *(f"ticks {some.lifetime.start} to {some.lifetime.end - 1}", f"{some.offset:,}"),
                *(plan.ticks[first + 1].name, Path(__file__).name),
            ],
        },
        "query": query,
        "found": found,
        "found_boxes": [one for one in found if one in {slot.id for slot in work}],
        "largest": str(max(plan.slots.values(), key=lambda slot: slot.nbytes).id),
        "io": sorted(str(slot.id) for slot in plan.slots.values() if slot.region == "io"),
    }
    assert 0 < len(found) < len(plan.slots)
    wrong, n_checks = failures(plan, "memory_map.js", expected, tmp_path, title="a network")
    assert wrong == []
    assert n_checks > 40


@needs_chromium
def test_names_of_strangers_are_names(tmp_path: Path) -> None:
    values = [Value(name, 64, Lifetime(k, k + 2)) for k, name in enumerate(NAMES)]
    plan = memory.plan(values)._replace(
        details={name: f"float32 [16], from {name}" for name in NAMES},
        ticks=[Tick(name, (), (name,), name) for name in NAMES],
    )
    names = [printable(name) for name in NAMES]
    expected = {"names": names, "title": names[0], "what": "float32 [16]", "n_scripts": 9}
    wrong, n_checks = failures(
        plan, "hostile.js", expected, tmp_path, title=NAMES[0], width=600, is_dark=True
    )
    assert wrong == []
    assert n_checks > 2 * len(names)


@needs_chromium
def test_thousands_of_values_are_not_drawn_at_every_step(tmp_path: Path) -> None:
    random = Random(3)
    values = []
    for k in range(5000):
        start = random.randrange(1000)
        span = Lifetime(start, start + random.randrange(1, 30))
        values.append(Value(f"value.{k}", 64 * random.randrange(1, 50), span))
    plan = memory.plan(values, effort=1000)
    stops = {at for one in values for at in (one.lifetime.start, one.lifetime.end - 1)}
    expected = {"n": len(values), "stops": sorted(stops)}
    wrong, n_checks = failures(plan, "many_values.js", expected, tmp_path)
    assert wrong == []
    assert n_checks > 200


def test_a_page_is_saved(tmp_path: Path) -> None:
    plan = memory.plan([Value("é", 64, Lifetime(0, 1))])
    plan.save_html(tmp_path / "plan.html", "some model")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert text == plan.to_html("some model")
    assert "<title>some model: memory</title>" in text


def test_a_plan_of_nothing_has_a_page() -> None:
    assert '"values":[]' in memory.plan([]).to_html()
