"""Attention on WebGPU, of one query and of many; the judge is the reference in float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from arenite.backends.webgpu.attention import LONG
from arenite.backends.webgpu.table import DispatchTable
from arenite.dtype import BY_NAME
from arenite.ir import Node, Var, graph_input, reference
from arenite.ir.compose.basic import flip, permute, slice_axis
from arenite.ir.compose.neural import attention
from arenite.ir.dim import Dim, bounds
from arenite.ir.graph import Graph
from tests.backends.webgpu.runner import Array, executable, loaded, webgpu

F32 = BY_NAME["float32"]
#: Values are about 1 and weights sum up to 1.
BOUND = 2e-6


class Case(NamedTuple):
    heads: int
    groups: int
    queries: int
    keys: int
    width: int
    dtype: str = "float32"
    causal: bool = True
    window: int | None = None


CASES = (
    Case(4, 2, 1, 300, 64, "float16"),
    Case(2, 1, 1, 600, 128),
    Case(4, 4, 7, 37, 32, causal=False),
    Case(4, 2, 9, 20, 96, "float16", window=5),
    Case(2, 1, 6, 6, 8, "bfloat16"),
    Case(2, 2, 3, 2, 4),  # the first query sees nothing
    Case(1, 1, 5, 9, 256, "float16", window=1),
    Case(2, 1, 5, 70, 256),  # two teams
)
#: Keys in parts, of which those that no query sees are none.
LONG_CASES = (
    Case(8, 2, 1, 2000, 64, "float16"),
    Case(6, 1, 3, LONG + 1, 32),
    Case(7, 1, 2, 1900, 8),
    Case(16, 2, 4, 2300, 64, "float16", window=300),
    Case(2, 2, 1, 1800, 128, "bfloat16", causal=False),
    Case(4, 4, 2, 1850, 80),
)


def turned(case: Case, queries: Dim, keys: Dim) -> tuple[list[Node], Node]:
    """As a language model has it: [tokens, heads, width], in and out."""
    kind = BY_NAME[case.dtype]
    given = [
        graph_input("q", 0, (queries, case.heads, case.width), F32),
        graph_input("k", 1, (keys, case.groups, case.width), kind),
        graph_input("v", 2, (keys, case.groups, case.width), kind),
    ]
    sides = (permute(one, (1, 0, 2)) for one in given)
    offset = keys - queries if case.causal else 0
    seen = attention(*sides, causal=case.causal, offset=offset, window=case.window)
    return given, permute(seen, (1, 0, 2))


def numbers(node: Node, *given: int) -> Array:
    """Of these sizes, or of the node's own."""
    sizes = given or tuple(bounds(size)[1] for size in node.shape)
    rng = np.random.default_rng(len(sizes) + sum(sizes))
    return rng.standard_normal(sizes).astype(node.dtype.to_numpy())


def judged(node: Node, arrays: list[Array], found: Array) -> None:
    [wanted] = reference.evaluate(Graph.of([node]), arrays)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= BOUND


@pytest.mark.parametrize("case", [*CASES, *LONG_CASES], ids=str)
def test_attention_of_rows_as_models_have_them(case: Case) -> None:
    webgpu()
    given, node = turned(case, case.queries, case.keys)
    arrays = [numbers(one) for one in given]
    with executable([node]) as program:
        assert any("foreign" in kernel.code for kernel in program.kernels)
        found = program(*arrays)[0]
        judged(node, arrays, found)
        np.testing.assert_array_equal(program(*arrays)[0], found)
        program.run_checked(*arrays)


def test_queries_and_keys_of_open_numbers() -> None:
    webgpu()
    case = Case(4, 2, 0, 0, 64, "float16")
    given, node = turned(case, Var("n", 1, 40), Var("s", 1, 100))
    with executable([node]) as program:
        for queries, keys in ((1, 50), (5, 60), (40, 100), (4, 4), (1, 1)):
            sizes = ((queries, 4, 64), (keys, 2, 64), (keys, 2, 64))
            arrays = [numbers(one, *size) for one, size in zip(given, sizes, strict=True)]
            judged(node, arrays, program(*arrays)[0])


def test_many_keys_are_seen_in_parts_where_there_are_many() -> None:
    """One kernel and one launch, whose parts are joined by a dispatch of their own."""
    webgpu()
    case = Case(4, 2, 0, 0, 64, "float16")
    given, node = turned(case, Var("n", 1, 40), Var("s", 1, 3000))
    with executable([node]) as program:
        counts = []
        sizes_of = ((1, 3000), (4, LONG + 1), (3, LONG), (5, 1900), (1, 1), (1, LONG + 1), (1, 5))
        for queries, keys in sizes_of:
            sizes = ((queries, 4, 64), (keys, 2, 64), (keys, 2, 64))
            arrays = [numbers(one, *size) for one, size in zip(given, sizes, strict=True)]
            judged(node, arrays, program(*arrays)[0])
            table = loaded(program).bound_table({"n": queries, "s": keys})
            counts.append(table.n_dispatches)
            program.run_checked(*arrays)
        assert counts == [2, 2, 1, 1, 1, 2, 1]
        [kernel] = (one for one in program.kernels if "attention" in one.entry_point)
        assert "then" in kernel.code
        assert "checked by the device" not in kernel.code


