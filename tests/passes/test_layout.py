"""Channels last: how few permutes are left, and that no result changes.

Elements are small whole numbers, which floats hold exactly however they are summed, so that graphs
before and after the pass are compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.passes.layout import layout, panels_of, why_left
from arenite.dtype import BY_NAME
from arenite.ir import reference, verify
from arenite.ir.dim import Var, evaluate
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.passes import apply, run
from arenite.tensor import Tensor, where
from tests.passes.lists import PASSES

Array = NDArray[Any]
FLOAT32 = BY_NAME["float32"]
LAST = ("conv_last", "depthwise_last")


def whole(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def tensor(*shape: Any, index: int = 0) -> Tensor:
    return Tensor.of_node(ir.graph_input(f"x{index}", index, shape, FLOAT32))


def weights(*shape: int, seed: int = 0) -> Tensor:
    return Tensor.of_node(ir.constant(whole(shape, seed), FLOAT32))


def conv(x: Tensor, out: int, kernel: int = 3, seed: int = 0, **more: Any) -> Tensor:
    groups = more.get("groups", 1)
    taps = (kernel,) * (x.ndim - 2)
    w = weights(out, evaluate(x.shape[1], {}) // groups, *taps, seed=seed)
    return x.conv(w, padding=more.pop("padding", kernel // 2), **more)


def after(*results: Tensor) -> Graph:
    return apply(Graph.of([result.node for result in results]), layout)


def permutes(graph: Graph) -> list[Node]:
    """Those of values that are not constants."""
    known: set[Node] = set()
    for node in graph.nodes:
        if node.op == "constant" or (node.inputs and all(v in known for v in node.inputs)):
            known.add(node)
    return [node for node in graph.nodes if node.op == "permute" and node not in known]


def check(graph: Graph, made: Graph) -> None:
    """The same numbers, in the same places."""
    verify(made)
    arrays = [
        whole(tuple(evaluate(n, {}) for n in node.shape), 5 + k)
        for k, node in enumerate(graph.inputs)
    ]
    for one, other in zip(
        reference.evaluate(graph, arrays), reference.evaluate(made, arrays), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_network_keeps_one_permute_at_its_entry_and_one_at_its_exit() -> None:
    x = tensor(2, 3, 16, 18)
    y = conv(x, 8, 7, stride=2).relu().max_pool(3, stride=2, padding=1)
    for stride, out in ((1, 8), (2, 12), (1, 12)):
        kept = y if stride == 1 else conv(y, out, 1, stride=stride)
        scale, shift = weights(out, 1, 1, seed=8), weights(out, 1, 1, seed=9)
        y = (conv(conv(y, 4).relu(), out, stride=stride) * scale + shift + kept).relu()
    y = conv(y, 12, groups=12)
    y = Tensor.of_node(ir.make("concat", y.node, conv(y, 5, 1).node, axis=1))
    graph = Graph.of([y.node])
    made = apply(graph, layout)
    entry, exit_ = permutes(made)
    assert entry.inputs[0] is x.node
    assert exit_ is made.outputs[0]
    assert not any(node.op == "conv" for node in made.nodes)
    check(graph, made)


def test_a_mean_over_all_places_needs_no_permute_behind_it() -> None:
    y = conv(tensor(2, 3, 5, 6), 8)
    squeezed = y.sum((2, 3), keepdims=True)
    gate = conv(conv(squeezed, 3, 1).relu(), 8, 1)
    graph = Graph.of([((y * gate).sum((2, 3)) @ weights(8, 4)).node])
    made = apply(graph, layout)
    [entry] = permutes(made)
    assert entry.inputs[0].op == "input"
    check(graph, made)


FOLLOWING: dict[str, Callable[[Tensor], Tensor]] = {
    "sum of channels": lambda y: y.sum(1),
    "max of lines": lambda y: y.max(2),
    "argmax of channels": lambda y: y.argmax(1),
    "slice": lambda y: y[:, 1:7:2, ::-1, 1:],
    "pad": lambda y: y.pad(((0, 0), (1, 0), (0, 2), (1, 1))),
    "joined places": lambda y: y.reshape(2, 8, 30),
    "all in one": lambda y: y.reshape(2, 240),
    "avg pool": lambda y: y.avg_pool(2, stride=1),
    "per place": lambda y: y + weights(1, 1, 5, 6, seed=3),
    "channels as tokens": lambda y: y.reshape(2, 8, 30).permute(0, 2, 1) * 2.0,
    "permuted by hand": lambda y: y.permute(0, 2, 3, 1).relu(),
    "gather": lambda y: Tensor.of_node(
        ir.make("gather", y.node, ir.constant(np.array([2, 0, 2])), axis=2)
    ),
    "with another value": lambda y: y * tensor(2, 8, 5, 6, index=1),
    "stretched": lambda y: y.sum(2, keepdims=True).expand(2, 8, 5, 6) + y,
    "with itself in another order": lambda y: y[..., :5] * y[..., 1:].permute(0, 1, 3, 2),
    "chosen in another order": lambda y: where(y[..., 1:] > 0, y[..., 1:].swapaxes(2, 3), 2.0),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows_a_convolution_gives_the_same(name: str) -> None:
    graph = Graph.of([FOLLOWING[name](conv(tensor(2, 3, 5, 6), 8)).node])
    made = apply(graph, layout)
    check(graph, made)
    for node in made.nodes:
        # Nothing is read through a permute but what is handed out or cannot be done so.
        if node.op not in ("permute", "reshape", *LAST):
            assert not any(v.op == "permute" and v.inputs[0].op in LAST for v in node.inputs)


@pytest.mark.parametrize("seed", range(25))
def test_random_networks_give_the_same(seed: int) -> None:
    random = Random(seed)
    n = random.choice([1, 2, 2, 3])
    values = [tensor(2, 3, *[7, 6, 5][:n])]
    for step in range(8):
        x = random.choice(values[-3:])
        channels = evaluate(x.shape[1], {})
        same = [v for v in values if v.shape == x.shape]
        choice = random.randrange(6)
        if choice == 0:
            values.append(conv(x, random.choice([2, 5]), random.choice([1, 3]), step))
        elif choice == 1:
            values.append(conv(x, channels, 3, step, groups=channels))
        elif choice == 2:
            values.append(random.choice(same) - x)
        elif choice == 3:
            values.append(x.max_pool(3, stride=1, padding=1))
        elif choice == 4:
            parts = [x.node, random.choice(same).node]
            values.append(Tensor.of_node(ir.make("concat", *parts, axis=1)))
        else:
            values.append(x.relu() + x.sum(1, keepdims=True).minimum(9.0))
    graph = Graph.of([values[-1].node, values[-2].node])
    made = apply(graph, layout)
    check(graph, made)
    check(graph, run(graph, PASSES)[0])


@pytest.mark.parametrize(("channels", "groups"), [(24, 1), (32, 2), (5, 5), (51, 3)])
def test_panels_hold_sixteen_channels_side_by_side(channels: int, groups: int) -> None:
    w = whole((channels, 4, 3, 2))
    [panels] = reference.evaluate(Graph.of([panels_of(ir.constant(w, FLOAT32), groups)]), [])
    own = channels // groups
    assert panels.shape == (groups, -(-own // 16), 3, 2, 4, 16)
    for channel in range(channels):
        group, within = divmod(channel, own)
        held = panels[group, within // 16, ..., within % 16]
        np.testing.assert_array_equal(held, np.moveaxis(w[channel], 0, -1))
    filled = np.moveaxis(panels, -1, 2).reshape(groups, -1, 24)[:, own:]
    assert not filled.any()


def test_padding_beyond_the_reach_of_the_kernel() -> None:
    graph = Graph.of([conv(tensor(1, 2, 4, 5), 3, 2, padding=[(3, 1), (0, 4)]).node])
    made = apply(graph, layout)
    [last] = [node for node in made.nodes if node.op == "conv_last"]
    assert last.inputs[0].attr("padding") == ((0, 0), (3, 1), (0, 0), (0, 0))
    assert last.attr("padding") == ((0, 0), (0, 4))
    check(graph, made)


@pytest.mark.parametrize("shape", [(2, 3, 9, 1), (2, 3, 1, 9), (2, 3, 1, 1), (2, 3, 1, 5, 1)])
@pytest.mark.parametrize("groups", [1, 3])
def test_axes_of_one_place_are_not_walked(shape: tuple[int, ...], groups: int) -> None:
    taps = tuple(min(size, 3) for size in shape[2:])
    x = tensor(*shape).conv(weights(6, 3 // groups, *taps), groups=groups, stride=2).relu()
    graph = Graph.of([conv(x, 4, 1).node])
    made = apply(graph, layout)
    ranks = {node.ndim for node in made.nodes if node.op in LAST}
    assert ranks == {3}
    check(graph, made)


def test_why_a_convolution_is_left_alone() -> None:
    attrs: Any = {"strides": (1,), "padding": ((0, 0),), "dilations": (1,), "groups": 1}
    image = ir.graph_input("x", 0, (1, 2, 9), BY_NAME["int8"])
    node = ir.make("conv", image, ir.graph_input("w", 1, (4, 2, 3), BY_NAME["int8"]), **attrs)
    assert why_left(node) == "int8 has no micro-kernel"
    assert apply(Graph.of([node]), layout).outputs[0] is node
    n = Var("n", 1, 8)
    several = ir.make(
        "conv",
        ir.graph_input("x", 0, (1, 2, 9), FLOAT32),
        ir.graph_input("w", 1, (n, 2, 3), FLOAT32),
        **attrs,
    )
    assert "not fixed" in (why_left(several) or "")
    assert why_left(conv(tensor(1, 2, 9), 4).node) is None


def test_graphs_without_convolutions_stay_as_they_are() -> None:
    x = tensor(2, 3, 5)
    y = (x.permute(0, 2, 1).relu() + 1.0).sum(2)
    assert after(y).outputs[0] is y.node


def test_a_chain_deeper_than_the_stack() -> None:
    y = conv(tensor(1, 2, 4), 3)
    node = y.node
    for _ in range(20_000):
        node = ir.make("neg", node)
    made = apply(Graph.of([node]), layout)
    assert made.outputs[0].op == "permute"
    assert len(permutes(made)) == 2
