"""Values narrower than a byte, compiled and run: arithmetic, movement, loops, packed in memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.backends.cpu.execution import handover
from arenite.dtype import BY_NAME, DType
from arenite.errors import TypeMismatch
from arenite.ir import Var
from arenite.ir.compose.counted_sizes import nonzero
from arenite.ir.element import unpacked
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.regions import loop
from arenite.pipeline import compile_graph
from tests.pipeline.loaded import loaded
from tests.pipeline.narrow import (
    FLOATS,
    INTEGERS,
    NARROW,
    every,
    inputs_of,
    integers,
    name_of,
    narrowed,
    numpy_of,
    random,
    run,
    wide,
)

Array = NDArray[Any]

BOOL, INT64, FLOAT32 = BY_NAME["bool"], BY_NAME["int64"], BY_NAME["float32"]


def _pow(a: int, b: int) -> int:
    if b >= 0:
        return int(a**b)
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


def _fmod(a: int, b: int) -> int:
    return 0 if b == 0 else a - b * int(a / b)


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "fmod": _fmod,
    "pow": _pow,
    "maximum": max,
    "minimum": min,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
SHIFTS: dict[str, Callable[[int, int], int]] = {
    "shift_left": operator.lshift,
    "shift_right": operator.rshift,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    op: getattr(operator, op) for op in ("eq", "ne", "lt", "le", "gt", "ge")
}
UNARY: dict[str, Callable[[int], int]] = {
    "neg": operator.neg,
    "abs": abs,
    "sign": lambda a: (a > 0) - (a < 0),
    "not": operator.invert,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_integers_of_all_pairs_wrap(dtype: DType) -> None:
    n = 1 << dtype.bits
    one, other = np.repeat(every(dtype), n), np.tile(every(dtype), n)
    x, y = inputs_of([one, other], [dtype, dtype])
    pairs = [(int(a), int(b)) for a, b in zip(one, other, strict=True)]
    shift = ir.make("and", y, ir.full((n * n,), n // 2 - 1, dtype))  # none is negative
    nodes: dict[str, Node] = {op: ir.make(op, x, y) for op in (*BINARY, *COMPARISONS)}
    nodes |= {op: ir.make(op, x, shift) for op in SHIFTS}
    nodes |= {op: ir.make(op, x) for op in UNARY}
    nodes["where"] = ir.make("where", ir.make("lt", x, y), y, x)
    results = run(Graph((x, y), tuple(nodes.values())), [one, other])
    made = dict(zip(nodes, results, strict=True))
    for op in COMPARISONS:
        assert made[op].tolist() == [COMPARISONS[op](a, b) for a, b in pairs], op
    judged = {op: [function(a, b) for a, b in pairs] for op, function in BINARY.items()}
    for op, function in SHIFTS.items():
        judged[op] = [function(a, b & n // 2 - 1) for a, b in pairs]
    judged |= {op: [function(a) for a, _ in pairs] for op, function in UNARY.items()}
    judged["where"] = [max(pair) for pair in pairs]
    for op, values in judged.items():
        assert made[op].tobytes() == integers(values, dtype).tobytes(), op


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_floats_of_all_pairs_are_rounded_once(dtype: DType) -> None:
    n = 1 << dtype.bits
    one, other = np.repeat(every(dtype), n), np.tile(every(dtype), n)
    x, y = inputs_of([one, other], [dtype, dtype])
    a, b = one.astype(np.float32), other.astype(np.float32)
    half = ir.full((n * n,), 0.5, dtype)
    with np.errstate(all="ignore"):
        judged: dict[Node, Array] = {
            ir.make("add", x, y): a + b,
            ir.make("sub", x, y): a - b,
            ir.make("mul", x, y): a * b,
            ir.make("div", x, y): a / b,
            ir.make("maximum", x, y): np.maximum(a, b),
            ir.make("neg", x): -a,
            ir.make("sqrt", ir.make("abs", x)): np.sqrt(np.abs(a)),
            ir.make("floor", ir.make("mul", x, half)): np.floor(
                narrowed(a / 2, dtype).astype("f4")
            ),
            ir.make("where", ir.make("le", x, y), y, x): np.where(a <= b, b, a),
        }
    results = run(Graph((x, y), tuple(judged)), [one, other])
    for (node, exact), made in zip(judged.items(), results, strict=True):
        wanted = exact.astype(numpy_of(dtype))
        np.testing.assert_array_equal(made.astype("f4"), wanted.astype("f4"), err_msg=repr(node))
    compared = tuple(ir.make(op, x, y) for op in COMPARISONS)
    for op, made in zip(COMPARISONS, run(Graph((x, y), compared), [one, other]), strict=True):
        np.testing.assert_array_equal(made, COMPARISONS[op](a, b), err_msg=op)


@pytest.mark.parametrize("dtype", NARROW, ids=name_of)
def test_ops_on_many_elements(dtype: DType) -> None:
    array, square = random((5, 7), dtype), random((7, 3), dtype, 1)
    places = np.array([6, 0, 3, 3])
    x, m, i = (
        ir.graph_input("x", 0, (5, 7), dtype),
        ir.graph_input("m", 1, (7, 3), dtype),
        ir.graph_input("i", 2, (4,), INT64),
    )
    a, b = wide(array), wide(square)
    pad = ((1, 0), (2, 3))
    judged: dict[Node, Array] = {
        ir.make("matmul", x, m, transpose_a=False, transpose_b=False): a @ b,
        ir.make("max", x, axes=(1,)): a.max(1),
        ir.make("min", x, axes=(0,)): a.min(0),
        ir.make("cummax", x, axis=1): np.maximum.accumulate(a, 1),
        ir.make("gather", x, i, axis=1): a[:, places],
        ir.make("sort", x, axis=1, descending=False): np.sort(a, 1),
        ir.make("permute", x, axes=(1, 0)): a.T,
        ir.make("reshape", x, shape=(35,)): a.reshape(-1),
        ir.make("slice", x, start=(1, 6), stop=(5, -1), step=(2, -3)): a[1:5:2, 6::-3],
        ir.make("concat", x, x, axis=1): np.concatenate([a, a], 1),
        ir.make("pad", x, padding=pad, value=1): np.pad(a, pad, constant_values=1),
        ir.make("sum", x, axes=(0, 1)): a.sum(),
        ir.make("cumsum", x, axis=0): a.cumsum(0),
    }
    scattered = a.copy()
    for column, place in enumerate(places):
        scattered[:, place] += a[:, column]
    spread = ir.make("expand", ir.make("reshape", i, shape=(1, 4)), shape=(5, 4))
    updates = ir.make("slice", x, start=(0, 0), stop=(5, 4), step=(1, 1))
    put = ir.make("scatter_elements", x, spread, updates, axis=1, reduction="add")
    judged[put] = scattered
    # What is a number of another type.
    others: dict[Node, Array] = {
        ir.make("argmax", x, axis=1): a.argmax(1),
        ir.make("argsort", x, axis=1, descending=False): np.argsort(a, 1, kind="stable"),
    }
    graph = Graph((x, m, i), (*judged, *others))
    results = run(graph, [array, square, places])
    for (node, exact), made in zip((judged | others).items(), results, strict=True):
        if node in judged:
            exact = wide(narrowed(exact, dtype))
            assert made.dtype == numpy_of(dtype)
            made = wide(made)
        np.testing.assert_array_equal(made, exact, err_msg=repr(node))


@pytest.mark.parametrize("dtype", NARROW, ids=name_of)
def test_products_with_weights_that_are_kept(dtype: DType) -> None:
    """Sums of a quarter as many as fit into float32, so that every order of them is exact."""
    array, weights = random((70, 130), dtype, 1), random((130, 50), dtype, 2)
    image, kernel = random((1, 6, 9, 8), dtype, 3), random((5, 6, 3, 2), dtype, 4)
    x, y = inputs_of([array, image], [dtype, dtype])
    product = ir.make("matmul", x, ir.buffer(weights), transpose_a=False, transpose_b=False)
    sides = {"strides": (2, 1), "padding": ((0, 0), (0, 0)), "dilations": (1, 1)}
    convolved = ir.make("conv", y, ir.buffer(kernel), groups=1, **sides)
    made = run(Graph((x, y), (product, convolved)), [array, image])
    windows = np.lib.stride_tricks.sliding_window_view(wide(image), (3, 2), (2, 3))[:, :, ::2]
    judged = [wide(array) @ wide(weights), np.einsum("ncyxhw,ochw->noyx", windows, wide(kernel))]
    for result, exact in zip(made, judged, strict=True):
        np.testing.assert_array_equal(wide(result), wide(narrowed(exact, dtype)))


@pytest.mark.parametrize("dtype", NARROW, ids=name_of)
def test_nothing_at_all(dtype: DType) -> None:
    x = ir.graph_input("x", 0, (0, 3), dtype)
    outputs = (
        ir.make("neg", x),
        ir.make("sum", x, axes=(0,)),
        ir.make("max", x, axes=(0,)),
        ir.make("min", x, axes=(0,)),
    )
    array = np.zeros((0, 3), numpy_of(dtype))
    none, total, low, high = run(Graph((x,), outputs), [array])
    assert none.shape == (0, 3)
    assert wide(total).tolist() == [0, 0, 0]
    ends = wide(every(dtype))
    assert wide(low).tolist() == [ends.min()] * 3
    assert wide(high).tolist() == [ends.max()] * 3


@pytest.mark.parametrize("dtype", NARROW, ids=name_of)
def test_counts_and_numbers_are_of_the_type(dtype: DType) -> None:
    x = ir.graph_input("x", 0, (Var("n", 1, 40),), dtype)
    [n] = x.shape
    graph = Graph(
        (x,),
        (
            ir.make("iota", axis=0, shape=(n,), dtype=dtype),
            ir.make("add", x, ir.full((n,), 1, dtype)),
            ir.size(n, dtype),
            ir.full((3,), 1, dtype),
        ),
    )
    with compile_graph(graph) as program:
        for count in (1, 2, 3, 4, 5, 16, 33, 40):
            array = random((count,), dtype, count)
            counts, more, number, one = program(array)
            assert wide(counts).tolist() == wide(narrowed(np.arange(count), dtype)).tolist()
            assert wide(more).tolist() == wide(narrowed(wide(array) + 1, dtype)).tolist()
            assert wide(number) == wide(narrowed(np.asarray(count), dtype))
            assert wide(one).tolist() == [1, 1, 1]
            for one_way, other in zip(program(array), program.run_checked(array), strict=True):
                assert one_way.tobytes() == other.tobytes()
        program.verify()


@pytest.mark.parametrize("dtype", NARROW, ids=name_of)
def test_rows_of_whole_bytes_are_words_whatever_their_number(dtype: DType) -> None:
    x = ir.graph_input("x", 0, (Var("n", 0, 9), 12), dtype)
    graph = Graph((x,), (ir.make("slice", x, start=(0, 11), stop=(x.shape[0], -1), step=(1, -1)),))
    with compile_graph(graph) as program:
        word = {2: "uint32", 4: "uint16", 6: "uint32"}[dtype.bits]
        for kernel in (program.kernels[0], program.kernels[-1]):
            assert kernel.entry_point.startswith(("pack", "unpack"))
            assert word in kernel.code
        for n in (0, 1, 5, 9):
            array = random((n, 12), dtype, n)
            for [made] in (program(array), program.run_checked(array)):
                assert made.shape == (n, 12)
                assert made.tobytes() == array[:, ::-1].tobytes()
        program.verify()


def _seen_packed(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The bytes of results, as native code leaves them."""
    seen: list[list[int]] = []

    def spy(data: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
        seen.append(data.tolist())
        return unpacked(data, dtype, shape)

    monkeypatch.setattr(handover, "unpacked", spy)
    return seen


def test_memory_has_low_bits_first_and_zeros_behind_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = _seen_packed(monkeypatch)
    for dtype, values, data in (
        (BY_NAME["int4"], [-1, 2, -8], [0x2F, 0x08]),
        (BY_NAME["int4"], [-1, 2, -8, 7], [0x2F, 0x78]),
        (BY_NAME["uint2"], [3, 2, 0, 1, 1], [0b01001011, 0b01]),
        (BY_NAME["int2"], [-1, -2, 0, 1], [0b01001011]),
        (FLOATS[0], [6.0, -0.5, 1.0], [0x97, 0x02]),
        (FLOATS[1], [7.5, -0.125, 1.0], [0x5F, 0x88, 0x00]),
        (FLOATS[2], [28.0, -0.0625, 0.25, 1.0, -0.5], [0x5F, 0x48, 0x30, 0x28]),
    ):
        x = ir.graph_input("x", 0, (len(values),), FLOAT32)
        with compile_graph(Graph((x,), (ir.make("cast", x, dtype=dtype),))) as program:
            [made] = program(np.array(values, np.float32))
        assert seen.pop() == data
        assert made.astype(np.float32).tolist() == values


@pytest.mark.parametrize("dtype", NARROW, ids=name_of)
@pytest.mark.parametrize("count", [3, 99, 4096])
def test_constants_and_buffers_are_read_packed_and_handed_through(dtype: DType, count: int) -> None:
    array = random((count,), dtype)
    kept = ir.buffer(array)
    fixed = ir.constant(array)
    x = ir.graph_input("x", 0, (count,), dtype)
    outputs = (ir.make("add", x, kept), ir.make("add", x, fixed), x, kept, fixed)
    graph = Graph((x,), outputs)
    given = random((count,), dtype, 1)
    both = narrowed(wide(array) + wide(given), dtype)
    added, again, *same = run(graph, [given])
    assert wide(added).tolist() == wide(both).tolist()
    assert wide(again).tolist() == wide(both).tolist()
    for made, wanted in zip(same, (given, array, array), strict=True):
        assert made.dtype == wanted.dtype
        assert made.tobytes() == wanted.tobytes()
    with compile_graph(graph) as program:
        addresses = {
            bound.__array_interface__["data"][0]
            for bound in loaded(program).binder.constants.values()
        }
        assert kept.attr("source").storage.raw_ptr in addresses, "bound where it lies"
        assert [kernel.entry_point[:6] for kernel in program.load_kernels] == ["unpack"]


def test_results_go_into_arrays_of_the_caller() -> None:
    dtype = BY_NAME["int4"]
    x = ir.graph_input("x", 0, (5,), dtype)
    array, out = every(dtype)[:5], np.zeros(5, numpy_of(dtype))
    with compile_graph(Graph((x,), (ir.make("neg", x),))) as program:
        program(array[::-1][::-1], out=[out])
        assert out.astype(np.int8).tolist() == (-array.astype(np.int8)).tolist()
        with pytest.raises(TypeMismatch, match=r"input 'x' is int4, the array given int8"):
            program(array.astype(np.int8))
        assert program.plan.slots["x"].nbytes == 3
        assert program.passes[1].name == "narrow"
        assert "unpack" in str(program.passes[1].graph)


def test_loops_and_branches_carry_narrow_values() -> None:
    dtype = BY_NAME["int4"]
    x = ir.graph_input("x", 0, (5,), dtype)
    step = ir.graph_input("step", 1, (5,), dtype)
    flag = ir.graph_input("flag", 2, (), BOOL)
    i, carried = ir.parameter((), INT64), ir.parameter((5,), dtype)
    following = ir.make("add", carried, step)
    last, rows = loop(
        ir.full((), 6, INT64), [x], ((i, carried), [following]), rows=[ir.make("neg", following)]
    )
    chosen = ir.make("if", flag, ir.make("mul", last, x), step)
    one, other = random((5,), dtype, 1), random((5,), dtype, 2)
    steps = np.array([wide(one) + (k + 1) * wide(other) for k in range(6)])
    for holds in (True, False):
        graph = Graph((x, step, flag), (last, rows, chosen))
        made = run(graph, [one, other, np.asarray(holds)])
        judged = [steps[-1], -steps, steps[-1] * wide(one) if holds else wide(other)]
        for result, exact in zip(made, judged, strict=True):
            assert result.tobytes() == narrowed(exact, dtype).tobytes()


@pytest.mark.parametrize("dtype", NARROW, ids=name_of)
def test_states_are_kept_packed(dtype: DType) -> None:
    held, array = random((5,), dtype), random((5,), dtype, 1)
    x = ir.graph_input("x", 0, (5,), dtype)
    state = ir.make("state", name="held", shape=(5,), dtype=dtype)
    graph = Graph((x,), (state,), (), updates=((state, ir.make("add", state, x)),))
    with compile_graph(graph) as program:
        assert program.state["held"].nbytes == dtype.nbytes((5,))
        assert not wide(program(array)[0]).any(), "zero at first"
        assert wide(program.state["held"].numpy()).tolist() == wide(array).tolist()
        program.state["held"].load(held)
        wanted = wide(held)
        for _ in range(3):
            assert wide(program(array)[0]).tolist() == wanted.tolist()
            wanted = wide(narrowed(wanted + wide(array), dtype))
        program.verify()
        assert wide(program.state["held"].numpy()).tolist() == wanted.tolist()


def test_sizes_found_while_running() -> None:
    dtype = BY_NAME["int4"]
    x = ir.graph_input("x", 0, (9,), dtype)
    places = nonzero(ir.make("gt", x, ir.full((9,), 0, dtype)))
    found = ir.make("gather", x, ir.make("reshape", places, shape=places.shape[:1]), axis=0)
    array = integers([3, -1, 0, 7, 1, 2, -8, 0, 5], dtype)
    for given in (array, integers([0] * 9, dtype)):
        [made] = run(Graph((x,), (found,)), [given])
        assert made.dtype == given.dtype
        assert made.astype(np.int8).tolist() == [int(v) for v in given if int(v) > 0]


@pytest.mark.parametrize("dtype", NARROW, ids=name_of)
@pytest.mark.parametrize("count", [200_000, 199_999])
def test_many_tiles(dtype: DType, count: int) -> None:
    array = random((count,), dtype)
    x = ir.graph_input("x", 0, (count,), dtype)
    turned = ir.make("slice", x, start=(count - 1,), stop=(-1,), step=(-1,))
    moved, numbers = run(Graph((x,), (turned, ir.make("cast", x, dtype=FLOAT32))), [array])
    assert moved.tobytes() == array[::-1].tobytes()
    assert numbers.tobytes() == array.astype(np.float32).tobytes()


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_of_floats(seed: int) -> None:
    """Against NumPy's float32, rounded by ml_dtypes at every step."""
    rng = np.random.default_rng(seed)
    dtype = FLOATS[seed % len(FLOATS)]
    shape = tuple(int(n) for n in rng.choice([1, 3, 5, 8], 2))
    arrays = [random(shape, dtype, seed + k) for k in range(2)]
    inputs = inputs_of(arrays, [dtype, dtype])
    known = [(x, array.astype(np.float32)) for x, array in zip(inputs, arrays, strict=True)]
    functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum}
    for _ in range(20):
        (x, a), (y, b) = (known[k] for k in rng.integers(len(known), size=2))
        op = str(rng.choice([*functions, "where", "sum", "sqrt"]))
        if op == "where":
            node, exact = ir.make("where", ir.make("lt", x, y), x, y), np.where(a < b, a, b)
        elif op == "sum":
            total = ir.make("reshape", ir.make("sum", x, axes=(1,)), shape=(shape[0], 1))
            node = ir.make("expand", total, shape=shape)
            exact = np.broadcast_to(a.sum(1, keepdims=True), shape)
        elif op == "sqrt":
            node, exact = ir.make("sqrt", ir.make("abs", x)), np.sqrt(np.abs(a))
        else:
            node, exact = ir.make(op, x, y), functions[op](a, b)
        known.append((node, exact.astype(numpy_of(dtype)).astype(np.float32)))
    made = run(Graph(tuple(inputs), tuple(node for node, _ in known)), arrays)
    for (node, exact), result in zip(known, made, strict=True):
        np.testing.assert_array_equal(result.astype(np.float32), exact, err_msg=repr(node))


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_of_narrow_values(seed: int) -> None:
    """Against Python's integers wrapped at every step."""
    rng = np.random.default_rng(seed)
    dtypes = [*INTEGERS, BY_NAME["int8"]]
    dtype = dtypes[rng.integers(len(dtypes) - 1)]
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 8], 2))
    arrays = [random(shape, dtype, seed + k) for k in range(2)]
    inputs = inputs_of(arrays, [dtype, dtype])
    known: list[tuple[Node, Array]] = [
        (x, wide(array)) for x, array in zip(inputs, arrays, strict=True)
    ]
    for _ in range(20):
        (x, a), (y, b) = (known[k] for k in rng.integers(len(known), size=2))
        other = dtypes[rng.integers(len(dtypes))]
        same_type = ir.make("cast", y, dtype=x.dtype) if y.dtype != x.dtype else y
        b = _wrapped(b, x.dtype)
        op = str(rng.choice(["add", "sub", "mul", "maximum", "cast", "where", "cumsum"]))
        if op == "cast":
            node, exact = ir.make("cast", x, dtype=other), a
        elif op == "where":
            node, exact = (
                ir.make("where", ir.make("lt", x, same_type), x, same_type),
                np.minimum(a, b),
            )
        elif op == "cumsum":
            node, exact = ir.make("cumsum", x, axis=1), a.cumsum(1)
        else:
            functions = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
            node = ir.make(op, x, same_type)
            exact = functions.get(op, np.maximum)(a, b)
        known.append((node, _wrapped(exact, node.dtype)))
    made = run(Graph(tuple(inputs), tuple(node for node, _ in known)), arrays)
    for (node, exact), result in zip(known, made, strict=True):
        assert result.dtype == numpy_of(node.dtype)
        np.testing.assert_array_equal(wide(result), exact, err_msg=repr(node))


def _wrapped(values: Array, dtype: DType) -> Array:
    return (
        values.astype(np.int8).astype(np.int64)
        if dtype.bits == 8
        else wide(narrowed(values, dtype))
    )
