"""Two tiers of tests. The default one keeps to a budget of processor time for each area: every test
function runs, with as many of its parametrised cases as fit, chosen by a hash of their names, the
same ones each time; property tests try fewer examples. `--full` runs everything, and so does
whatever names its tests: paths, node ids, -k, -m, --lf.

    AREAS        which files, and how many seconds of processor time they may take by default
    costs.json   what a case of each function takes there, measured: `pytest --costs` writes
                 what ran; a folder's first row comes from `pytest --costs FOLDER`
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

COSTS_FILE = Path(__file__).with_name("costs.json")
#: What a case takes that costs.json does not name: of a file that was measured, and of another.
CHEAP_S, UNKNOWN_S = 0.01, 0.1
#: The default tier tries one example of so many, and no fewer than the least.
EXAMPLES_SHARE, EXAMPLES_LEAST = 4, 10


@dataclass(frozen=True)
class Area:
    """Test files by pattern, and the processor time, children included, that they may take."""

    pattern: str
    budget_s: float


#: The first pattern that fits a file counts. A folder that none fits is an area by itself.
AREAS = (
    Area("tests/test_docs.py", 80),
    Area("tests/test_*.py", 70),
    Area("tests/backends/webgpu/test_suite.py", 3),
    Area("tests/backends/webgpu/*", 27),
    Area("tests/cli/*", 40),
    Area("tests/codegen/*", 76),
    Area("tests/device/*", 15),
    Area("tests/fetch/*", 12),
    Area("tests/frontends/onnx/*", 60),
    Area("tests/frontends/*", 25),
    Area("tests/generate/*", 92),
    Area("tests/hazards/*", 15),
    Area("tests/ir/*", 25),
    Area("tests/memory/*", 20),
    Area("tests/model/*", 25),
    Area("tests/onnxruntime/*", 10),
    Area("tests/passes/*", 35),
    Area("tests/pipeline/*", 150),
    Area("tests/runtime/*", 40),
    Area("tests/schedule/*", 20),
    Area("tests/serve/*", 25),
    Area("tests/show/*", 15),
    Area("tests/tensor/*", 50),
)
OTHER_BUDGET_S = 30.0

Costs = Mapping[str, Mapping[str, float]]


def function_of(node_id: str) -> str:
    """The test function that a case belongs to."""
    return node_id.partition("[")[0]


def area_of(node_id: str) -> Area:
    path = node_id.partition("::")[0]
    for area in AREAS:
        if fnmatch(path, area.pattern):
            return area
    return Area(f"{path.rpartition('/')[0]}/*", OTHER_BUDGET_S)


def cost_of(node_id: str, costs: Costs) -> float:
    path, _, name = function_of(node_id).partition("::")
    measured = costs.get(path)
    return UNKNOWN_S if measured is None else measured.get(name, CHEAP_S)


def choose(node_ids: Iterable[str], costs: Costs, seed: int) -> set[str]:
    """The cases of the default tier. In each area one case of every function comes first, whatever
    it costs. What is left of the budget goes to all families alike, in seconds: so families of few
    or quick cases run whole, and those that would take long are cut."""
    areas: dict[Area, dict[str, list[str]]] = {}
    for node_id in node_ids:
        families = areas.setdefault(area_of(node_id), {})
        families.setdefault(function_of(node_id), []).append(node_id)
    chosen = set()
    for area, families in areas.items():
        in_turn = []  # by what a family has spent before a case
        for cases in families.values():
            cost_ms = round(cost_of(cases[0], costs) * 1000)
            shuffled = sorted((_hash(node_id, seed), node_id) for node_id in cases)
            in_turn += [(place * cost_ms, *case, cost_ms) for place, case in enumerate(shuffled)]
        left_ms = round(area.budget_s * 1000)
        for spent_ms, _, node_id, cost_ms in sorted(in_turn):
            left_ms -= cost_ms
            if spent_ms > 0 and left_ms < 0:
                break
            chosen.add(node_id)
    return chosen


def fewer_examples(usual: int) -> int:
    """How many examples of a property the default tier tries."""
    return max(min(usual, EXAMPLES_LEAST), usual // EXAMPLES_SHARE)


def _hash(node_id: str, seed: int) -> bytes:
    return blake2b(f"{seed} {node_id}".encode(), digest_size=8).digest()


@dataclass
class Spending:
    """What was collected, and the cases that ran and their processor time, by function."""

    collected: list[str] = field(default_factory=list)
    n_collected: dict[str, int] = field(default_factory=dict)
    ran: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, function: str, n: int, seconds: float) -> None:
        before, seconds_before = self.ran.get(function, (0, 0.0))
        self.ran[function] = (before + n, seconds_before + seconds)


SPENDING = pytest.StashKey[Spending]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers", "tiers of tests")
    group.addoption("--full", action="store_true", help="run every test, not a sample of them")
    group.addoption("--seed", type=int, default=0, help="another sample of the default tier")
    group.addoption(
        "--costs", action="store_true", help=f"write what tests took into {COSTS_FILE.name}"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SPENDING] = Spending()


def tier_of(config: pytest.Config) -> str:
    option = config.option
    if option.full:
        return "full"
    names = [option.keyword, option.markexpr, getattr(option, "lf", False)]
    if config.args_source is config.ArgsSource.ARGS or any(names):
        return "named"
    return "default"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    spending = config.stash[SPENDING]
    spending.collected = [item.nodeid for item in items]
    for item in items:
        pattern = area_of(item.nodeid).pattern
        spending.n_collected[pattern] = spending.n_collected.get(pattern, 0) + 1
    if tier_of(config) != "default":
        return
    chosen = choose(spending.collected, read_costs(), config.option.seed)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
    for function in {item.function for item in items if isinstance(item, pytest.Function)}:
        _try_fewer_examples(function)


def _try_fewer_examples(function: Any) -> None:
    """A profile would not do: it gives way to what a test says itself."""
    said = getattr(function, "_hypothesis_internal_use_settings", None)
    if said is not None:
        fewer = settings(said, max_examples=fewer_examples(said.max_examples))
        function._hypothesis_internal_use_settings = fewer


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _processor_seconds()
    try:
        return (yield)
    finally:
        seconds = _processor_seconds() - before
        item.config.stash[SPENDING].add(function_of(item.nodeid), 1, seconds)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was skipped did not run, and says nothing about its cost."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        item.config.stash[SPENDING].add(function_of(item.nodeid), -1, 0.0)
    return report


def _processor_seconds() -> float:
    """Of this process and of all that it started, also of those that are still there."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ended = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return ended + sum(map(_ticks, _descendants(os.getpid()))) / os.sysconf("SC_CLK_TCK")


