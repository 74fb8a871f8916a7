"""Tuning: other ways to cut kernels give the same bits, the best is chosen, kept and used.

Results are judged by NumPy in float64, what is chosen by trials whose times are made up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import passes
from arenite.backends.cpu.build import build
from arenite.backends.cpu.compiling.pool import host_target
from arenite.backends.cpu.trial import Trial
from arenite.dtype import float32
from arenite.errors import BoundsError, InvalidArgument
from arenite.ir import Var, graph_input
from arenite.ir.dim import evaluate
from arenite.ir.graph import Graph
from arenite.ir.ops.blocks import matmul_blocks
from arenite.pipeline import choices, compile_graph, contents, tune
from arenite.pipeline.choices import KernelTimes, Times
from arenite.program import launch
from arenite.program.options import USUAL, Options
from arenite.runtime.executable import Executable
from arenite.tensor import arange
from tests.codegen.block_weights import random_blocks, weights_node
from tests.passes.lists import PASSES

Array = NDArray[Any]
THREADS = (1, 3)


@pytest.fixture(autouse=True)
def untuned(own_choices: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Even small kernels are dealt out to threads; races are short; choices do not stay."""
    monkeypatch.setattr(launch, "SHARED_FROM_NS", 0)
    monkeypatch.setattr(tune, "RACE_SECONDS", 0.0)
    monkeypatch.setattr(tune, "ROUNDS", tune.FIRST_ROUNDS)
    yield
    for content in choices.all_choices():
        choices.keep_choice(content, None)


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def graph_of(function: Callable[..., Any], *specs: Any) -> Graph:
    with arenite.compile(function, *specs) as compiled:
        graph: Graph = compiled.executable.graph
    return graph


def subjects(graph: Graph) -> list[tuple[str, tuple[str, ...]]]:
    """The content and the choices of each kernel that has some."""
    simplified, _ = passes.run(graph, PASSES)
    return [(content, built.choices) for _, built, content in contents.tunable(simplified, USUAL)]


# The ways themselves.

Case = tuple[Graph, list[Array], Array]


def product_case(rows: int, depth: int, columns: int, *, is_transposed: bool = False) -> Case:
    a, b = numbers(rows, depth), numbers(depth, columns, seed=1)
    want = a.astype(np.float64) @ b
    if is_transposed:
        b = np.ascontiguousarray(b.T)
        return graph_of(lambda x, y: x @ y.T, a, b), [a, b], want
    return graph_of(lambda x, y: x @ y, a, b), [a, b], want


def layer_case(n_rows: int) -> Case:
    """Weights are constants, rows are counted later, and something follows."""
    x, w, bias = numbers(n_rows, 96), numbers(96, 200, seed=1), numbers(200, seed=2)
    weights, shift = arenite.from_numpy(w), arenite.from_numpy(bias)
    graph = graph_of(
        lambda x: (x @ weights + shift).relu(), arenite.spec((Var("rows", 1, 300), 96), "float32")
    )
    return graph, [x], np.maximum(x.astype(np.float64) @ w + bias, 0)


def conv_case(channels: int, out: int, taps: int, stride: int, groups: int) -> Case:
    x, w = numbers(2, channels, 17, 23), numbers(out, channels // groups, taps, taps, seed=1)
    weights = arenite.from_numpy(w)
    graph = graph_of(lambda x: x.conv(weights, None, stride, taps // 2, 1, groups), x)
    return graph, [x], conv_by_numpy(x, w, stride, taps // 2, groups)


def conv_by_numpy(x: Array, w: Array, stride: int, pad: int, groups: int) -> Array:
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    parts = [
        np.einsum("nchwkl,ockl->nohw", *pair)
        for pair in zip(np.split(windows, groups, axis=1), np.split(w, groups, axis=0), strict=True)
    ]
    return np.concatenate(parts, axis=1)


def packed_case(n_rows: int) -> Case:
    raw = random_blocks("q8_0", 96, 128)
    graph = Graph.of(
        [matmul_blocks(graph_input("x", 0, (n_rows, 128), float32), weights_node("q8_0", raw, 128))]
    )
    blocks = raw.reshape(-1, 34)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float64)
    weights = (blocks[:, 2:].view(np.int8) * scales).reshape(96, 128)
    x = numbers(n_rows, 128)
    return graph, [x], x.astype(np.float64) @ weights.T


def bytes_case(n_rows: int) -> Case:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (n_rows, 96)).astype(np.uint8)
    w = rng.integers(-128, 128, (96, 80)).astype(np.int8)
    weights = arenite.from_numpy(w)
    graph = graph_of(lambda x: x.astype("int32") @ weights.astype("int32"), x)
    return graph, [x], x.astype(np.int64) @ w


def conv_bytes_case() -> Case:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, 32, 20, 20)).astype(np.uint8)
    w = rng.integers(-128, 128, (64, 32, 3, 3)).astype(np.int8)
    weights = arenite.from_numpy(w)
    graph = graph_of(lambda x: x.astype("int32").conv(weights.astype("int32"), None, 1, 1), x)
    return graph, [x], conv_by_numpy(x, w.astype(np.float64), 1, 1, 1)


