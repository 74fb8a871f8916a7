"""Products of bytes: which become dot products of words, and that no number changes.

Expected numbers are whole ones, summed by NumPy in 64 bits as the definitions of ONNX's operators
say it, and then cut to the width of the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.dtype import of as dtype_of
from arenite.ir import reference, verify
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.passes import PASSES, apply, run
from arenite.passes.integers import conv_panels, integers, matmul_panels
from arenite.pipeline import compile_graph
from arenite.tensor import Tensor

Array = NDArray[Any]
BYTES = [np.uint8, np.int8]
AS_THEY_ARE: dict[str, Any] = {"transpose_a": False, "transpose_b": False}


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0, spread: str = "any") -> Array:
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    if spread == "extreme":
        return np.asarray(rng.choice([info.min, info.max], shape).astype(dtype))
    return np.asarray(rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype))


def given_tensor(array: Array, index: int = 0, shape: Any = None) -> Tensor:
    shape = array.shape if shape is None else shape
    return Tensor.of_node(ir.graph_input(f"x{index}", index, shape, dtype_of(array.dtype)))


def known(array: Array) -> Tensor:
    return Tensor.of_node(ir.constant(array))


def ops_of(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def check(results: list[Tensor], arrays: list[Array], expected: list[Array], op: str) -> Graph:
    """The pass makes the op of the graph, which gives the same numbers when it is interpreted and
    when it is compiled, with one thread and with two."""
    graph = Graph.of([result.node for result in results])
    made = apply(graph, integers)
    verify(made)
    assert op in ops_of(made)
    last, _ = run(graph, PASSES)
    for one in (made, last):
        for got, want in zip(reference.evaluate(one, arrays), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    for threads in (1, 2):
        with compile_graph(graph, threads=threads) as program:
            for got, want in zip(program(*arrays), expected, strict=True):
                np.testing.assert_array_equal(got, want)
    return last


# Products.


def less(x: Any, zero: Any) -> Any:
    """Widened, less a zero point; the same on tensors and arrays."""
    wide = x.astype(np.int32)
    return wide if zero is None else wide - zero


def products(a: Array, w: Array, za: Any = 0, zw: Any = 0) -> Array:
    sums = (a.astype(np.int64) - za) @ (w.astype(np.int64) - zw)
    return np.asarray(sums.astype(np.int32))


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("w_type", BYTES)
@pytest.mark.parametrize("spread", ["any", "extreme"])
def test_products_of_bytes(a_type: Any, w_type: Any, spread: str) -> None:
    a, w = numbers((21, 37), a_type, 1, spread), numbers((37, 50), w_type, 2, spread)
    x = given_tensor(a)
    node = ir.make("matmul", x.node, known(w).node, **AS_THEY_ARE)
    check([Tensor.of_node(node)], [a], [products(a, w)], "matmul_bytes")


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("w_type", BYTES)
@pytest.mark.parametrize("za", [None, 0, 7, 128, -128, 255])
@pytest.mark.parametrize("zw", [None, 0, 3, 128, "columns"])
def test_products_with_zero_points(a_type: Any, w_type: Any, za: Any, zw: Any) -> None:
    a, w = numbers((5, 9), a_type, 1), numbers((9, 20), w_type, 2)
    columns = numbers((20,), np.uint8, 3).astype(np.int32)
    of_w = columns if zw == "columns" else zw
    shown = known(columns) if zw == "columns" else zw
    y = less(given_tensor(a), za) @ less(known(w), shown)
    expected = products(a, w, 0 if za is None else za, 0 if zw is None else of_w)
    graph = Graph.of([y.node])
    made = apply(graph, integers)
    assert "matmul_bytes" in ops_of(made)
    [got] = reference.evaluate(made, [a])
    np.testing.assert_array_equal(got, expected)


def test_zero_points_that_are_known_only_in_a_run() -> None:
    a, w = numbers((2, 5, 9), np.uint8, 1), numbers((9, 20), np.int8, 2)
    za = np.asarray(77, np.uint8)
    rows = numbers((2, 5, 1), np.uint8, 3)
    x, one, each = given_tensor(a), given_tensor(za, 1), given_tensor(rows, 2)
    w8 = known(w)
    results = [less(x, one.astype(np.int32)) @ less(w8, 4), less(x, less(each, None)) @ less(w8, 4)]
    expected = [products(a, w, 77, 4), products(a, w, rows.astype(np.int64), 4)]
    last = check(results, [a, za, rows], expected, "matmul_bytes")
    assert "matmul" not in ops_of(last)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300)),
    kinds=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    zeros=st.tuples(st.integers(-128, 255), st.integers(-128, 255)),
    turned=st.tuples(st.booleans(), st.booleans()),
    spread=st.sampled_from(["any", "extreme"]),
)
def test_products_of_any_shape(
    sizes: tuple[int, int, int],
    kinds: tuple[Any, Any],
    zeros: tuple[int, int],
    turned: tuple[bool, bool],
    spread: str,
) -> None:
    rows, depth, columns = sizes
    a = numbers((depth, rows) if turned[0] else (rows, depth), kinds[0], 1, spread)
    w = numbers((columns, depth) if turned[1] else (depth, columns), kinds[1], 2, spread)
    factors = [
        less(x, zero).node for x, zero in zip((given_tensor(a), known(w)), zeros, strict=True)
    ]
    node = ir.make("matmul", *factors, transpose_a=turned[0], transpose_b=turned[1])
    graph = Graph.of([node])
    expected = products(a.T if turned[0] else a, w.T if turned[1] else w, *zeros)
    with compile_graph(graph, threads=2) as program:
        [got] = program(a)
    assert "matmul_bytes" in ops_of(run(graph, PASSES)[0])
    np.testing.assert_array_equal(got, expected)


def test_tensors_of_bytes_multiply_as_arrays_do() -> None:
    a, w = numbers((4, 6, 33), np.uint8, 1), numbers((33, 18), np.int8, 2)
    check([given_tensor(a) @ known(w)], [a], [a @ w], "matmul_bytes")
    check([given_tensor(a) @ known(w.view(np.uint8))], [a], [a @ w.view(np.uint8)], "matmul_bytes")


def test_weights_of_many_panels() -> None:
    a, w = numbers((2, 1024), np.uint8, 1), numbers((1024, 4100), np.int8, 2)
    node = ir.make("matmul", given_tensor(a).node, known(w).node, **AS_THEY_ARE)
    with compile_graph(Graph.of([node]), threads=2) as program:
        np.testing.assert_array_equal(program(a)[0], products(a, w))


def quantised(real: Any, scale: float, zero: int, dtype: Any) -> Any:
    """QuantizeLinear; the same on tensors and arrays."""
    info = np.iinfo(dtype)
    return ((real / scale).round() + float(zero)).clip(float(info.min), float(info.max))


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("y_type", BYTES)
def test_a_network_of_quantised_products(a_type: Any, y_type: Any) -> None:
    a, w = numbers((40, 64), a_type, 1), numbers((64, 48), np.int8, 2)
    w2, bias = numbers((48, 30), np.int8, 3), numbers((48,), np.int16, 4).astype(np.int32)
    scale = (np.random.default_rng(5).random(48) * 0.01 + 0.001).astype(np.float32)

    def network(x: Any, w: Any, w2: Any, bias: Any, scale: Any) -> Any:
        sums = less(x, 3) @ less(w, None) + bias
        hidden = sums.astype(np.float32) * scale
        kept = quantised(hidden * (hidden > 0).astype(np.float32), 0.5, 2, y_type).astype(y_type)
        return (less(kept, 2) @ less(w2, None)).astype(np.float32) * np.float32(0.25)

    result = network(given_tensor(a), *map(known, (w, w2, bias, scale)))
    last = check([result], [a], [network(a, w, w2, bias, scale)], "matmul_bytes")
    assert ops_of(last).count("matmul_bytes") == 2


# Convolutions.


@dataclass(frozen=True)
class Case:
    image: tuple[int, ...]
    channels: int
    out: int
    kernel: tuple[int, ...]
    stride: int = 1
    dilation: int = 1
    padding: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))
    groups: int = 1
    images: int = 1


def conv_node(case: Case, x: Tensor, w: Tensor) -> Tensor:
    n = len(case.image)
    return Tensor.of_node(
        ir.make(
            "conv",
            x.node,
            w.node,
            strides=(case.stride,) * n,
            dilations=(case.dilation,) * n,
            padding=case.padding,
            groups=case.groups,
        )
    )


def convolved(case: Case, x: Array, w: Array, za: int, zw: Any) -> Array:
    """As the definition has it: place by place, and zero around what is less the zero point."""
    x = np.pad(x.astype(np.int64) - za, ((0, 0), (0, 0), *case.padding))
    w = w.astype(np.int64) - zw
    reach = [case.dilation * (k - 1) + 1 for k in case.kernel]
    places = [(s - r) // case.stride + 1 for s, r in zip(x.shape[2:], reach, strict=True)]
    per_group = w.shape[1]
    result = np.zeros((x.shape[0], w.shape[0], *places), np.int64)
    for out in range(w.shape[0]):
        group = out // (w.shape[0] // case.groups)
        own = x[:, group * per_group : (group + 1) * per_group]
        for place in np.ndindex(*places):
            cut: list[Any] = [
                slice(p * case.stride, p * case.stride + r, case.dilation)
                for p, r in zip(place, reach, strict=True)
            ]
            seen = own[(slice(None), slice(None), *cut)]
            result[(slice(None), out, *place)] = (seen * w[out]).reshape(x.shape[0], -1).sum(1)
    return np.asarray(result.astype(np.int32))


def conv_arrays(case: Case, a_type: Any, w_type: Any, spread: str = "any") -> tuple[Array, Array]:
    x = numbers((case.images, case.channels * case.groups, *case.image), a_type, 1, spread)
    return x, numbers((case.out, case.channels, *case.kernel), w_type, 2, spread)


PLAIN = Case((6, 7), 5, 9, (3, 3), padding=((1, 1), (1, 1)), images=2)
FEW, MANY = replace(PLAIN, channels=8), replace(PLAIN, channels=4, image=(15, 14))


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


# Bounds.


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("is_exact", [True, False])
def test_a_cast_needs_no_bounds_before_it(kind: Any, is_exact: bool) -> None:
    info = np.iinfo(kind)
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.9, -0.9, 126.7, 127.5, 128, 254.9, 256, -127.9])
    x = np.concatenate([x, -x, [1e30, -1e30, -128.5, -129.5]]).astype(np.float32)
    low, high = float(info.min), float(info.max)
    if not is_exact:
        low, high = low + 1, high - 1
    graph = Graph.of([given_tensor(x).clip(low, high).astype(kind).node])
    made, _ = run(graph, PASSES)
    assert ("maximum" in ops_of(made)) == ("minimum" in ops_of(made)) == (not is_exact)
    expected = np.nan_to_num(np.trunc(np.clip(x, low, high)), nan=0.0).astype(kind)
    [interpreted] = reference.evaluate(made, [x])
    np.testing.assert_array_equal(interpreted, expected)
    with compile_graph(graph) as program:
        np.testing.assert_array_equal(program(x)[0], expected)


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("zero", [0, 3, -128, 131, 65536, 65537, 2.5])
def test_rounded_floats_become_bytes(kind: Any, zero: float) -> None:
    info = np.iinfo(kind)
    near = np.arange(-300, 300) / np.float32(2.0) - np.float32(int(zero))
    ends = [np.nan, np.inf, -np.inf, -0.0, 1e30, -1e30, 2.0**22 + 0.5, 2.0**23 + 1, 2.0**31, 1e-30]
    x = np.concatenate([near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf), ends])
    x = x.astype(np.float32)
    graph = Graph.of([(given_tensor(x).round() + float(zero)).astype(kind).node])
    made, _ = run(graph, PASSES)
    assert ("round" in ops_of(made)) == (zero in (65537, 2.5))
    sums = np.rint(x) + np.float32(zero)
    expected = np.trunc(np.clip(np.nan_to_num(sums, nan=0.0), info.min, info.max)).astype(kind)
    [interpreted] = reference.evaluate(made, [x])
    np.testing.assert_array_equal(interpreted, expected)
    with compile_graph(graph) as program:
        np.testing.assert_array_equal(program(x)[0], expected)


@pytest.mark.parametrize(
    ("scale", "is_finite"),
    [(0.01, True), (-1e28, True), (1e31, False), (np.inf, False), (np.nan, False)],
)
def test_scaled_integers_are_not_asked_whether_they_are_nan(scale: float, is_finite: bool) -> None:
    x = np.array([0, 1, -1, 12750, -12750, 2**31 - 1, -(2**31)], np.int32)
    scales = np.full(x.shape, scale, np.float32)
    numbers = given_tensor(x).astype(np.float32) * known(scales)
    both = numbers + given_tensor(x).astype(np.float32) * 0.5
    graph = Graph.of([numbers.round().astype(np.int8).node, both.round().astype(np.int8).node])
    made, _ = run(graph, PASSES)
    assert ("isnan" in ops_of(made)) == (not is_finite)
    with np.errstate(all="ignore"):
        real = x.astype(np.float32) * scales
        sums = [real, real + x.astype(np.float32) * np.float32(0.5)]
    for result, exact in zip(reference.evaluate(made, [x]), sums, strict=True):
        expected = np.clip(np.rint(np.nan_to_num(exact, nan=0.0)), -128, 127).astype(np.int8)
        np.testing.assert_array_equal(result, expected)


# What is left alone.


def left(y: Tensor) -> bool:
    graph = Graph.of([y.node])
    return apply(graph, integers).outputs == graph.outputs


def test_what_is_left_to_loops() -> None:
    a, w = numbers((4, 8), np.uint8), numbers((8, 6), np.int8)
    x = given_tensor(a)
    assert left(less(x, 1) @ less(given_tensor(w, 1), 0)), "weights that are not constant"
    assert left(x.astype(np.int64) @ known(w).astype(np.int64)), "sums of 64 bits"
    assert left(less(x, known(numbers((8,), np.int32))) @ less(known(w), 0)), "a zero a column of a"
    batch = numbers((3, 8, 6), np.int8)
    assert left(less(x, 1) @ less(known(batch), 0)), "weights that are several matrices"
    deep = Case((6, 7), 1, 5, (3, 3), groups=5)
    image, w = conv_arrays(deep, np.uint8, np.int8)
    y = conv_node(deep, less(given_tensor(image), 0), less(known(w), 3))
    assert left(y), "one channel each, with a zero point of the weights"
    image, w = conv_arrays(PLAIN, np.uint8, np.int8)
    n = ir.graph_input("w", 1, (Var("n", 1, 9), 5, 3, 3), BY_NAME["int8"])
    assert left(conv_node(PLAIN, given_tensor(image), Tensor.of_node(n)))


def test_rows_whose_number_is_known_later() -> None:
    n = Var("n", 1, 40)
    w = numbers((12, 20), np.int8)
    x = given_tensor(np.zeros((1, 1, 12), np.int8), shape=(2, n, 12))
    graph = Graph.of([(less(x, -3) @ less(known(w), 2)).node])
    with compile_graph(graph) as program:
        for rows in (1, 7, 40):
            a = numbers((2, rows, 12), np.int8, rows)
            np.testing.assert_array_equal(program(a)[0], products(a, w, -3, 2))


# Panels.


@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (4, 16), (9, 20), (30, 33)])
def test_panels_of_a_matrix(depth: int, columns: int) -> None:
    w = numbers((depth, columns), np.int8)
    [panels] = reference.evaluate(Graph.of([matmul_panels(ir.constant(w))]), [])
    assert panels.shape == (-(-columns // 16), -(-depth // 4), 16, 4)
    back = np.zeros((panels.shape[1] * 4, panels.shape[0] * 16), np.int8)
    for p, k, lane, byte in np.ndindex(*panels.shape):
        back[4 * k + byte, 16 * p + lane] = panels[p, k, lane, byte]
    np.testing.assert_array_equal(back[:depth, :columns], w)
    assert not back[depth:].any()
    assert not back[:, columns:].any()


@pytest.mark.parametrize("groups", [1, 2])
def test_panels_of_a_convolution(groups: int) -> None:
    w = numbers((20 * groups, 6, 3, 2), np.int8)
    [panels] = reference.evaluate(Graph.of([conv_panels(ir.constant(w), groups)]), [])
    assert panels.shape == (groups, 2, 3, 2, 2, 16, 4)
    for out, channel, i, j in np.ndindex(*w.shape):
        group, own = divmod(out, 20)
        place = (group, own // 16, i, j, channel // 4, own % 16, channel % 4)
        assert panels[place] == w[out, channel, i, j]


def test_a_chain_deeper_than_the_stack() -> None:
    w = ir.constant(numbers((8, 8), np.int8))
    for _ in range(20_000):
        w = ir.make("not", w)
    a = given_tensor(numbers((4, 8), np.uint8))
    node = ir.make("matmul", a.node, w, **AS_THEY_ARE)
    assert "matmul_bytes" in ops_of(apply(Graph.of([node]), integers))
