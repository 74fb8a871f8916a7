"""What tuning keeps: written by several at once, damaged, of another machine, without a folder.

Whatever an entry says, a program gives the bits of one that is not tuned.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.errors import InvalidArgument, NotCompiled
from arenite.ir.graph import Graph
from arenite.pipeline import choices, compile_graph, plan_graph, tune
from arenite.pipeline.choices import KernelTimes, Times
from arenite.pipeline.identity import identity
from arenite.program import cache
from arenite.tensor import arange
from tests.pipeline.test_tune import code_of, graph_of, numbers, some_graph, subjects

ROOT = Path(__file__).parent.parent.parent
NAMES = ("a", "b")

#: Keeps choices of kernels of its own, one after the other, when all processes are there.
WRITER = """
import sys
from arenite.pipeline.choices import keep_choice
name, count = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for k in range(count):
    keep_choice(f"{name} {k}", f"choice {k}")
    if k % 3 == 0:
        keep_choice(f"{name} {k}", None)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, and short races."""
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tune, "RACE_SECONDS", 0.0)
    monkeypatch.setattr(tune, "ROUNDS", tune.FIRST_ROUNDS)


def test_processes_at_once_lose_no_choice() -> None:
    choices.keep_choice("before", "kept")
    count = 60
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, name, str(count)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in NAMES
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    wanted = {f"{name} {k}": f"choice {k}" for name in NAMES for k in range(count) if k % 3}
    assert choices.all_choices() == {"before": "kept", **wanted}


def test_threads_at_once_lose_no_choice() -> None:
    def keep(name: str) -> None:
        for k in range(20):
            choices.keep_choice(f"{name} {k}", "kept")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(keep, "abcd"))
    assert len(choices.all_choices()) == 4 * 20


def test_processes_that_tune_at_once_all_keep_what_they_find() -> None:
    """Two runs of the command on layers of their own; what each measured is there afterwards."""
    layers = [("linear:20x64x96", "linear:21x64x96"), ("linear:22x64x96", "linear:23x64x96")]
    command = [sys.executable, "-m", "arenite.cli.main", "tune", "--threads", "1", "--json"]
    running = [
        subprocess.Popen([*command, *names], cwd=ROOT, stdout=subprocess.PIPE) for names in layers
    ]
    found: dict[str, str] = {}
    for one in running:
        shown, _ = one.communicate()
        assert one.returncode == 0
        for tuned in json.loads(shown)["tuned"]:
            assert tuned["tried"]
            found |= tuned["choices"]
    assert choices.all_choices() == found


# Damage.


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"a": 1}', b"\xff\xfe", b"[" * 100_000])
def test_damaged_choices_are_dropped(damage: bytes) -> None:
    choices.keep_choice("a", "b")
    key = choices._choices_key()
    cache.default().put(key, {"tuning": damage})
    assert choices.all_choices() == {}
    assert cache.default().get(key) is None


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99])
def test_a_truncated_file_is_as_none(kept: float) -> None:
    graph, _ = some_graph()
    usual = code_of(compile_graph(graph))
    [(content, names)] = subjects(graph)
    choices.keep_choice(content, names[1])
    folder = cache.default().folder
    assert folder is not None
    path = folder / f"{choices._choices_key()}.arenite"
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if kept < 1 else int(kept)])
    assert choices.all_choices() == {}
    assert code_of(compile_graph(graph)) == usual
    choices.keep_choice(content, names[1])
    assert choices.all_choices() == {content: names[1]}


@pytest.mark.parametrize("seed", range(8))
def test_a_file_with_flipped_bits_is_none_or_has_no_other_results(seed: int) -> None:
    graph, arrays = some_graph()
    with compile_graph(graph, threads=1) as program:
        want = program(*arrays)[0].tobytes()
    [(content, names)] = subjects(graph)
    choices.keep_choice(content, names[1])
    folder = cache.default().folder
    assert folder is not None
    path = folder / f"{choices._choices_key()}.arenite"
    rng = np.random.default_rng(seed)
    data = bytearray(path.read_bytes())
    for at in rng.integers(0, len(data), 3):
        data[at] ^= 1 << int(rng.integers(0, 8))
    path.write_bytes(data)
    with compile_graph(graph, threads=1) as program:
        assert program(*arrays)[0].tobytes() == want


@pytest.mark.parametrize("choice", ["tile 999x999, parts 0x0, b copied", "", "\x1b[2J", "a" * 9999])
def test_what_is_no_choice_of_a_kernel_has_no_effect(choice: str) -> None:
    """One that once was a candidate, or never."""
    graph, _ = some_graph()
    [(content, _)] = subjects(graph)
    usual = code_of(compile_graph(graph))
    choices.keep_choice(content, choice)
    assert code_of(compile_graph(graph)) == usual


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"chosen": "a", "times": []},
        {"chosen": "a", "times": {}},
        {"chosen": "a", "times": {"a": [[1.0], True]}},
        {"chosen": "a", "times": {"a": [[1.0, float("nan")], True]}},
        {"chosen": "a", "times": {"a": [[1.0, -1.0], True]}},
        {"chosen": "a", "times": {"a": [["1", 1.0], True]}},
        {"chosen": "b", "times": {"a": [[1.0, 1.0], True]}},
        {"chosen": ["a"], "times": {"a": [[1.0, 1.0], True]}},
        # Without the usual one; of a choice that is none; chosen for bits that are others.
        {"chosen": "b", "times": {"b": [[1.0, 1.0], True]}},
        {"chosen": "a", "times": {"a": [[1.0, 1.0], True], "\x1b[2J": [[1.0, 1.0], True]}},
        {"chosen": "b", "times": {"a": [[1.0, 1.0], True], "b": [[0.1, 0.1], False]}},
    ],
)
def test_damaged_times_are_dropped(damage: Mapping[str, Any]) -> None:
    key = choices._kernel_key("content", "about")
    cache.default().put(key, {"tuning": json.dumps(damage).encode()})
    assert choices.times_of("content", "about", ("a", "b"), 2) is None
    assert cache.default().get(key) is None


def test_times_come_back_as_they_were() -> None:
    found = KernelTimes("a", {"a": Times((1e-6, 2e-6)), "b": Times((1e-7, 1e-6), False)})
    choices.keep_times("content", "elsewhere", found)
    assert choices.times_of("content", "elsewhere", ("a", "b", "c"), 2) == found
    assert choices.times_of("content", "another", ("a", "b", "c"), 2) is None


# Elsewhere.


@pytest.mark.parametrize("part", [0, 1, 2], ids=["sources", "compiler", "machine"])
def test_choices_of_another_version_or_machine_have_no_effect(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = some_graph()
    usual = code_of(compile_graph(graph))
    [(content, names)] = subjects(graph)
    there: list[Any] = [*identity()]
    there[part] = b"other" if part == 0 else "other"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(choices, "identity", lambda: there)
        choices.keep_choice(content, names[1])
        assert choices.all_choices() == {content: names[1]}
    assert choices.all_choices() == {}
    assert code_of(compile_graph(graph)) == usual


def test_without_a_folder_choices_hold_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(folder))
    graph, _ = some_graph()
    usual = code_of(compile_graph(graph))
    [(content, names)] = subjects(graph)
    choices.keep_choice(content, names[1])
    assert code_of(compile_graph(graph)) != usual
    assert [*folder.iterdir()] == []


# What is asked for.


def test_a_graph_that_only_returns_its_input_has_nothing_to_tune() -> None:
    table = arenite.tune(lambda x: x, numbers(3))
    assert (table.tried, table.n_left_out) == ((), 0)
    assert "nothing to tune" in str(table)
    assert json.loads(table.to_json())["tried"] == []


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="are no time"):
        tune.tune_graph(some_graph()[0], seconds=seconds)


@pytest.mark.parametrize("sizes", [{"rows": 3}, [{"rows": 1.5}], [{"rows": "3"}], [{"rows": True}]])
def test_sizes_that_are_none_are_refused(sizes: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^sizes? "):
        tune.tune_graph(some_graph()[0], sizes=sizes)


def cut_graph() -> Graph:
    def network(x: Any, n: Any) -> Any:
        return (arange(n.sum()).sum().astype("float32") * x) @ x

    # Of a size of its own: a node that another file has made too would come from there first.
    return graph_of(network, numbers(44, 44), np.array([2, 3, 4]))


def test_a_graph_in_segments_is_refused_with_what_to_do() -> None:
    graph = cut_graph()
    with pytest.raises(NotCompiled, match=r"at arange.*test_tune_kept.*arenite\.tune"):
        tune.tune_graph(graph)
    for ask in (plan_graph, compile_graph):
        with pytest.raises(NotCompiled, match=r"at arange.*arenite\.compile plans its segments"):
            ask(graph)


# Interrupted.


def test_what_was_measured_before_an_interrupt_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = numbers(40, 64), numbers(64, 96)
    real, calls = tune._Search.result, []

    def second_is_interrupted(search: tune._Search) -> KernelTimes:
        calls.append(search)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(search)

    def both(x: Any, y: Any) -> Any:
        return x @ y, y.T @ y

    monkeypatch.setattr(tune._Search, "result", second_is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        arenite.tune(both, a, b, threads=1)
    kept = arenite.tune(both, a, b, threads=1, seconds=0)
    assert len({one.kernel for one in kept.tried}) == 1
    assert kept.n_left_out == 1
    assert len(calls) == 2  # nothing is measured twice
    whole = arenite.tune(both, a, b, threads=1)
    assert (len({one.kernel for one in whole.tried}), len(calls)) == (2, 3)
