"""Convolutions of bytes, which become dot products of words: no number changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import ir
from arenite.backends.cpu.passes.integers import conv_panels
from arenite.ir import reference
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.passes import run
from arenite.pipeline import compile_graph
from tests.passes.byte_graphs import (
    BYTES,
    FEW,
    MANY,
    PLAIN,
    Case,
    check,
    conv_arrays,
    conv_node,
    convolved,
    given_tensor,
    known,
    less,
    numbers,
    ops_of,
    quantised,
)
from tests.passes.lists import PASSES


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("w_type", BYTES)
@pytest.mark.parametrize("zeros", [(0, 0), (3, 0), (0, 5), (100, "channels")])
@pytest.mark.parametrize("case", [PLAIN, FEW, MANY])
def test_convolutions_of_bytes(
    a_type: Any, w_type: Any, zeros: tuple[Any, Any], case: Case
) -> None:
    x, w = conv_arrays(case, a_type, w_type)
    za, zw = zeros
    each = numbers((9, 1, 1, 1), w_type, 3).astype(np.int32)
    of_w = each if zw == "channels" else zw
    shown = known(each) if zw == "channels" else zw
    y = conv_node(case, less(given_tensor(x), za), less(known(w), shown))
    check([y], [x], [convolved(case, x, w, za, of_w)], "conv_bytes")


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("w_type", BYTES)
def test_convolutions_of_bytes_as_they_are(a_type: Any, w_type: Any) -> None:
    x, w = conv_arrays(PLAIN, a_type, w_type, "extreme")
    y = conv_node(PLAIN, given_tensor(x), known(w))
    check([y], [x], [convolved(PLAIN, x, w, 0, 0)], "conv_bytes")


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("zero", [3, 200, 300, -5])
@pytest.mark.parametrize("is_later", [True, False])
def test_zero_points_that_no_byte_around_the_image_can_be(
    kind: Any, zero: int, is_later: bool
) -> None:
    case = Case((6, 7), 5, 8, (3, 2), padding=((1, 2), (2, 1)), groups=2, images=2, stride=2)
    x, w = conv_arrays(case, kind, np.uint8)
    given = np.asarray(zero, np.int32)
    za = given_tensor(given, 1) if is_later else zero
    y = conv_node(case, less(given_tensor(x), za), less(known(w), 5))
    arrays = [x, given] if is_later else [x]
    check([y], arrays, [convolved(case, x, w, zero, 5)], "conv_bytes")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 3))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(n))
    dilation = draw(st.integers(1, 2))
    sides = [
        (
            draw(st.integers(dilation * (k - 1) + 1, 9)),
            (draw(st.integers(0, 3)), draw(st.integers(0, 3))),
        )
        for k in kernel
    ]
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    return Case(
        tuple(size for size, _ in sides),
        draw(st.integers(1 if groups == 1 else 2, 20)),
        draw(st.integers(1, 12)) * groups,
        kernel,
        draw(st.integers(1, 2)),
        dilation,
        tuple(pair for _, pair in sides),
        groups,
        draw(st.integers(1, 2)),
    )


@settings(max_examples=25, deadline=None)
@given(
    case=cases(),
    kinds=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    zeros=st.tuples(st.integers(0, 127), st.integers(0, 127)),
    spread=st.sampled_from(["any", "extreme"]),
)
def test_convolutions_of_any_shape(
    case: Case, kinds: tuple[Any, Any], zeros: tuple[int, int], spread: str
) -> None:
    x, w = conv_arrays(case, *kinds, spread)
    zw = zeros[1]
    graph = Graph.of([conv_node(case, less(given_tensor(x), zeros[0]), less(known(w), zw)).node])
    with compile_graph(graph, threads=2) as program:
        [got] = program(x)
    assert "conv_bytes" in ops_of(run(graph, PASSES)[0])
    np.testing.assert_array_equal(got, convolved(case, x, w, zeros[0], zw))


@pytest.mark.parametrize("kind", BYTES)
def test_a_network_of_quantised_convolutions_stays_in_channels_last(kind: Any) -> None:
    first = Case((9, 10), 3, 24, (3, 3), padding=((1, 1), (1, 1)))
    inner = Case((9, 10), 24, 24, (3, 3), padding=((1, 1), (1, 1)))
    x, w = conv_arrays(first, kind, np.int8)
    w2 = numbers((24, 24, 3, 3), np.int8, 7)
    scale = (np.random.default_rng(5).random((24, 1, 1)) * 1e-4 + 1e-4).astype(np.float32)
    zero = 5

    def layer(sums: Any, scale: Any) -> Any:
        real = sums.astype(np.float32) * scale
        return quantised(real * (real > 0).astype(np.float32), 0.02, zero, kind).astype(kind)

    y = layer(conv_node(first, less(given_tensor(x), zero), less(known(w), None)), known(scale))
    y = layer(conv_node(inner, less(y, zero), less(known(w2), None)), known(scale))
    expected = layer(convolved(first, x, w, zero, 0), scale)
    expected = layer(convolved(inner, expected, w2, zero, 0), scale)
    last = check([y], [x], [expected], "conv_bytes")
    fixed: set[Node] = set()
    for node in last.nodes:
        if node.op == "constant" or (node.inputs and fixed.issuperset(node.inputs)):
            fixed.add(node)
    moved = [node for node in last.nodes if node.op == "permute" and node not in fixed]
    assert len(moved) == 2, "one at the entry, one at the exit"


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("w_type", BYTES)
@pytest.mark.parametrize("zero", [0, 3, 100])
@pytest.mark.parametrize("side", [0, 1, 3])
def test_every_channel_by_itself(a_type: Any, w_type: Any, zero: int, side: int) -> None:
    case = Case((7, 9), 1, 21, (3, 3), padding=((side, 1), (1, side)), groups=21, images=2)
    x, w = conv_arrays(case, a_type, w_type, "extreme")
    y = conv_node(case, less(given_tensor(x), zero), less(known(w), None))
    check([y], [x], [convolved(case, x, w, zero, 0)], "depthwise_last")


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("zero", [100, 300])
def test_every_channel_of_a_large_image_by_itself(kind: Any, zero: int) -> None:
    case = Case((29, 28), 1, 5, (3, 3), padding=((1, 1), (2, 0)), groups=5)
    x, w = conv_arrays(case, kind, np.int8)
    y = conv_node(case, less(given_tensor(x), zero), less(known(w), None))
    last = check([y], [x], [convolved(case, x, w, zero, 0)], "depthwise_last")
    assert ("pad" in ops_of(last)) == (zero == 100), "no byte is 300"


@pytest.mark.parametrize("groups", [1, 2])
def test_panels_of_a_convolution(groups: int) -> None:
    w = numbers((20 * groups, 6, 3, 2), np.int8)
    [panels] = reference.evaluate(Graph.of([conv_panels(ir.constant(w), groups)]), [])
    assert panels.shape == (groups, 2, 3, 2, 2, 16, 4)
    for out, channel, i, j in np.ndindex(*w.shape):
        group, own = divmod(out, 20)
        place = (group, own // 16, i, j, channel // 4, own % 16, channel % 4)
        assert panels[place] == w[out, channel, i, j]