def test_shaders_are_chosen_where_sizes_pass_a_threshold_and_not_for_every_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    webgpu()
    _, node = turned(Case(4, 2, 0, 0, 64, "float16"), Var("n", 1, 40), Var("s", 1, 3000))
    chosen: list[int] = []
    choose = DispatchTable._choose

    def noted(table: DispatchTable) -> None:
        chosen.append(table._known.get("s", 0))  # the size before
        choose(table)

    monkeypatch.setattr(DispatchTable, "_choose", noted)
    with executable([node]) as program:
        table = loaded(program).bound_table({"n": 1, "s": 1})
        chosen.clear()
        for keys in (2, 3, LONG, LONG + 1, LONG + 2, 3000, LONG, 7):
            table.resize({"n": 1, "s": keys})
    assert chosen == [LONG, 3000]


@pytest.mark.parametrize("kind", ["key", "value"])
def test_what_is_infinite_among_many_keys_counts_for_itself_alone(kind: str) -> None:
    webgpu()
    given, node = turned(Case(2, 1, 1, 1900, 8), 1, 1900)
    arrays = [np.abs(numbers(one)) for one in given]
    if kind == "key":
        arrays[1][300:600, 0, 2] = -np.inf  # a whole part has no weight
    else:
        arrays[2][1899, 0, 3] = np.inf
    with executable([node]) as program:
        found = program(*arrays)[0]
    with np.errstate(invalid="ignore"):
        [wanted] = reference.evaluate(Graph.of([node]), arrays)
    np.testing.assert_array_equal(np.isinf(found), np.isinf(wanted))
    np.testing.assert_allclose(found, wanted, atol=BOUND)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_operands_that_begin_inside_of_four_words(dtype: str) -> None:
    webgpu()
    kind = BY_NAME[dtype]
    q = graph_input("q", 0, (2, 3, 18), F32)
    k, v = (graph_input(name, n, (2, 7, 17), kind) for n, name in enumerate("kv", 1))
    node = attention(slice_axis(q, 2, 1, 17), slice_axis(k, 2, 1, 17), slice_axis(v, 2, 0, 16))
    arrays = [numbers(one) for one in (q, k, v)]
    with executable([node]) as program:
        judged(node, arrays, program(*arrays)[0])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("axis", [1, 2])
def test_operands_may_be_turned_round(dtype: str, axis: int) -> None:
    webgpu()
    given = [graph_input("q", 0, (2, 3, 16), F32)]
    given += [graph_input(name, n, (2, 7, 16), BY_NAME[dtype]) for n, name in enumerate("kv", 1)]
    node = attention(*(flip(one, [axis]) for one in given))
    arrays = [numbers(one) for one in given]
    with executable([node]) as program:
        assert any("foreign" in kernel.code for kernel in program.kernels)
        judged(node, arrays, program(*arrays)[0])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_is_infinite_counts_for_its_own_key_alone(dtype: str) -> None:
    """The last key and the last part of it, which are read again where a round has more."""
    webgpu()
    given = [graph_input("q", 0, (2, 3, 40), F32)]
    given += [graph_input(name, n, (2, 7, 40), BY_NAME[dtype]) for n, name in enumerate("kv", 1)]
    arrays = [np.abs(numbers(one)) for one in given]
    arrays[1][0, 2, -1] = -np.inf  # has no weight
    arrays[2][1, -1, 3] = np.inf
    with executable([attention(*given)]) as program:
        found = program(*arrays)[0]
    with np.errstate(invalid="ignore"):
        [wanted] = reference.evaluate(Graph.of([attention(*given)]), arrays)
    assert np.isinf(wanted[1, :, 3]).all()
    np.testing.assert_array_equal(np.isinf(found), np.isinf(wanted))
    np.testing.assert_allclose(found, wanted, atol=BOUND)


def test_attention_with_a_mask_is_written_out() -> None:
    webgpu()
    q, k, v, mask = (
        graph_input(name, n, shape, F32)
        for n, (name, shape) in enumerate(
            {"q": (2, 3, 8), "k": (2, 5, 8), "v": (2, 5, 8), "mask": (1, 3, 5)}.items()
        )
    )
    node = attention(q, k, v, mask)
    arrays = [numbers(one) for one in (q, k, v, mask)]
    with executable([node]) as program:
        assert not any("foreign" in kernel.code for kernel in program.kernels)
        judged(node, arrays, program(*arrays)[0])