CASES: dict[str, Callable[[], Case]] = {
    "product": lambda: product_case(70, 64, 150),
    "odd product": lambda: product_case(37, 33, 1031),
    "transposed product": lambda: product_case(130, 64, 96, is_transposed=True),
    "one row": lambda: product_case(1, 700, 4100),
    "rows counted later": lambda: layer_case(150),
    "few rows counted later": lambda: layer_case(3),
    "convolution": lambda: conv_case(32, 80, 3, 1, 1),
    "convolution with a stride": lambda: conv_case(16, 64, 3, 2, 1),
    "convolution of one tap": lambda: conv_case(48, 96, 1, 1, 1),
    "groups": lambda: conv_case(64, 96, 3, 1, 2),
    "depthwise": lambda: conv_case(48, 48, 3, 1, 48),
    "blocks": lambda: packed_case(21),
    "bytes": lambda: bytes_case(50),
    "convolution of bytes": conv_bytes_case,
}


@pytest.mark.parametrize("name", CASES)
def test_all_ways_give_the_bits_of_the_usual_one_on_any_number_of_threads(name: str) -> None:
    graph, arrays, expected = CASES[name]()
    with compile_graph(graph, threads=1) as usual:
        [want] = usual(*arrays)
        code = [kernel.code for kernel in usual.kernels]
    tolerance = 0.1 if name == "blocks" else 1e-4  # blocks round x to 8 bits
    assert np.abs(want - expected).max() <= tolerance * np.abs(expected).max()
    [(content, names)] = subjects(graph)
    assert len(names) > 1
    for choice in names[1 :: max(1, len(names) // 4)]:
        choices.keep_choice(content, choice)
        for threads in THREADS:
            with compile_graph(graph, threads=threads) as tuned:
                assert [kernel.code for kernel in tuned.kernels] != code, choice
                assert tuned(*arrays)[0].tobytes() == want.tobytes(), (choice, threads)
                if threads == 1:
                    assert tuned.run_checked(*arrays)[0].tobytes() == want.tobytes()
                    tuned.verify()


def test_names_of_ways_have_the_same_parts_and_are_distinct() -> None:
    for make in CASES.values():
        for _, names in subjects(make()[0]):
            assert len(set(names)) == len(names)
            kinds = {tuple(part.split()[0] for part in name.split(", ")) for name in names}
            assert len(kinds) == 1, names


# What is kept.


def some_graph() -> tuple[Graph, list[Array]]:
    graph, arrays, _ = product_case(70, 64, 150)
    return graph, arrays


def code_of(executable: Executable) -> list[str]:
    with executable:
        return [kernel.code for kernel in executable.kernels]


def test_a_choice_is_used_until_it_is_taken_back() -> None:
    graph, _ = some_graph()
    [(content, names)] = subjects(graph)
    usual = code_of(compile_graph(graph))
    choices.keep_choice(content, names[1])
    tuned = code_of(compile_graph(graph))
    assert tuned != usual
    assert choices.choices_of(graph) == {content: names[1]}
    choices.keep_choice(content, names[2])
    assert code_of(compile_graph(graph)) not in (usual, tuned)
    choices.keep_choice(content, None)
    assert code_of(compile_graph(graph)) == usual


def test_all_programs_with_a_kernel_share_its_choice() -> None:
    x, y = numbers(70, 64), numbers(64, 150)
    one = graph_of(lambda a, b: a @ b, x, y)
    both = graph_of(lambda a, b, c: ((a @ b), c + 1.0), x, y, numbers(5))
    [(content, names)] = subjects(one)
    usual = code_of(compile_graph(both))
    choices.keep_choice(content, names[1])
    assert code_of(compile_graph(both)) != usual
    other, _, _ = product_case(71, 64, 150)
    assert choices.choices_of(other) == {}


def test_a_budget_that_only_the_usual_way_fits_is_kept() -> None:
    b = np.ascontiguousarray(numbers(512, 96))
    graph = graph_of(lambda x, y: x @ y.T, numbers(300, 96), b)
    usual = compile_graph(graph)
    code, need = code_of(usual), usual.plan.total_nbytes
    [(kernel, built, content)] = contents.tunable(passes.run(graph, PASSES)[0], USUAL)

    def scratch_nbytes(choice: str) -> int:
        return sum(evaluate(one.nbytes, {}) for one in build(kernel, host_target(), choice).scratch)

    greedy = max(built.choices, key=scratch_nbytes)
    assert scratch_nbytes(greedy) > scratch_nbytes(built.choices[0])
    choices.keep_choice(content, greedy)
    assert code_of(compile_graph(graph, Options(memory=need))) == code
    assert code_of(compile_graph(graph, Options(memory=need + scratch_nbytes(greedy)))) != code


# What is measured.


def test_a_trial_runs_the_kernel_as_it_is_asked_to() -> None:
    a, b = numbers(70, 64), numbers(64, 150)
    simplified, _ = passes.run(graph_of(lambda x, y: x @ y, a, b), PASSES)
    [(kernel, built, _)] = contents.tunable(simplified, USUAL)
    with Trial(kernel, host_target(), {}, [{}], program_nbytes=1 << 20) as trial:
        trial.add(built.choices[:3])
        results = {trial.result(name, 0, n) for name in built.choices[:3] for n in THREADS}
        assert len(results) == 1
        [result] = results
        # Operands are numbers around zero, 64 products of which have a standard deviation of 8.
        assert 7 < np.frombuffer(result, np.float32).std() < 9
        assert all(trial.seconds(name, 0, n) > 0 for name in built.choices[:3] for n in THREADS)
        with pytest.raises(KeyError):
            trial.result(built.choices[3], 0, 1)


# What is chosen.


class MadeUp:
    """A trial whose times and results are given: seconds and result by choice and threads."""

    def __init__(self, seconds: Mapping[str, Sequence[float]], others: Sequence[str] = ()) -> None:
        self.table = seconds
        self.others = others
        self.added: list[str] = []

    def add(self, names: Sequence[str]) -> None:
        self.added += names

    def seconds(self, choice: str, case: int, threads: int) -> float:
        assert choice in self.added
        return self.table[choice][threads > 1]

    def result(self, choice: str, case: int, threads: int) -> bytes:
        return b"other" if choice in self.others and threads > 1 else b"same"


def searched(trial: MadeUp, seconds: float | None = None) -> tuple[KernelTimes, bool]:
    search = tune._Search(
        cast(Trial, trial), list(trial.table), [(0, 1), (0, 2)], tune._Clock(seconds)
    )
    return search.result(), search.is_whole


def test_the_fastest_is_chosen_one_part_after_the_other() -> None:
    made = MadeUp(
        {
            "tile 2, parts 1": (1.0, 0.5),
            "tile 3, parts 1": (0.8, 0.4),
            "tile 4, parts 1": (0.9, 0.4),
            "tile 3, parts 2": (0.7, 0.3),
            "tile 4, parts 2": (0.1, 0.1),  # two parts away from what is best by then
        }
    )
    found, is_whole = searched(made)
    assert is_whole
    assert found.chosen == "tile 3, parts 2"
    assert set(found.times) == {
        "tile 2, parts 1",
        "tile 3, parts 1",
        "tile 4, parts 1",
        found.chosen,
    }
    assert found.times[found.chosen] == Times((0.7, 0.3))


def test_what_gives_other_bits_is_never_chosen() -> None:
    made = MadeUp(
        {"parts 1": (1.0, 0.5), "parts 2": (0.1, 0.1), "parts 4": (0.8, 0.4)}, ["parts 2"]
    )
    found, _ = searched(made)
    assert found.chosen == "parts 4"
    assert not found.times["parts 2"].is_same


def test_what_loses_on_one_thread_is_not_chosen_for_what_it_gains_on_two() -> None:
    found, _ = searched(MadeUp({"parts 1": (1.0, 0.5), "parts 2": (1.1, 0.2)}))
    assert found.chosen == "parts 1"


def test_a_clock_that_shows_too_little_once_makes_no_choice_and_no_time() -> None:
    class Disturbed(MadeUp):
        def __init__(self, seconds: Mapping[str, Sequence[float]]) -> None:
            super().__init__(seconds)
            self.n_runs = 0

        def seconds(self, choice: str, case: int, threads: int) -> float:
            right = super().seconds(choice, case, threads)
            self.n_runs += choice == "parts 2"
            return right / 10 if choice == "parts 2" and self.n_runs in (5, 6) else right

    table = {"parts 1": (1.0, 0.5), "parts 2": (1.0, 0.5)}
    found, _ = searched(Disturbed(table))
    assert found.chosen == "parts 1"
    assert found.times["parts 2"] == Times((1.0, 0.5))


def test_a_small_gain_is_none() -> None:
    found, _ = searched(MadeUp({"parts 1": (1.0, 0.5), "parts 2": (0.98, 0.49)}))
    assert found.chosen == "parts 1"


def test_without_time_only_the_usual_is_run() -> None:
    found, is_whole = searched(MadeUp({"parts 1": (1.0, 0.5), "parts 2": (0.1, 0.1)}), seconds=0.0)
    assert (found.chosen, list(found.times), is_whole) == ("parts 1", ["parts 1"], False)


# All of it.


def test_tune_shows_what_it_tried_and_remembers(cache_folder: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    table = arenite.tune(
        lambda a, b: a @ b,
        numbers(40, 64),
        numbers(64, 96),
        threads=2,
        on_progress=lambda *step: steps.append(step),
    )
    [(kernel, done, total), last] = steps
    assert (done, total, last) == (0, 1, ("", 1, 1))
    assert table.conditions == ("1 thread", "2 threads")
    assert {one.kernel for one in table.tried} == {kernel}
    assert table.tried[0].is_usual
    [chosen] = [one for one in table.tried if one.is_chosen]
    assert table.speedups == {kernel: pytest.approx(table.speedups[kernel])}
    assert all(len(one.seconds) == 2 and min(one.seconds) > 0 for one in table.tried)
    assert chosen.choice in str(table)
    assert chosen.choice in table._repr_html_()
    again = arenite.tune(lambda a, b: a @ b, numbers(40, 64), numbers(64, 96), threads=2)
    assert again.tried == table.tried
    assert json.loads(again.to_json())["choices"] == dict(table.choices)


def test_what_is_compiled_can_be_tuned() -> None:
    a, b = numbers(42, 64), numbers(64, 96)
    with arenite.compile(lambda x, y: x @ y, a, b) as program:
        for what in (program, program.executable):
            table = arenite.tune(what, threads=1)
            assert len({one.kernel for one in table.tried}) == 1
        with pytest.raises(InvalidArgument, match="takes no specs"):
            arenite.tune(program, a)
    with pytest.raises(InvalidArgument, match="no function to compile"):
        arenite.tune("model.gguf")


def test_of_a_program_in_segments_those_that_are_compiled_are_tuned() -> None:
    def network(x: Any, n: Any) -> Any:
        product = x @ x
        return product, (arange(n.sum()).sum().astype("float32") * product) @ x

    x, n = numbers(44, 44), np.array([2, 3])
    table = arenite.tune(network, x, n, threads=1)
    assert {one.kernel for one in table.tried} == {"segment 0 matmul_0"}
    with arenite.compile(network, x, n) as program:
        before = program(x, n)
        table = arenite.tune(program, threads=1)
        assert {one.kernel.split(" matmul")[0] for one in table.tried} == {"segment 0", "segment 1"}
        assert table.conditions == ("1 thread",)
        assert len(table.speedups) == 2
        assert arenite.tune(program, threads=1, seconds=0).tried == table.tried
    with arenite.compile(network, x, n) as program:
        for one, other in zip(program(x, n), before, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("winograd", "op"), [(True, "conv_winograd"), (False, "conv_last")])
def test_convolutions_are_tuned_as_they_are_done(winograd: bool, op: str) -> None:
    w = numbers(32, 32, 3, 3)
    table = arenite.tune(
        lambda x: x.conv(w, padding=1), numbers(1, 32, 20, 20), threads=1, winograd=winograd
    )
    assert {one.kernel.rsplit("_", 1)[0] for one in table.tried} == {op}


def test_without_time_nothing_is_tried_and_that_is_said() -> None:
    table = arenite.tune(lambda a, b: a @ b, numbers(41, 64), numbers(64, 96), seconds=0)
    assert (table.tried, table.n_left_out) == ((), 1)
    assert "no time for 1 more" in str(table)


def test_sizes_that_vary_are_measured_small_and_large() -> None:
    graph, _, _ = layer_case(3)
    found = tune.tune_graph(graph, threads=1)
    assert found.conditions == ("rows 128, 1 thread", "rows 1, 1 thread")
    given = tune.tune_graph(graph, threads=1, sizes=[{"rows": 7}])
    assert given.conditions == ("rows 7, 1 thread",)
    with pytest.raises(InvalidArgument, match="no size is called columns; there are: rows"):
        tune.tune_graph(graph, sizes=[{"columns": 1}])
    with pytest.raises(BoundsError):
        tune.tune_graph(graph, sizes=[{"rows": 301}])
    with pytest.raises(InvalidArgument, match="at least one thread"):
        tune.tune_graph(graph, threads=0)


def test_a_size_that_no_such_kernel_has_is_no_condition() -> None:
    rows = Var("rows", 0, 0)
    table = arenite.tune(
        lambda a, b, c: (a @ b, c + 1.0),
        numbers(43, 64),
        numbers(64, 96),
        arenite.spec((rows,)),
        threads=1,
    )
    assert table.conditions == ("1 thread",)
    assert {len(one.seconds) for one in table.tried} == {1}


def test_a_function_without_choices_has_an_empty_table() -> None:
    table = arenite.tune(lambda a: a + 1.0, numbers(5))
    assert table.tried == ()
    assert "nothing to tune" in str(table)