def _descendants(process: int) -> Iterator[int]:
    with contextlib.suppress(OSError):  # it ended meanwhile
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                yield child
                yield from _descendants(child)


def _ticks(process: int) -> int:
    """Of a process and of those it waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    spending = session.config.stash[SPENDING]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tiers"] = (spending.n_collected, spending.ran)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker came to its end: add what it spent. Each of them collected everything."""
    spending = node.config.stash[SPENDING]
    output = getattr(node, "workeroutput", {})  # nothing of one that crashed
    spending.n_collected, ran = output.get("tiers", (spending.n_collected, {}))
    for function, (n, seconds) in ran.items():
        spending.add(function, n, seconds)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    spending, tier = config.stash[SPENDING], tier_of(config)
    if config.option.costs:
        write_costs(spending.ran)
    if tier == "named" or not spending.ran:
        return
    n_ran = sum(n for n, _ in spending.ran.values())
    n_all = sum(spending.n_collected.values())
    seconds = sum(seconds for _, seconds in spending.ran.values())
    if config.get_verbosity() >= 0:
        for line in _area_lines(spending):
            terminalreporter.write_line(line)
    hint = "" if tier == "full" else "; all of them: python -m pytest --full"
    terminalreporter.write_line(
        f"{tier} tier: {n_ran:,} of {n_all:,} tests, {seconds:.0f} s of processor time{hint}"
    )


def _area_lines(spending: Spending) -> Iterator[str]:
    yield f"{'area':40}{'ran':>8}{'of':>8}{'seconds':>10}{'budget':>8}"
    by_area: dict[Area, list[tuple[int, float]]] = {}
    for function, spent in spending.ran.items():
        by_area.setdefault(area_of(function), []).append(spent)
    for area, spent_there in sorted(by_area.items(), key=lambda entry: entry[0].pattern):
        n_ran = sum(n for n, _ in spent_there)
        seconds = sum(seconds for _, seconds in spent_there)
        n_all = spending.n_collected[area.pattern]
        yield f"{area.pattern:40}{n_ran:8,}{n_all:8,}{seconds:10.1f}{area.budget_s:8.0f}"


def read_costs() -> dict[str, dict[str, float]]:
    costs = json.loads(COSTS_FILE.read_text())
    assert isinstance(costs, dict)
    return costs


def write_costs(ran: Mapping[str, tuple[int, float]]) -> None:
    """What ran is measured anew, to two digits; what did not, or was skipped, stays as it was."""
    costs = read_costs()
    for function, (n, seconds) in ran.items():
        if n == 0:
            continue
        path, _, name = function.partition("::")
        measured = costs.setdefault(path, {})
        measured.pop(name, None)
        if (cost := seconds / n) > CHEAP_S:
            measured[name] = float(f"{cost:.1e}")
    ordered = {path: dict(sorted(costs[path].items())) for path in sorted(costs)}
    COSTS_FILE.write_text(json.dumps(ordered, indent=1) + "\n")
