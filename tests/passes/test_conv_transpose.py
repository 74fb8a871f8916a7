"""Transposed convolutions as plain ones: exact, by whole numbers, against the op's own meaning.

The op's meaning is held against PyTorch in tests/tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.errors import ShapeMismatch
from arenite.ir import reference, verify
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.passes import apply, run
from arenite.passes.conv_transpose import transposed
from arenite.pipeline import compile_graph
from tests.passes.lists import PASSES
from tests.passes.scattered import scattered

FLOAT32 = BY_NAME["float32"]


def whole(shape: Any, seed: int) -> Any:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def node_of(image: Any, weights: Any, strides: Any, **more: Any) -> Node:
    n = len(strides)
    attrs = {
        "strides": strides,
        "padding": ((0, 0),) * n,
        "output_padding": (0,) * n,
        "dilations": (1,) * n,
        "groups": 1,
    } | more
    x = ir.graph_input("x", 0, image, FLOAT32)
    return ir.make("conv_transpose", x, ir.graph_input("w", 1, weights, FLOAT32), **attrs)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_shape(data: st.DataObject) -> None:
    draw = data.draw
    n = draw(st.integers(1, 3))
    groups, per_group, out = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
    )
    per_axis = [
        (
            draw(st.integers(1, 5)),
            draw(st.integers(1, 5)),
            draw(st.integers(1, 4)),
            draw(st.integers(0, 2)),
        )
        for _ in range(n)
    ]
    sizes, kernel, strides, extra = zip(*per_axis, strict=True)
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(n))
    try:
        node = node_of(
            (2, groups * per_group, *sizes),
            (groups * per_group, out, *kernel),
            strides,
            padding=padding,
            output_padding=extra,
            groups=groups,
        )
    except ShapeMismatch:
        return
    if 0 in node.shape:
        return
    graph = Graph.of([node])
    arrays = [whole(value.shape, k) for k, value in enumerate(graph.inputs)]
    [expected] = reference.evaluate(graph, arrays)
    for made in (apply(graph, transposed), run(graph, PASSES)[0]):
        verify(made)
        [result] = reference.evaluate(made, arrays)
        np.testing.assert_array_equal(result, expected)


def test_no_zeros_are_put_between() -> None:
    made = apply(Graph.of([node_of((1, 8, 5, 5), (8, 4, 4, 4), (2, 2))]), transposed)
    [conv] = [node for node in made.nodes if node.op == "conv"]
    assert conv.inputs[0].op == "input"
    assert conv.inputs[1].shape == (16, 8, 2, 2)


@pytest.mark.parametrize(
    ("taps", "strides", "groups"),
    [
        ((3,), (2,), 1),
        ((2,), (5,), 1),
        ((7,), (4,), 2),
        ((3, 3), (2, 2), 1),
        ((3, 3), (2, 2), 8),
        ((5, 4), (3, 2), 2),
        ((1, 6), (2, 4), 1),
    ],
)
def test_an_infinity_reaches_the_places_of_its_taps_and_no_other(
    taps: tuple[int, ...], strides: tuple[int, ...], groups: int
) -> None:
    """Where the stride does not divide the kernel, taps of zero made NaN of it elsewhere."""
    n = len(taps)
    padding, more = ((1, 0),) * n, tuple(stride - 1 for stride in strides)
    node = node_of(
        (2, 8, *[5] * n),
        (8, 3, *taps),
        strides,
        padding=padding,
        output_padding=more,
        groups=groups,
    )
    graph = Graph.of([node])
    x, w = (whole(value.shape, k) for k, value in enumerate(graph.inputs))
    w[w == 0] = 1
    x[(0, 1, *[2] * n)], x[(1, 6, *[4] * n)], x[(1, 3, *[0] * n)] = np.inf, -np.inf, np.nan
    wanted = scattered(x, w, strides, padding, more, groups)
    assert np.isinf(wanted).any()
    [made] = reference.evaluate(apply(graph, transposed), [x, w])
    np.testing.assert_array_equal(made, wanted)
    with compile_graph(graph) as program:
        np.testing.assert_array_equal(program(x, w)[0], wanted)


@pytest.mark.parametrize(
    ("out", "groups", "is_before"), [(16, 1, True), (16, 2, False), (2, 1, False)]
)
def test_work_on_channels_is_done_before_places_are_dealt_out(
    out: int, groups: int, is_before: bool
) -> None:
    y = node_of((2, 8, 5, 4), (8, out, 2, 2), (2, 2), groups=groups)
    for k, op in enumerate(("mul", "add")):
        numbers = ir.constant(whole((1, out * groups, 1, 1), k), FLOAT32)
        y = ir.make(op, y, ir.make("expand", numbers, shape=y.shape))
    y = ir.make("maximum", y, ir.full(y.shape, 0.0, FLOAT32))
    graph = Graph.of([y])
    made, _ = run(graph, PASSES)
    verify(made)
    arrays = [whole(value.shape, 5 + k) for k, value in enumerate(graph.inputs)]
    np.testing.assert_array_equal(
        reference.evaluate(made, arrays)[0], reference.evaluate(graph, arrays)[0]
    )
    [last] = [node for node in made.nodes if node.op == "maximum"]
    assert (last.shape == (2, 5, 4, 4 * out)) == is_before


def test_dilated_ones_are_left_to_be_written_out() -> None:
    node = node_of((1, 8, 5, 5), (8, 4, 4, 4), (2, 2), dilations=(1, 2))
    assert transposed(node) is node


@pytest.mark.parametrize("stride", [2, 3])
def test_upsampling_between_convolutions_compiled(stride: int) -> None:
    n = Var("n", 1, 4)
    x = ir.graph_input("x", 0, (n, 6, 5, 7), FLOAT32)
    w = [
        ir.constant(whole(shape, k), FLOAT32)
        for k, shape in enumerate([(8, 6, 3, 3), (8, 4, 2, 2)])
    ]
    plain: Any = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilations": (1, 1), "groups": 1}
    up: Any = plain | {"strides": (stride, stride), "padding": ((0, 0), (0, 0))}
    y = ir.make("abs", ir.make("conv", x, w[0], **plain))
    y = ir.make("conv_transpose", y, w[1], output_padding=(0, 0), **up)
    graph = Graph.of([y])
    given = whole((3, 6, 5, 7), 9)
    [expected] = reference.evaluate(graph, [given])
    with compile_graph(graph) as program:
        [result] = program(given)
        program.verify()
        [checked] = program.run_checked(given)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(checked, expected)


def test_one_of_which_all_is_cut_off_has_no_elements() -> None:
    node = node_of((2, 3, 1, 4), (3, 2, 1, 1), (1, 1), padding=((1, 0), (0, 0)))
    assert node.shape == (2, 2, 0, 4)
    with compile_graph(Graph.of([node])) as program:
        [found] = program(whole((2, 3, 1, 4), 0), whole((3, 2, 1, 1), 1))
    assert found.shape == (2, 2, 0, 4)


@pytest.mark.parametrize(
    ("image", "more"),
    [
        ((2, 3, 1, 4), {"padding": ((0, 1), (0, 0)), "strides": (2, 1), "dilations": (2, 2)}),
        ((2, 3, 0, 4), {"strides": (1, 2)}),
        ((2, 3, 4, 0), {"strides": (2, 2), "output_padding": (1, 1)}),
    ],
    ids=["all of it cut off", "no line", "no column"],
)
def test_one_of_nothing_is_compiled(image: Any, more: dict[str, Any]) -> None:
    taps = (3, 1, 3, 3) if 0 in image else (3, 1, 1, 2)
    graph = Graph.of([node_of(image, taps, **more)])
    arrays = [whole(image, 0), whole(taps, 1)]
    [wanted] = reference.evaluate(graph, arrays)
    with compile_graph(graph) as program:
        [found] = program(*arrays)
    np.testing.assert_array_equal(found, wanted)
    assert found.shape == wanted.shape
