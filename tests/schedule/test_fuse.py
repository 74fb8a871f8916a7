"""Fusion: which kernels a graph becomes, and why each of them ends where it does."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pytest

import arenite
from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir.compose.reductions import reduce
from arenite.ir.dim import Found, Var
from arenite.ir.graph import Graph, found_sizes
from arenite.ir.node import Node
from arenite.ir.ops.control import cut
from arenite.passes import run
from arenite.schedule import Role, Schedule, fuse
from arenite.schedule.roots import MAX_OPS
from arenite.tensor import Tensor, spec
from tests.passes.lists import PASSES

FLOAT32, INT64 = BY_NAME["float32"], BY_NAME["int64"]


def x_of(*shape: int, index: int = 0) -> Node:
    return ir.graph_input(f"x{index}", index, shape, FLOAT32)


def scheduled(*outputs: Node) -> Schedule:
    graph, _ = run(Graph.of(outputs), PASSES)
    return fuse(graph)


def borders(schedule: Schedule) -> list[str]:
    return [kernel.border for kernel in schedule.kernels]


def dear(x: Node) -> Node:
    """Too dear to compute twice."""
    return ir.make("tanh", x)


def spread(node: Node, shape: tuple[int, ...]) -> Node:
    return ir.make("expand", node, shape=shape)


def argument(*shape: int, index: int = 0) -> Tensor:
    return spec(shape).argument(f"x{index}", index)


# One kernel.


def test_a_chain_of_elementwise_ops_is_one_kernel() -> None:
    x = x_of(3, 4)
    [kernel] = scheduled(ir.make("neg", ir.make("mul", dear(x), x))).kernels
    assert kernel.inputs == (x,)
    assert kernel.border == "an output of the graph"
    assert kernel.n_ops == 3


def test_norms_and_softmax_are_one_kernel_each() -> None:
    x, weight, bias = argument(64, 200), argument(200, index=1), argument(200, index=2)
    made = {
        "softmax": x.softmax(),
        "log_softmax": x.log_softmax(),
        "layer_norm": x.layer_norm(weight, bias),
        "rms_norm": x.rms_norm(weight),
        "softmax over columns": x.softmax(0),
    }
    for name, tensor in made.items():
        schedule = scheduled(tensor.node)
        assert len(schedule.kernels) == 1, f"{name}\n{schedule}"


def test_norms_over_open_sizes_are_one_kernel_each() -> None:
    """There may be one row, or much work, but not much work in one row."""
    shape = (ir.Var("batch", 1, 64), ir.Var("length", 1, 512), 200)
    x = Tensor.of_node(ir.graph_input("x", 0, shape, BY_NAME["float32"]))
    for tensor in (x.softmax(), x.layer_norm(), x.rms_norm()):
        schedule = scheduled(tensor.node)
        assert len(schedule.kernels) == 1, str(schedule)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_matmul_with_bias_and_gelu_is_one_kernel(approximate: str) -> None:
    x, w, bias = argument(32, 64), argument(64, 48, index=1), argument(48, index=2)
    [kernel] = scheduled((x @ w + bias).gelu(approximate).node).kernels
    assert {stage.role for stage in kernel.stages} == {Role.REDUCE, Role.SCALAR}


def test_views_cost_no_kernel() -> None:
    x = x_of(6, 4)
    moved = ir.make("permute", ir.make("reshape", x, shape=(2, 3, 4)), axes=(2, 0, 1))
    sliced = ir.make("slice", moved, start=(3, 0, 0), stop=(0, 2, 3), step=(-2, 1, 1))
    [kernel] = scheduled(ir.make("add", sliced, sliced)).kernels
    assert kernel.inputs == (x,)


def test_a_reduction_takes_in_what_it_reduces_and_hands_on_what_it_gave() -> None:
    x = x_of(8, 9)
    total = ir.make("sum", ir.make("mul", x, x), axes=(1,))
    [kernel] = scheduled(ir.make("sqrt", total)).kernels
    assert [stage.role for stage in kernel.stages] == [Role.REDUCE, Role.SCALAR]


def test_parts_dealt_out_are_computed_where_they_are_needed() -> None:
    """Each half once: nothing is computed twice, so nothing is stored between."""
    y = dear(x_of(8, 4))

    def rows(start: int, stop: int) -> Node:
        return ir.make("slice", y, start=(start, 0), stop=(stop, 4), step=(1, 1))

    halves = [ir.make("sum", rows(k, k + 4), axes=(1,)) for k in (0, 4)]
    assert [kernel.inputs for kernel in scheduled(*halves).kernels] == [(x_of(8, 4),)] * 2


# Borders, each with its reason.


def test_a_value_of_which_only_the_size_is_asked_is_not_computed() -> None:
    sized = ir.make("cumsum", x_of(2, 5, index=1), axis=0)
    [kernel] = scheduled(ir.make("neg", ir.make("front", x_of(3, 4), sized, axis=0))).kernels
    assert kernel.inputs == (x_of(3, 4),)


def test_an_output_ends_a_kernel() -> None:
    x = x_of(4)
    assert borders(scheduled(dear(x))) == ["an output of the graph"]


def test_a_reduction_ends_a_kernel_that_cannot_take_in_its_user() -> None:
    x = x_of(5, 6)
    means = ir.make("sum", x, axes=(0,))
    again = ir.make("sum", dear(means), axes=(0,))
    first, _ = borders(scheduled(again))
    assert first == "a reduction is complete only when all of its elements are in"


def test_ops_with_kernels_of_their_own_read_from_memory() -> None:
    x = x_of(5, 6)
    ordered = ir.make("sort", dear(x), axis=1, descending=False)
    schedule = scheduled(ir.make("neg", ordered))
    assert borders(schedule) == [
        "sort reads it from memory",
        "sort is a kernel of its own",
        "an output of the graph",
    ]


def test_values_used_often_are_kept_unless_cheap() -> None:
    x = x_of(5, 6)
    kept, cheap = dear(x), ir.make("neg", x)

    def users(value: Node) -> list[Node]:
        turned = ir.make("permute", value, axes=(1, 0))
        return [ir.make("exp", turned), ir.make("sin", turned), ir.make("cos", turned)]

    assert "used 3 times and not cheap to compute anew" in borders(scheduled(*users(kept)))
    assert len(scheduled(*users(cheap)).kernels) == 3


def test_bytes_that_are_not_cheap_to_compute_anew_are_kept() -> None:
    """They are less to keep than what they are made of, and than what is made of them."""
    x = x_of(5, 6)

    def users(value: Node) -> Schedule:
        byte = ir.make("cast", value, dtype=BY_NAME["uint8"])
        turned = ir.make("permute", ir.make("cast", byte, dtype=FLOAT32), axes=(1, 0))
        return scheduled(ir.make("neg", turned))

    kept, _ = borders(users(dear(x)))
    assert kept == "fewer bytes than anything it is made of, and not cheap to compute anew"
    assert len(users(ir.make("neg", x)).kernels) == 1


def test_values_spread_over_many_elements_are_kept_unless_cheap() -> None:
    x = x_of(5, 1)
    wide = spread(dear(x), (5, 100))
    first, _ = borders(scheduled(ir.make("neg", wide)))
    assert first == "spread over more elements than it has, and not cheap to compute anew"
    assert len(scheduled(ir.make("neg", spread(ir.make("neg", x), (5, 100)))).kernels) == 1


@pytest.mark.parametrize("user", ["matmul", "window"])
def test_values_read_many_times_are_kept(user: str) -> None:
    y = ir.make("neg", x_of(8, 8))
    if user == "matmul":
        made = ir.make("matmul", y, x_of(8, 8, index=1), transpose_a=False, transpose_b=False)
    else:
        attrs: Any = {"axes": (1,), "sizes": (3,), "strides": (1,), "dilations": (1,)}
        made = ir.make("sum", ir.make("window", y, **attrs), axes=(2,))
    assert f"each element is read many times by {user}" in borders(scheduled(made))


def test_pieces_of_constants_are_put_together_once() -> None:
    def borders_for(n: int) -> list[str]:
        one, other = (arenite.from_numpy(np.arange(k, dtype=np.float32)) for k in (n + 4, n))
        joined = arenite.concat([one, other])
        bias = joined[:n] + joined[n : 2 * n]
        x = spec((Var("rows", 1, 9), n)).argument("x", 0)
        return borders(scheduled((x + arenite.expand_dims(bias, 0)).node))

    end = "an output of the graph"
    assert borders_for(512) == [
        "it follows from constants, whose pieces are put together once",
        end,
    ]
    assert borders_for(1 << 15) == [end]  # a copy of much


def test_a_reshape_that_divides_indices_reads_from_memory() -> None:
    x = x_of(4, 6)
    turned = ir.make("permute", ir.make("neg", x), axes=(1, 0))
    mixed = ir.make("reshape", turned, shape=(8, 3))
    first, _ = borders(scheduled(ir.make("exp", mixed)))
    assert first == "its reshape is not affine, so it is read from memory in order"


def test_a_kernel_has_a_cap_on_its_operations() -> None:
    y = x_of(4)
    for _ in range(3 * MAX_OPS):
        y = ir.make("neg", ir.make("abs", y))
    schedule = scheduled(y)
    assert all(kernel.n_ops <= MAX_OPS + 1 for kernel in schedule.kernels)
    assert borders(schedule)[0] == f"more than {MAX_OPS} operations in one kernel"


def test_no_join_closes_a_circle() -> None:
    """The sum's user needs the sort, which needs what the sum reads: one kernel can't be both."""
    y = dear(x_of(5, 6))
    ordered = ir.make("sort", y, axis=1, descending=False)
    made = ir.make("add", y, ordered)
    names = [kernel.stages[0].node.op for kernel in scheduled(made).kernels]
    assert names == ["tanh", "sort", "add"]


# Long reductions.


def test_a_long_reduction_is_cut_into_chunks_that_tiles_can_share() -> None:
    first, second = scheduled(ir.make("sum", x_of(1_000_000), axes=(0,))).kernels
    assert len(first.outer_shape) == 1
    assert first.outer_shape[0] == second.space[0]
    assert int(str(second.space[0])) >= 8


def test_a_remainder_is_reduced_by_itself() -> None:
    kernels = scheduled(ir.make("max", dear(x_of(1_000_003)), axes=(0,))).kernels
    assert len(kernels) == 3
    assert all(kernel.inputs for kernel in kernels)


def test_short_rows_stay_whole() -> None:
    assert len(scheduled(ir.make("sum", x_of(64, 100_000), axes=(1,))).kernels) == 1
    assert len(scheduled(ir.make("sum", x_of(100_000), axes=(0,))).kernels) == 1


def test_a_full_reduction_leaves_its_users_to_all_tiles() -> None:
    x = x_of(1, 400_000)
    place = ir.make("cast", ir.make("argmax", x, axis=1), dtype=FLOAT32)
    made = ir.make("sub", x, spread(ir.make("reshape", place, shape=(1, 1)), (1, 400_000)))
    last = scheduled(made).kernels[-1]
    assert last.axes == (), "a map of its own, which any number of tiles may share"


# Time.


def residual_network(n_layers: int) -> Graph:
    x, w = x_of(4, 8), x_of(8, 8, index=1)
    y = x
    for _ in range(n_layers):
        total = ir.make("reshape", ir.make("sum", dear(y), axes=(1,)), shape=(4, 1))
        z = ir.make("sub", y, spread(total, (4, 8)))
        y = ir.make("add", dear(y), ir.make("matmul", z, w, transpose_a=False, transpose_b=False))
    return Graph((x, w), (y,))


def test_work_grows_with_the_graph_and_not_with_its_square() -> None:
    def n_calls(n_layers: int) -> int:
        """Of functions of Python and of C, which every loop is made of."""
        graph, count = residual_network(n_layers), itertools.count()
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, argument: next(count) and None)
        try:
            fuse(graph)
        finally:
            sys.setprofile(before)
        return next(count)

    assert n_calls(800) < 5 * n_calls(200)


def test_sizes_are_looked_for_in_each_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in all that was computed before: every layer of a language model has a cut."""
    looked: list[Node] = []

    def counted(node: Node) -> set[Found]:
        looked.append(node)
        return found_sizes(node)

    monkeypatch.setattr(sys.modules["arenite.schedule.fuse"], "found_sizes", counted)

    def n_looked(n_layers: int) -> int:
        x, count = x_of(8, 4), ir.graph_input("count", 1, (), INT64)
        for _ in range(n_layers):
            rows = cut(dear(x), count)
            x = spread(reduce("sum", rows, [0], keep=True), (8, 4))
        looked.clear()
        scheduled(x)
        return len(looked)

    few, many = n_looked(10), n_looked(40)
    assert 0 < many <= 4 * few
