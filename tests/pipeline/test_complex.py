"""Complex numbers, compiled: every op that the IR defines for them, against NumPy.

Products and quotients are held bit for bit against NumPy's float arithmetic on the parts, since
NumPy itself multiplies complex numbers with or without rounding in between, as the machine has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME, DType
from arenite.ir import Region, Var, parameter
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.host import HostFunction
from arenite.pipeline import compile_graph
from tests.pipeline.trial import Trial, run_poisoned, sample

Array = NDArray[Any]

BOOL, INT64 = BY_NAME["bool"], BY_NAME["int64"]
COMPLEX = [BY_NAME["complex64"], BY_NAME["complex128"]]
SHAPES: list[tuple[int, ...]] = [(3, 37), (), (1,), (0, 3), (5, 1)]


def name_of(dtype: DType) -> str:
    return dtype.name


def some(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    return sample(shape, dtype, seed, edges=False)


def source(array: Array, index: int = 0) -> Node:
    name = f"x{index}"
    return ir.graph_input(name, index, array.shape, BY_NAME[array.dtype.name])


def run(graph: Graph, *arrays: Array) -> list[Array]:
    """The results of one thread, which two threads, a run over a poisoned arena and a checked one
    agree with."""
    results = []
    for threads in (1, 2):
        with compile_graph(graph, threads=threads) as program:
            program.verify()
            results += [program(*arrays), run_poisoned(program, *arrays)]
    with compile_graph(graph) as program:
        results.append(program.run_checked(*arrays))
    for first, *others in zip(*results, strict=True):
        assert all(other.tobytes() == first.tobytes() for other in others)
    return results[0]


def near(made: Array, wanted: Array, ulps: float = 16) -> None:
    """As near as the size of all elements lets rounding be; both parts count."""
    assert made.dtype == wanted.dtype
    assert made.shape == wanted.shape
    error = np.abs(made - wanted)
    unit = np.finfo(wanted.dtype).eps * max(1.0, float(np.abs(wanted).max(initial=0)))
    assert error.max(initial=0) <= ulps * unit


def by_parts(a: Array, b: Array) -> Array:
    """The product of complex arrays in float arithmetic, each step rounded."""
    made = np.empty_like(a)
    made.real = a.real * b.real - a.imag * b.imag
    made.imag = a.real * b.imag + a.imag * b.real
    return made


def same_bits(made: Array, wanted: Array) -> None:
    assert made.dtype == wanted.dtype
    for one, other in ((made.real, wanted.real), (made.imag, wanted.imag)):
        np.testing.assert_array_equal(one, other)
        is_number = ~np.isnan(other)
        assert (np.signbit(one) == np.signbit(other))[is_number].all()


@pytest.mark.parametrize("dtype", COMPLEX, ids=name_of)
def test_elementwise(dtype: DType) -> None:
    trial = Trial()
    for shape in SHAPES:
        x, y = trial.sample(shape, dtype), trial.sample(shape, dtype)
        for op in ("neg", "real", "imag"):
            trial.expect(ir.make(op, x))
        for op in ("add", "sub", "eq", "ne"):
            trial.expect(ir.make(op, x, y))
        trial.expect(ir.make("eq", x, x))
        trial.expect(ir.make("where", trial.sample(shape, BOOL), x, y))
        trial.expect(ir.make("complex", ir.make("imag", x), ir.make("real", y)))
    trial.run()


@pytest.mark.parametrize("dtype", COMPLEX, ids=name_of)
def test_products_and_quotients_of_edge_values(dtype: DType) -> None:
    """Of every pair of edge values: infinities, NaN, both zeros, the largest and the smallest."""
    largest, least = np.finfo(dtype.to_numpy()).max, np.finfo(dtype.to_numpy()).smallest_subnormal
    edges = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, largest, -largest / 3, least, 1e-30]
    parts = np.array(edges, np.finfo(dtype.to_numpy()).dtype)
    numbers = np.empty((len(edges), len(edges)), dtype.to_numpy())
    numbers.real, numbers.imag = parts[:, None], parts[None, :]
    flat = numbers.reshape(-1)
    a, b = (np.ascontiguousarray(m) for m in np.meshgrid(flat, flat))
    x, y = source(a), source(b, 1)
    graph = Graph((x, y), (ir.make("mul", x, y), ir.make("div", x, y)))
    product, quotient = run(graph, a, b)
    with np.errstate(all="ignore"):
        same_bits(product, by_parts(a, b))
        same_bits(quotient, a / b)


@given(st.data())
@settings(max_examples=10, deadline=None)
def test_products_and_quotients(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(COMPLEX))
    shape = data.draw(st.sampled_from(SHAPES))
    a, b = (some(shape, dtype, data.draw(st.integers(0, 99))) for _ in range(2))
    x, y = source(a), source(b, 1)
    product, quotient = run(Graph((x, y), (ir.make("mul", x, y), ir.make("div", x, y))), a, b)
    same_bits(product, by_parts(a, b))
    near(product, np.asarray(a * b), 4)
    same_bits(quotient, np.asarray(a / b))


@pytest.mark.parametrize("dtype", COMPLEX, ids=name_of)
def test_reductions_and_scans(dtype: DType) -> None:
    a = some((3, 5, 7), dtype)
    a /= np.abs(a)  # products neither grow nor vanish
    none = np.zeros((2, 0, 3), a.dtype)
    x, empty = source(a), source(none, 1)
    made: list[tuple[Node, Array]] = []
    for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2), ()):
        for op, judge in (("sum", np.sum), ("prod", np.prod)):
            made.append((ir.make(op, x, axes=axes), np.asarray(judge(a, axis=axes))))
    for axes in ((1,), (0, 1)):
        for op, judge in (("sum", np.sum), ("prod", np.prod)):
            made.append((ir.make(op, empty, axes=axes), np.asarray(judge(none, axis=axes))))
    for axis in range(3):
        for op, scan in (("cumsum", np.cumsum), ("cumprod", np.cumprod)):
            made.append((ir.make(op, x, axis=axis), scan(a, axis=axis)))
            made.append((ir.make(op, empty, axis=axis), scan(none, axis=axis)))
    results = run(Graph((x, empty), tuple(node for node, _ in made)), a, none)
    for result, (_, wanted) in zip(results, made, strict=True):
        near(result, wanted, 64)


def test_products_over_a_size_that_varies() -> None:
    n = Var("n", 0, 9)
    x = ir.graph_input("x", 0, (n, 2), COMPLEX[0])
    graph = Graph((x,), (ir.make("prod", x, axes=(0,)), ir.make("cumprod", x, axis=0)))
    with compile_graph(graph) as program:
        for rows in (9, 0, 1, 4, 7, 2):
            array = some((rows, 2), COMPLEX[0], rows)
            whole, running = program(array)
            near(whole, np.prod(array, axis=0), 64)
            near(running, np.cumprod(array, axis=0), 64)
        program.verify()


def test_a_product_has_no_factor_of_its_own() -> None:
    """One more factor, even of 1, would make NaN of infinity."""
    array = np.array([[complex(np.inf, 0.0)], [complex(2.0, 0.0)]], np.complex64)
    x = source(array[:1])
    [made] = run(Graph((x,), (ir.make("prod", x, axes=(0,)),)), array[:1])
    same_bits(made, array[0])


@pytest.mark.parametrize("dtype", COMPLEX, ids=name_of)
def test_matrices_and_convolutions(dtype: DType) -> None:
    made: list[tuple[Node, Array]] = []
    arrays: list[Array] = []
    inputs: list[Node] = []

    def operand(*shape: int) -> tuple[Node, Array]:
        arrays.append(some(shape, dtype, len(arrays)))
        inputs.append(source(arrays[-1], len(inputs)))
        return inputs[-1], arrays[-1]

    for m, k, n in ((1, 1, 1), (5, 7, 34), (2, 0, 3), (0, 4, 2), (40, 50, 60)):
        (a, left), (b, right) = operand(m, k), operand(n, k)
        node = ir.make("matmul", a, b, transpose_a=False, transpose_b=True)
        made.append((node, left @ right.T))
    (a, left), (b, right) = operand(2, 1, 3, 4), operand(5, 4, 6)
    node = ir.make("matmul", a, b, transpose_a=False, transpose_b=False)
    made.append((node, left @ right))
    (x, signal), (w, weights) = operand(1, 1, 19), operand(1, 1, 4)
    line: Any = {"strides": (1,), "padding": ((0, 0),), "dilations": (1,), "groups": 1}
    wanted = np.correlate(signal[0, 0], weights[0, 0].conj(), "valid")
    made.append((ir.make("conv", x, w, **line), wanted[None, None]))
    turned = ir.make("conv_transpose", x, w, **line, output_padding=(0,))
    made.append((turned, np.convolve(signal[0, 0], weights[0, 0])[None, None]))
    results = run(Graph(tuple(inputs), tuple(node for node, _ in made)), *arrays)
    for result, (_, wanted) in zip(results, made, strict=True):
        near(result, wanted, 64)


@pytest.mark.parametrize("dtype", COMPLEX, ids=name_of)
def test_indexing(dtype: DType) -> None:
    trial = Trial()
    rng = np.random.default_rng(3)
    x = trial.sample((4, 5, 6), dtype)
    for axis in range(3):
        size = (4, 5, 6)[axis]
        for indices in (rng.integers(0, size, (2, 3)), np.array(size - 1), np.zeros((0,), int)):
            trial.expect(ir.make("gather", x, trial.input(indices), axis=axis))
        shape = tuple(3 if k == axis else s for k, s in enumerate((4, 5, 6)))
        along, updates = trial.input(rng.integers(0, size, shape)), trial.sample(shape, dtype)
        trial.expect(ir.make("gather_elements", x, along, axis=axis))
        for reduction in ("none", "add"):
            put = ir.make("scatter_elements", x, along, updates, axis=axis, reduction=reduction)
            trial.expect(put)
    rows = trial.sample((2, 5, 6), dtype)
    trial.expect(ir.make("update_slice", x, rows, trial.input(np.array(1)), axis=0))
    trial.run()


@pytest.mark.parametrize("axis", [0, 1])
def test_scattered_products(axis: int) -> None:
    dtype = COMPLEX[1]
    shape = (9, 4) if axis == 0 else (6, 9)
    data, factors = some((6, 4), dtype), some(shape, dtype, 1)
    places = np.random.default_rng(0).integers(0, (6, 4)[axis], shape)
    nodes = [source(array, k) for k, array in enumerate((data, places, factors))]
    node = ir.make("scatter_elements", *nodes, axis=axis, reduction="mul")
    [made] = run(Graph(tuple(nodes), (node,)), data, places, factors)
    wanted = data.copy()
    for at in np.ndindex(*shape):
        target = (places[at], at[1]) if axis == 0 else (at[0], places[at])
        wanted[target] *= factors[at]
    near(made, wanted, 64)


def test_constants_counts_and_what_is_handed_through() -> None:
    dtype, array = COMPLEX[0], some((4, 3), COMPLEX[0])
    large = some((70_000,), dtype, 5)  # more than is computed while compiling
    x = source(array)
    nodes = (
        x,
        ir.constant(array),
        ir.buffer(large),
        ir.make("add", ir.make("add", x, ir.constant(array)), ir.full((4, 3), 2 - 1j, dtype)),
        ir.make("neg", ir.buffer(large)),
        ir.make("iota", axis=1, shape=(4, 3), dtype=dtype),
    )
    made = run(Graph((x,), nodes), array)
    counted = np.broadcast_to(np.arange(3, dtype=np.complex64), (4, 3))
    wanted = [array, array, large, array + array + (2 - 1j), -large, counted]
    for result, right in zip(made, wanted, strict=True):
        same_bits(result, right.astype(np.complex64))


def test_signatures_and_plans_have_complex_values() -> None:
    array = some((4, 3), COMPLEX[0])
    x = source(array)
    with compile_graph(Graph((x,), (ir.make("mul", x, x),))) as program:
        assert program.graph.inputs[0].dtype == COMPLEX[0]
        assert program.plan.slots["x0"].nbytes == program.plan.slots["out0"].nbytes == array.nbytes
        [made] = program(array)
        assert made.dtype == np.complex64
        [written] = program(array, out=[np.empty_like(array)])
        assert written.tobytes() == made.tobytes()
        assert "complex64" in str(program.passes[0].graph)


def test_loops_and_branches() -> None:
    dtype = COMPLEX[0]
    a, b = some((5,), dtype), some((5,), dtype, 1)
    x, step, flag = source(a), source(b, 1), ir.graph_input("flag", 2, (), BOOL)
    iteration, carried, captured = (
        parameter((), INT64),
        parameter((5,), dtype),
        parameter((5,), dtype),
    )
    following = ir.make("add", carried, captured)
    always = ir.full((), True, BOOL)
    row = ir.make("mul", following, following)
    body = Region((iteration, carried, captured), (always, following, row))
    trips = ir.full((), 6, INT64)
    last, rows = (
        ir.make("loop", trips, always, x, step, body=body, carried=1, index=k) for k in range(2)
    )
    chosen = ir.make("if", flag, ir.make("mul", last, x), step)
    for holds in (True, False):
        made = run(Graph((x, step, flag), (last, rows, chosen)), a, b, np.asarray(holds))
        steps = np.array([a + (k + 1) * b for k in range(6)])
        wanted = [steps[-1], steps * steps, steps[-1] * a if holds else b]
        for result, right in zip(made, wanted, strict=True):
            near(result, right, 32)


@pytest.mark.parametrize("dtype", COMPLEX, ids=name_of)
@pytest.mark.parametrize("columns", [1, 5, 70])
def test_rows_of_states(dtype: DType, columns: int) -> None:
    """Rows are put into a state in place, and read from it."""
    kept = ir.make("state", name="kept", shape=(6, columns), dtype=dtype)
    arrays = [some((2, columns), dtype), np.array(3), np.array([4, 0, 4])]
    x, start, places = (source(array, k) for k, array in enumerate(arrays))
    new = ir.make("update_slice", kept, ir.make("add", x, x), start, axis=0)
    rows = ir.make("gather", new, places, axis=0)
    outputs = (ir.make("neg", rows), ir.make("gather", x, ir.full((), 1, INT64), axis=0))
    graph = Graph((x, start, places), outputs, (), updates=((kept, new),))
    wanted = np.zeros((6, columns), dtype.to_numpy())
    with compile_graph(graph) as program:
        for k in (3, 0, 4):
            wanted[k : k + 2] = 2 * arrays[0]
            negative, row = program(arrays[0], np.array(k), arrays[2])
            same_bits(negative, -wanted[[4, 0, 4]])
            same_bits(row, arrays[0][1])
            same_bits(program.state["kept"].numpy(), wanted)
        program.verify()
        program.run_checked(arrays[0], np.array(1), arrays[2])


def test_states() -> None:
    dtype = COMPLEX[0]
    total = ir.make("state", name="total", shape=(3,), dtype=dtype)
    array = some((3,), dtype)
    x = source(array)
    new = ir.make("add", total, x)
    graph = Graph((x,), (ir.make("neg", new),), (), updates=((total, new),))
    with compile_graph(graph) as program:
        for k in range(3):
            [made] = program(array)
            near(made, -(k + 1) * array)
        program.verify()
        near(program.state["total"].numpy(), 3 * array)
        program.state["total"].load(np.zeros(3, np.complex64))
        same_bits(program(array)[0], -array)


def test_functions_of_the_host() -> None:
    array = some((3, 4), COMPLEX[0])
    x = source(array)
    given: list[Array] = []

    def function(one: Array) -> Array:
        given.append(one)
        return np.fft.fft(one).astype(np.complex64)

    attrs: Any = {"function": HostFunction(function), "shape": (3, 4), "dtype": COMPLEX[0]}
    node = ir.make("neg", ir.make("host", ir.make("add", x, x), **attrs))
    [made] = run(Graph((x,), (node,)), array)
    assert given[0].dtype == np.complex64
    near(made, -np.fft.fft(2 * array).astype(np.complex64), 32)


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed: int) -> None:
    """Every step against NumPy, from its own results before."""
    rng = np.random.default_rng(seed)
    dtype = COMPLEX[seed % 2]
    shape = tuple(int(n) for n in rng.choice([1, 3, 8, 37], 2))
    arrays = [some(shape, dtype, seed + k) for k in range(2)]
    inputs = [source(array, k) for k, array in enumerate(arrays)]
    known: list[tuple[Node, Array]] = list(zip(inputs, arrays, strict=True))
    for _ in range(25):
        (x, a), (y, b) = (known[k] for k in rng.integers(len(known), size=2))
        op = str(rng.choice("add sub mul neg where turn sum concat conj".split()))
        if op in ("add", "sub", "mul"):
            function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op]
            node, exact = ir.make(op, x, y), function(a, b) / 2
            node = ir.make("mul", node, ir.full(shape, 0.5, dtype))
        elif op == "where":
            node = ir.make("where", ir.make("lt", ir.make("real", x), ir.make("imag", y)), x, y)
            exact = np.where(a.real < b.imag, a, b)
        elif op == "turn":
            node = ir.make("slice", x, start=(shape[0] - 1, 0), stop=(-1, shape[1]), step=(-1, 1))
            exact = a[::-1]
        elif op == "sum":
            total = ir.make("reshape", ir.make("sum", x, axes=(1,)), shape=(shape[0], 1))
            node = ir.make("expand", total, shape=shape)
            node = ir.make("mul", node, ir.full(shape, 1 / shape[1], dtype))
            exact = np.broadcast_to(a.mean(1, keepdims=True), shape)
        elif op == "concat":
            both = ir.make("concat", x, y, axis=1)
            node = ir.make("slice", both, start=(0, 1), stop=(shape[0], shape[1] + 1), step=(1, 1))
            exact = np.concatenate([a, b], 1)[:, 1 : shape[1] + 1]
        elif op == "conj":
            node = ir.make("complex", ir.make("real", x), ir.make("neg", ir.make("imag", x)))
            exact = a.conj()
        else:
            node, exact = ir.make("neg", x), -a
        known.append((node, exact.astype(dtype.to_numpy())))
    results = run(Graph(tuple(inputs), tuple(node for node, _ in known)), *arrays)
    for result, (_, exact) in zip(results, known, strict=True):
        near(result, exact, 2000)
