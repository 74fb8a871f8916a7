"""The default tier leaves out cases, never a test; what is named on the command line runs whole."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiers
from tests.tiers import (
    AREAS,
    OTHER_BUDGET_S,
    SPENDING,
    UNKNOWN_S,
    area_of,
    choose,
    cost_of,
    fewer_examples,
    function_of,
    read_costs,
    write_costs,
)

ROOT = Path(__file__).parent.parent
TOTAL_S = 960  # eight minutes on two cores


def family(name: str, n: int) -> list[str]:
    return [f"other/test_x.py::{name}[{i}]" for i in range(n)]


suites = st.lists(st.integers(0, 60), min_size=1, max_size=12).map(
    lambda sizes: [
        node_id
        for i, n in enumerate(sizes)
        for node_id in (family(f"test_{i}", n) if n else [f"other/test_x.py::test_{i}"])
    ]
)


@given(suites, st.integers(0, 3), st.integers(10, 2000))
def test_every_function_has_a_case_and_the_rest_keeps_to_the_budget(
    suite: list[str], seed: int, case_ms: int
) -> None:
    costs = {"other/test_x.py": {function_of(i).partition("::")[2]: case_ms / 1000 for i in suite}}
    chosen = choose(suite, costs, seed)
    functions = {function_of(node_id) for node_id in suite}
    assert {function_of(node_id) for node_id in chosen} == functions
    fit = int(OTHER_BUDGET_S * 1000) // case_ms
    assert len(chosen) == min(len(suite), max(len(functions), fit))


@given(suites, st.randoms(use_true_random=False))
def test_a_sample_does_not_hang_on_the_order_of_collection(
    suite: list[str], order: random.Random
) -> None:
    shuffled = list(suite)
    order.shuffle(shuffled)
    assert choose(shuffled, {}, 0) == choose(suite, {}, 0)


def test_a_sample_is_the_same_tomorrow_and_another_one_for_another_seed() -> None:
    suite = family("test_many", 2000)
    first = choose(suite, {}, 0)
    assert first != choose(suite, {}, 1)
    assert len(first) == len(choose(suite, {}, 1)) == int(OTHER_BUDGET_S / UNKNOWN_S)
    again = "import sys; from tests.tiers import choose; print(sorted(choose(sys.argv[1:], {}, 0)))"
    run = [sys.executable, "-c", again, *suite]
    assert subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout == (
        f"{sorted(first)}\n"
    )


def test_a_case_more_takes_the_place_of_one_at_most() -> None:
    suite = family("test_many", 2000)
    assert len(choose(suite, {}, 0) - choose([*suite, *family("test_one_more", 1)], {}, 0)) == 1


def test_small_and_quick_families_run_whole_before_a_large_one_is_cut() -> None:
    small = [case for i in range(20) for case in family(f"test_small_{i}", 5)]
    chosen = choose([*family("test_large", 5000), *small], {}, 0)
    assert chosen.issuperset(small)
    assert len(chosen) == int(OTHER_BUDGET_S / UNKNOWN_S)
    quick = family("test_quick", 1000)
    costs = {"other/test_x.py": {"test_quick": 0.012, "test_slow": 1.5}}
    chosen = choose([*quick, *family("test_slow", 100)], costs, 0)
    assert chosen.issuperset(quick)
    assert len(chosen) == 1000 + (OTHER_BUDGET_S - 12) / 1.5


def test_every_function_of_this_suite_is_in_the_default_tier(
    request: pytest.FixtureRequest,
) -> None:
    collected = request.config.stash[SPENDING].collected
    assert request.node.nodeid in collected
    chosen = choose(collected, read_costs(), request.config.option.seed)
    assert {function_of(i) for i in collected} == {function_of(i) for i in chosen}
    assert chosen.issuperset(node_id for node_id in collected if "[" not in node_id)


def test_the_table_names_areas_that_exist_and_the_budgets_fit_eight_minutes() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    named = {area_of(file) for file in files}
    assert [area.pattern for area in AREAS if area not in named] == []
    assert sum(area.budget_s for area in named) <= TOTAL_S


def test_what_a_case_costs_is_looked_up_by_its_function() -> None:
    costs = {"tests/test_a.py": {"test_slow": 2.5, "TestB::test_c": 0.5}}
    assert cost_of("tests/test_a.py::test_slow[1-[x]]", costs) == 2.5
    assert cost_of("tests/test_a.py::TestB::test_c", costs) == 0.5
    assert cost_of("tests/test_a.py::test_quick", costs) < cost_of("tests/test_b.py::test_d", costs)


def test_costs_are_written_of_what_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "COSTS_FILE", tmp_path / "costs.json")
    before = {"a.py": {"test_was_slow": 2.0, "test_left_out": 3.0, "test_skipped": 4.0}}
    (tmp_path / "costs.json").write_text(json.dumps(before))
    write_costs(
        {
            "b.py::TestC::test_d": (3, 1.0),
            "a.py::test_was_slow": (1000, 1.0),
            "a.py::test_skipped": (0, 0.0),
            "c.py::test_quick": (1, 0.001),
        }
    )
    assert read_costs() == {
        "a.py": {"test_left_out": 3.0, "test_skipped": 4.0},
        "b.py": {"TestC::test_d": 0.33},
        "c.py": {},
    }


MANY = """
import pytest
from hypothesis import given, settings, strategies as st

@pytest.mark.parametrize("i", range(400))
def test_many(i):
    pass

@pytest.mark.parametrize("i", range(2))
def test_few(i):
    pass

@pytest.mark.skip(reason="only counted")
def test_skipped():
    pass

@settings(max_examples=200, database=None)
@given(st.integers())
def test_property(i):
    with open("examples", "a") as file:
        file.write("x")
"""
N_FIT = int(OTHER_BUDGET_S / UNKNOWN_S)  # one of them is skipped


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = many\naddopts = -q\n")
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "conftest.py").write_text('pytest_plugins = ["tests.tiers"]\n')
    (tmp_path / "many" / "test_many.py").write_text(MANY)
    return tmp_path


def run(suite: Path, *arguments: str) -> str:
    given = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=suite,
        env={**given, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_by_default_a_sample_runs_and_the_end_tells_how_to_run_all(
    suite: Path, workers: str
) -> None:
    out = run(suite, "-n", workers, "-v")
    assert re.search(
        rf"default tier: {N_FIT - 1} of 404 tests, \d+ s of processor time; all of", out
    )
    assert "python -m pytest --full" in out
    assert re.search(
        rf"^many/\* +{N_FIT - 1} +404 +\d+\.\d +{OTHER_BUDGET_S:.0f}$", out, re.MULTILINE
    )
    assert (suite / "examples").stat().st_size == fewer_examples(200) < 200


def test_full_runs_every_case_and_example(suite: Path) -> None:
    assert "full tier: 403 of 404 tests" in run(suite, "-n", "0", "--full")
    assert (suite / "examples").stat().st_size == 200


@pytest.mark.parametrize(
    ("arguments", "n"),
    [
        (["many"], 403),
        (["many/test_many.py::test_many"], 400),
        (["-k", "test_many and not property"], 402),
        (["-n", "2", "many/test_many.py::test_many", "many/test_many.py::test_few"], 402),
    ],
    ids=["folder", "function", "keyword", "functions over workers"],
)
def test_what_is_named_runs_whole(suite: Path, arguments: list[str], n: int) -> None:
    out = run(suite, *arguments)
    assert f"{n} passed" in out
    assert "tier" not in out
