"""The page of a program, in a browser: what each view says is what the program says in Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.device.allocator import readable_nbytes
from arenite.errors import printable
from arenite.hazards import order
from arenite.ir.node import Node
from arenite.memory.svg import REGION_COLOURS
from arenite.memory.values import RESIDENT_REGIONS
from arenite.program.launch_hazards import placed
from arenite.runtime import view
from arenite.runtime.executable import Executable
from arenite.runtime.profile import Profile
from arenite.runtime.trace import Trace
from arenite.schedule import Kernel, fuse
from arenite.show import read_part
from tests.backends.webgpu.runner import webgpu
from tests.show.browser import needs_chromium
from tests.show.devtools import Page, browser
from tests.show.test_page import NAMES, Elements

ROWS = 64
#: In the page: texts of elements.
TEXTS = "const texts = (s) => [...document.querySelectorAll(s)].map((one) => one.textContent);"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@dataclass
class Shown:
    """A program, a run of it, and the file with its page."""

    executable: Executable
    profile: Profile
    file: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    table = arenite.from_numpy(np.ones((100, ROWS), np.float32)).named("embedding")

    def network(params: list[arenite.Tensor], tokens: arenite.Tensor) -> arenite.Tensor:
        x = table[tokens]
        for w in params:
            x = x + ((x @ w).softmax(-1) @ w * 1.0).sort()
        return x

    params = [np.full((ROWS, ROWS), 0.01, np.float32)] * 3
    tokens = np.arange(ROWS)
    file = tmp_path_factory.mktemp("pages") / "network.html"
    with arenite.compile(network, params, arenite.spec((ROWS,), "int64"), threads=2) as program:
        program(params, tokens)
        profile = program.profile(params, tokens)
        program.save_html(file, "a network", profile)
        [executable] = program.executables
        yield Shown(executable, profile, file)


def opened(page: Page, file: Path, **how: Any) -> None:
    page.open(f"{file.as_uri()}?{np.random.default_rng().integers(2**60)}", **how)
    page.wait_for("typeof PAGE !== 'undefined' && document.readyState === 'complete'")


def told(page: Page, view_name: str, expression: str) -> Any:
    """What an expression is, with a view in sight."""
    return page.evaluate(f"(() => {{ {TEXTS} PAGE.show('{view_name}'); return {expression}; }})()")


@needs_chromium
def test_memory_and_time_are_seen_at_once(page: Page, shown: Shown) -> None:
    opened(page, shown.file)
    heads = page.evaluate(f"(() => {{ {TEXTS} return texts('.glance h2'); }})()")
    assert heads[0] == f"Memory: {readable_nbytes(shown.executable.plan.total_nbytes)}"
    assert heads[1].startswith("Time: ")
    # The parts of the bar are kinds of kernels, by what they take.
    seconds: dict[str, float] = {}
    for one in shown.profile.kernels:
        kind = re.sub("_[0-9]+$", "", one.name)
        seconds[kind] = seconds.get(kind, 0.0) + one.seconds
    kinds = sorted(seconds, key=lambda kind: -seconds[kind])
    runs = page.evaluate(f"(() => {{ {TEXTS} return texts('.times .run b'); }})()")
    assert len(runs) >= 2
    assert runs[:2] == kinds[:2]
    widths = page.evaluate(
        "[...document.querySelectorAll('.times .run')].map((one) => Number(one.style.flexGrow))"
    )
    assert sum(widths) == pytest.approx(1, abs=1e-3)
    assert widths[0] == pytest.approx(seconds[kinds[0]] / sum(seconds.values()), rel=1e-3)
    assert told(page, "memory", "PAGE.panels.get('memory').map.boxes.length") == sum(
        slot.region == "work" and slot.alias_of is None and slot.lifetime.start < slot.lifetime.end
        for slot in shown.executable.plan.slots.values()
    )
    # Views that nobody looked at are not there.
    opened(page, shown.file)
    assert page.evaluate("[...PAGE.panels.keys()]") == ["memory"]
    assert page.errors == []


@needs_chromium
def test_passes_show_the_graph_before_and_after(page: Page, shown: Shown) -> None:
    opened(page, shown.file)
    records = shown.executable.passes
    rows = told(page, "passes", "texts('.rows [role=option] b')")
    assert rows == [record.name for record in records]
    before = shown.executable.graph
    for k, record in enumerate(records):
        page.evaluate(f"PAGE.panels.get('passes').select({k})")
        assert (
            page.evaluate("document.querySelector('.passes-panel .detail h3').firstChild.data")
            == record.name
        )
        lines = told(page, "passes", "texts('.difference span:not(.at)')")
        old, new = (
            {re.sub(r"\S*/", "", line) for line in str(graph).splitlines()}
            for graph in (before, record.graph)
        )
        for line in lines:
            text = re.sub(r"\S*/", "", line[2:])
            assert text in (old if line[0] == "-" else new), line
        assert bool(lines) == (str(before) != str(record.graph))
        for sign, kind in (("+", "came"), ("-", "went")):
            marked = told(page, "passes", f"texts('.difference .{kind}')")
            assert marked == [line for line in lines if line[0] == sign]
        counts = page.evaluate(f"PAGE.program.passes.passes[{k}]")
        assert counts["nodes"] == len(record.graph)
        if lines:
            assert counts["kernels"] == len(fuse(record.graph).kernels)
            shown_counts = told(page, "passes", f"texts('.rows [data-row=\"{k}\"] .number')")
            assert shown_counts == [f"{len(record.graph)} nodes, {counts['kernels']} kernels"]
        before = record.graph
    assert page.errors == []


def computed(kernel: Kernel) -> set[Node]:
    """All nodes that its outputs need and that are not given to it."""
    found: set[Node] = set()
    pending = [*kernel.outputs]
    while pending:
        node = pending.pop()
        if node not in kernel.inputs and node not in found:
            found.add(node)
            pending += node.inputs
    return found


@needs_chromium
def test_kernels_sort_and_show_code_and_reasons(page: Page, shown: Shown) -> None:
    opened(page, shown.file)
    kernels = {one.entry_point: one for one in shown.executable.kernels}
    times = {one.name: one.seconds for one in shown.profile.kernels}
    assert set(times) == set(kernels)
    names = "texts('.kernel-list tbody .name')"
    in_run = sorted(times, key=lambda name: -times[name])
    assert told(page, "kernels", names)[: len(in_run)] == in_run
    by_name = "[...document.querySelectorAll('.kernel-list th button')]"
    page.evaluate(f"{by_name}[0].click()")
    every = [*kernels, *(one.entry_point for one in shown.executable.load_kernels)]
    assert sorted(told(page, "kernels", names)) == sorted(every)
    number = {name: int(name.rpartition("_")[2]) for name in every}
    key = {name: (name.rpartition("_")[0], number[name]) for name in every}
    assert told(page, "kernels", names) == sorted(every, key=key.__getitem__)
    page.evaluate(f"{by_name}[2].click()")
    moved = {name: int(str(k.reads_nbytes + k.writes_nbytes)) for name, k in kernels.items()}
    found = [name for name in told(page, "kernels", names) if name in moved]
    assert [moved[name] for name in found] == sorted(moved.values(), reverse=True)
    fused = {one.name: one for one in shown.executable.schedule.kernels}
    for name, kernel in kernels.items():
        page.evaluate(f"PAGE.panels.get('kernels').goTo({json.dumps(name)})")
        detail = told(page, "kernels", "document.querySelector('.kernels-panel aside').innerText")
        assert f"because {kernel.border}" in detail
        assert f"{kernel.global_size[0]} tile" in detail
        ops = told(page, "kernels", "texts('.nodes b')")
        assert sorted(ops) == sorted(node.op for node in computed(fused[name]))
        for which, text in (("loops", kernel.code), ("source", kernel.source)):
            page.evaluate(f"document.querySelector('[data-text={which}]').click()")
            page.wait_for(
                f"document.querySelector('.code-text').textContent.endsWith({json.dumps(text[-60:])})"
            )
            code = told(page, "kernels", "texts('.code-text')[0]")
            notes = told(page, "kernels", "texts('.cut')[0]") if which == "loops" else ""
            assert text.endswith(code)
            assert re.sub(r"(?m)^// ?", "", text[: len(text) - len(code)]).strip() == notes
    assert page.errors == []


@needs_chromium
def test_waits_are_those_that_hazards_need(page: Page, shown: Shown) -> None:
    opened(page, shown.file)
    compiled = shown.executable.compiled
    launches = [launch.name for launch in compiled.launches]
    edges = [one.pair for one in order(placed(compiled.launches, shown.executable.places))]
    drawn = told(page, "waits", "PAGE.panels.get('waits').waits.map((w) => [w.before, w.after])")
    assert sorted(map(tuple, drawn)) == sorted(edges)
    assert edges
    for k, name in enumerate(launches):
        page.evaluate(f"PAGE.panels.get('waits').goTo({json.dumps(name)})")
        assert told(page, "waits", "texts('.focus .middle strong')") == [name]
        before, after = (
            told(
                page,
                "waits",
                f"texts('.side:nth-child({n}) .link').map((one) => one.split(' ')[0])",
            )
            for n in (1, 3)
        )
        assert sorted(before) == sorted(launches[a] for a, b in edges if b == k)
        assert sorted(after) == sorted(launches[b] for a, b in edges if a == k)
        # Behind each stand bytes of values that both launches have.
        reasons = told(page, "waits", "texts('.focus .conflict')")
        assert len(reasons) >= len(before) + len(after)
        assert all(re.search(r"bytes [\d,]+ to [\d,]+ of (it|the arena)$", one) for one in reasons)
    assert page.errors == []


@needs_chromium
def test_the_timeline_has_every_run_of_a_kernel(page: Page, shown: Shown) -> None:
    opened(page, shown.file)
    records = sorted(shown.profile.records.tolist(), key=lambda one: (one[0], one[3]))
    fields = shown.profile.records.dtype.names
    assert fields is not None
    at = {name: fields.index(name) for name in ("worker", "kernel", "begin", "end")}
    records.sort(key=lambda one: (one[at["worker"]], one[at["begin"]]))
    bars = [
        (worker, shown.profile.names[kernel])
        for (worker, kernel), _ in groupby(records, lambda r: (r[at["worker"]], r[at["kernel"]]))
    ]
    drawn = told(page, "timeline", "PAGE.panels.get('timeline').bars")
    workers = sorted({worker for worker, _ in bars})
    assert sorted((workers[one["lane"]], one["name"]) for one in drawn) == sorted(bars)
    assert told(page, "timeline", "PAGE.panels.get('timeline').wall") == pytest.approx(
        shown.profile.wall_seconds * 1e6, rel=1e-3
    )
    busy = sum(one["busy"] for one in drawn)
    assert busy == pytest.approx(1e6 * sum(one.seconds for one in shown.profile.kernels), rel=0.01)
    assert page.errors == []


@needs_chromium
def test_a_mouse_zooms_and_moves_the_timeline(page: Page, shown: Shown) -> None:
    opened(page, shown.file)
    told(page, "timeline", "document.querySelector('.lanes').scrollIntoView({ block: 'center' })")
    window = "Object.values(PAGE.panels.get('timeline').map.window)"
    left, top, width, height = page.evaluate(
        "(({ left, top, width, height }) => [left, top, width, height])"
        "(document.querySelector('.lanes').getBoundingClientRect())"
    )
    x, y = round(left + width * 0.6), round(top + height * 0.4)
    at = f"PAGE.panels.get('timeline').map.scales().x.number({x - left})"
    start, end, *lanes = page.evaluate(window)
    pointed = page.evaluate(at)
    page.wheel(x, y, -300, ctrl=True)
    page.wait_for(f"{window}[1] < {end}")
    near, far, *same_lanes = page.evaluate(window)
    assert far - near < end - start
    assert same_lanes == lanes
    assert page.evaluate(at) == pytest.approx(pointed)  # what was pointed at stays there
    page.drag(x, y, x + 100, y)
    moved = page.evaluate(window)
    assert moved[0] < near
    assert moved[1] - moved[0] == pytest.approx(far - near)
    # A click selects the bar that lies there, and says what it is.
    drawn = page.evaluate(
        f"PAGE.panels.get('timeline').map.boxAt({x - left}, {y - top})?.label ?? null"
    )
    page.drag(x, y, x, y)
    assert page.evaluate("PAGE.panels.get('timeline').selected?.name ?? null") == drawn
    assert page.errors == []


@needs_chromium
def test_keys_do_all_that_a_mouse_does(page: Page, shown: Shown) -> None:
    opened(page, shown.file, width=400, is_dark=True)
    panel = "PAGE.panels.get(PAGE.view)"
    for key, name in zip(
        "12345", ("memory", "passes", "kernels", "waits", "timeline"), strict=True
    ):
        page.press(key)
        assert page.evaluate("PAGE.view") == name
        visible = "[...document.querySelectorAll('.panel')].filter((one) => one.offsetHeight)"
        assert page.evaluate(f"{visible}.map((one) => one.id)") == [f"panel-{name}"]
        # Nothing is cut off at the side of a narrow screen.
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    window = f"[{panel}.map.window.x0, {panel}.map.window.x1]"
    whole = page.evaluate(window)
    page.press("+")
    page.press("+")
    left, right = page.evaluate(window)
    assert right - left == pytest.approx((whole[1] - whole[0]) / 4)
    page.press("ArrowLeft")
    earlier = page.evaluate(window)
    assert earlier[0] < left
    page.press("End")
    assert page.evaluate(window)[1] == pytest.approx(whole[1])
    page.press("Home")
    assert page.evaluate(window)[0] == whole[0]
    page.press("0")
    assert page.evaluate(window) == whole
    page.press("ArrowDown")
    first = page.evaluate(f"{panel}.selected.name")
    assert first == page.evaluate(f"{panel}.inOrder[0].name")
    page.evaluate("document.querySelector('.timeline-detail button').click()")
    assert page.evaluate("[PAGE.view, PAGE.panels.get('kernels').selected.name]") == [
        "kernels",
        first,
    ]
    page.press("/")
    page.type("sort")
    found = page.evaluate("PAGE.panels.get('kernels').sorted().map((one) => one.name)")
    assert found
    assert all("sort" in name for name in found)
    page.press("1")  # is typed, and chooses no view
    assert page.evaluate("PAGE.view") == "kernels"
    page.press("Escape")
    page.press("ArrowDown")
    page.press("4")
    start = page.evaluate(f"{panel}.number")
    page.press("ArrowRight")
    assert page.evaluate(f"{panel}.number") == start + 1
    page.press("2")
    chosen = page.evaluate(f"{panel}.selected")
    page.press("ArrowUp")
    assert page.evaluate(f"{panel}.selected") == chosen - 1
    assert page.errors == []


@needs_chromium
def test_names_of_strangers_run_nowhere(page: Page, tmp_path: Path) -> None:
    def network(given: dict[str, arenite.Tensor]) -> dict[str, arenite.Tensor]:
        return {name: (x @ x).softmax(-1) for name, x in given.items()}

    given = {name: np.full((8, 8), k, np.float32) for k, name in enumerate(NAMES)}
    title = NAMES[0]
    file = tmp_path / "names.html"
    with arenite.compile(network, given) as program:
        [executable] = program.executables
        profile = program.profile(given)
        events = [
            {"name": name, "ph": "X", "tid": name, "ts": k, "dur": 1}
            for k, name in enumerate(NAMES)
        ]
        trace = Trace.read(json.dumps({"traceEvents": events}), "names")
        file.write_text(view.program_page({NAMES[7]: executable}, title, trace), encoding="utf-8")
        assert profile.kernels
    assert Elements(file.read_text(encoding="utf-8")).tags.count("script") == len(view.SCRIPTS) + 1
    opened(page, file)
    for name in ("memory", "passes", "kernels", "waits", "timeline"):
        told(page, name, "1")
    assert page.evaluate("[typeof window.owned, document.title]") == ["undefined", printable(title)]
    assert page.evaluate("document.querySelectorAll('img, iframe, a').length") == 0
    names = [printable(name) for name in NAMES]
    assert sorted(page.evaluate("PAGE.data.trace.names")) == sorted(names)
    values = page.evaluate("PAGE.panels.get('memory').values.map((one) => one.name)")
    assert values == [printable(name) for name in executable.plan.slots]
    for k in range(len(NAMES)):
        page.evaluate(f"PAGE.panels.get('timeline').select(PAGE.panels.get('timeline').bars[{k}])")
    assert page.evaluate("typeof window.owned") == "undefined"
    assert page.errors == []


@needs_chromium
def test_segments_are_chosen_among(page: Page, tmp_path: Path) -> None:
    def longest(x: arenite.Tensor) -> arenite.Tensor:
        return arenite.arange(x.max()).sum() + (x * 2).sort().sum()

    file = tmp_path / "segments.html"
    with arenite.compile(longest, arenite.spec((8,), "int64")) as program:
        profile = program.profile(np.arange(8))
        program.save_html(file, "", profile)
        executables = program.executables
        assert len(executables) > 1
        launches = [[one.entry_point for one in each.kernels] for each in executables]
    opened(page, file)
    for k, names in enumerate(launches):
        page.evaluate(f"document.querySelector('select').selectedIndex = {k}")
        page.evaluate("document.querySelector('select').dispatchEvent(new Event('change'))")
        assert told(page, "waits", "PAGE.panels.get('waits').data.launches") == names
        # Times of a segment are found under its name.
        rows = told(page, "kernels", "PAGE.rows.filter((one) => one.micros !== null).length")
        assert rows == len(names)
    assert page.errors == []


def test_texts_and_lines_are_bounded_and_told(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = view.view_data({"": shown.executable})["programs"][0]
    assert all(kernel["source"] is not None for kernel in whole["kernels"])
    monkeypatch.setattr(view, "MAX_TEXT_NBYTES", 1500)
    monkeypatch.setattr(view, "MAX_LINES", 7)
    data = view.view_data({"": shown.executable})
    [program] = data["programs"]
    assert sum(map(len, data["texts"])) <= 1500 * 4 / 3 + 4 * len(data["texts"])
    assert any(kernel["source"] is None for kernel in program["kernels"])
    lines = [
        line for one in program["passes"]["passes"] for hunk in one["hunks"] for line in hunk[2]
    ]
    assert len(lines) == 7
    assert [one["lines"] for one in program["passes"]["passes"]] == [
        one["lines"] for one in whole["passes"]["passes"]
    ]


def test_nothing_is_written_where_no_page_can_be_made(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.html"
    file.write_text("mine")

    def failing(*_: object) -> str:
        raise RuntimeError("no page")

    monkeypatch.setattr(view, "program_page", failing)
    with pytest.raises(RuntimeError, match="no page"):
        shown.executable.save_html(file)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_the_page_tells_what_a_device_has(device: str) -> None:
    if device != "cpu":
        webgpu()
    w = arenite.from_numpy(np.arange(21, dtype=np.float32).reshape(7, 3))
    with arenite.compile(lambda x: x @ w, arenite.spec((1, 7)), device=device) as program:
        data = view.view_data({"": program.executables[0]})
    facts = dict(data["facts"])
    assert facts["device"] == device
    assert ("threads" in facts) == (device == "cpu")
    about = {one["name"]: one["meaning"] for one in data["programs"][0]["plan"]["regions"]}
    is_read = about.get("mapped", "weights, read in place") == "weights, read in place"
    assert is_read == (device == "cpu")


def test_every_region_has_a_colour() -> None:
    for sheet, names in (("memory.css", REGION_COLOURS), ("serve.css", RESIDENT_REGIONS)):
        assert {name for name in names if f"--{name}:" not in read_part(sheet)} == set()
