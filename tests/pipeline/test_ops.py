"""Every op of the IR, compiled and run, for every dtype it has a kernel for.

Inputs are arguments of the graph, since constants would be folded away; shapes include empty,
single and 0-d ones, elements NaN, infinities and -0.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite import ir
from arenite.dtype import BY_NAME, DType, Kind
from arenite.ir import OPS, Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.blocks import dequantise
from arenite.pipeline import compile_graph
from tests.ir.op_examples import EXAMPLES, numbers
from tests.pipeline.trial import Trial, sample

BOOL, FLOAT32, FLOAT64 = BY_NAME["bool"], BY_NAME["float32"], BY_NAME["float64"]
INT32, INT64, UINT64 = BY_NAME["int32"], BY_NAME["int64"], BY_NAME["uint64"]
FLOATS = [BY_NAME[n] for n in ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn")]
INTEGERS = [BY_NAME[f"{sign}int{bits}"] for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = [*FLOATS, *INTEGERS]
COMPUTED = [BOOL, *NUMBERS]
#: All that a kernel can hold.
HELD = [d for d in BY_NAME.values() if d.has_numpy]

SHAPES: list[tuple[int, ...]] = [(3, 37), (), (1,), (0, 3), (5, 1)]

ROUNDED_UNARY = "neg abs sign sqrt reciprocal floor ceil round trunc".split()
#: Functions no hardware rounds right; the bounds for float32 and float64 are held in tests/codegen.
PRECISE_UNARY = (
    "exp exp2 expm1 log log2 log1p rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf"
).split()
BINARY = "add sub mul floordiv mod fmod maximum minimum".split()
COMPARISONS = "eq ne lt le gt ge".split()
PRECISE_ULPS = 4
#: Of sums whose terms cancel, as in tests of convolutions.
SUM_ULPS = {"conv_winograd": 64}


def name_of(dtype: DType) -> str:
    return dtype.name


def test_every_op_has_a_kernel() -> None:
    trial = Trial()
    given: dict[Node, Node] = {}
    for op, example in EXAMPLES.items():
        node = example()
        # A size needs an input that has the variable, a parameter its region; loops and branches
        # have tests of their own.
        if op in ("size", "parameter") or OPS[op].family == "control":
            continue
        graph = Graph.of([node])
        mapping: dict[Node, Node] = {}
        for value in graph.nodes:
            if value.op in ("input", "constant"):
                array = numbers(value) if value.op == "input" else value.attr("data").array
                mapping[value] = given.setdefault(value, trial.input(array))
        made = graph.replace(mapping).outputs[0]
        made = dequantise(made) if made.dtype.is_block else made
        is_float = made.dtype.kind is Kind.FLOAT
        is_exact = not is_float or OPS[op].family == "movement"
        trial.expect(made, ulps=0 if is_exact else SUM_ULPS.get(op, 16))
    trial.run()


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_functions_of_floats(dtype: DType) -> None:
    trial = Trial()
    # A float below float32 is rounded from float32, which may fall to the other side of a tie.
    ulps = PRECISE_ULPS if dtype.bits >= 32 else 1
    for shape in SHAPES:
        x, y = trial.sample(shape, dtype), trial.sample(shape, dtype)
        for op in (*PRECISE_UNARY, "isnan", "isinf") if shape == SHAPES[0] else ("exp", "isnan"):
            trial.expect(ir.make(op, x), 0 if op.startswith("is") else ulps)
        trial.expect(ir.make("div", x, y))
        for op in ("pow", "atan2"):
            trial.expect(ir.make(op, x, y), ulps)
    trial.run()


@pytest.mark.parametrize("dtype", COMPUTED, ids=name_of)
def test_arithmetic(dtype: DType) -> None:
    trial = Trial()
    unary = {Kind.FLOAT: ROUNDED_UNARY, Kind.BOOL: ["not"]}.get(
        dtype.kind, ["neg", "abs", "sign", "not"]
    )
    binary = ["maximum", "minimum"] if dtype.kind is Kind.BOOL else BINARY
    if dtype.kind is not Kind.FLOAT:
        binary = [*binary, "and", "or", "xor"]
    if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
        binary = [*binary, "pow"]
    for shape in SHAPES:
        x, y = trial.sample(shape, dtype), trial.sample(shape, dtype)
        few = slice(None) if shape == SHAPES[0] else slice(0, 2)
        for op in unary[few]:
            trial.expect(ir.make(op, x))
        for op in [*binary, *COMPARISONS][few]:
            trial.expect(ir.make(op, x, y))
        trial.expect(ir.make("where", trial.sample(shape, BOOL), x, y))
        if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
            for op in ("shift_left", "shift_right"):
                by = np.abs(sample(shape, dtype, 7, edges=False)) % dtype.bits
                trial.expect(ir.make(op, x, trial.input(np.asarray(by, dtype.to_numpy()))))
    trial.run()


@pytest.mark.parametrize("dtype", HELD, ids=name_of)
def test_casts_to_every_dtype(dtype: DType) -> None:
    trial = Trial()
    x = trial.sample((3, 37), dtype)
    for target in HELD:
        if target != dtype:
            trial.expect(ir.make("cast", x, dtype=target))
        if target.bits == dtype.bits and BOOL not in (target, dtype):
            trial.expect(ir.make("bitcast", x, dtype=target))
    trial.run()


@pytest.mark.parametrize(
    "dtype", [BY_NAME[n] for n in ("float64", "bfloat16", "int8", "bool", "complex64")], ids=name_of
)
def test_movement(dtype: DType) -> None:
    trial = Trial()
    x, y = trial.sample((4, 5, 6), dtype), trial.sample((4, 2, 6), dtype)
    value: Any = {Kind.BOOL: True, Kind.FLOAT: -0.0}.get(dtype.kind, 3)
    trial.expect(ir.make("reshape", x, shape=(2, 60)))
    trial.expect(ir.make("permute", x, axes=(2, 0, 1)))
    trial.expect(ir.make("expand", trial.sample((4, 1, 3), dtype), shape=(4, 7, 3)))
    trial.expect(ir.make("pad", x, padding=((1, 0), (0, 0), (2, 3)), value=value))
    trial.expect(ir.make("slice", x, start=(0, 4, 5), stop=(4, 0, -1), step=(2, -3, -1)))
    trial.expect(ir.make("slice", x, start=(2, 0, 0), stop=(2, 5, 6), step=(1, 1, 1)))
    for axis, parts in ((1, (x, y, x)), (0, (x, x))):
        trial.expect(ir.make("concat", *parts, axis=axis))
    attrs: Any = {"axes": (1, 2), "sizes": (3, 2), "strides": (2, 1), "dilations": (1, 3)}
    trial.expect(ir.make("window", x, **attrs))
    none, one = trial.sample((0, 3), dtype), trial.sample((), dtype)
    trial.expect(ir.make("reshape", none, shape=(3, 0, 2)))
    trial.expect(ir.make("permute", none, axes=(1, 0)))
    trial.expect(ir.make("pad", none, padding=((1, 1), (0, 2)), value=value))
    trial.expect(ir.make("concat", none, trial.sample((2, 3), dtype), axis=0))
    trial.expect(ir.make("reshape", one, shape=(1, 1)))
    trial.expect(ir.make("expand", ir.make("reshape", one, shape=(1,)), shape=(9,)))
    trial.expect(ir.full((3, 2), value, dtype))
    trial.expect(ir.full((), value, dtype))
    trial.run()


@pytest.mark.parametrize("dtype", COMPUTED, ids=name_of)
def test_reductions(dtype: DType) -> None:
    trial = Trial()
    x, none = trial.sample((3, 5, 70), dtype), trial.sample((3, 0, 2), dtype)
    small, one = trial.sample((6, 4), dtype, edges=False), trial.sample((1, 1), dtype)
    places: list[tuple[Node, tuple[int, ...]]] = [
        *((x, axes) for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2))),
        *((none, axes) for axes in ((0,), (1,), (0, 1, 2))),
        (one, (0, 1)),
        (trial.sample((), dtype), ()),
    ]
    ordered = ["max", "min"] if dtype.kind is not Kind.BOOL else ["max", "min", "any", "all"]
    for value, axes in places:
        for op in ordered:
            trial.expect(ir.make(op, value, axes=axes))
        if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
            for op in ("sum", "prod"):
                trial.expect(ir.make(op, value, axes=axes))
    for value, axis in ((x, 0), (x, 1), (x, 2), (none, 0), (none, 1), (one, 1)):
        for op in ("argmax", "argmin"):
            trial.expect(ir.make(op, value, axis=axis))
    if dtype.kind is Kind.FLOAT:
        for axes in ((0,), (1,), (0, 1)):
            # Sums of both signs lose digits to cancellation: of squares, none.
            square = ir.make("mul", small, small)
            for op in ("sum", "prod"):
                trial.expect(ir.make(op, square, axes=axes), ulps=32 if dtype.bits >= 32 else 2)
        for value, axes in places[5:9]:
            trial.expect(ir.make("sum", value, axes=axes))
    trial.run()


@pytest.mark.parametrize("dtype", COMPUTED, ids=name_of)
def test_scans(dtype: DType) -> None:
    trial = Trial()
    values = [trial.sample(shape, dtype) for shape in ((3, 5, 7), (0, 4, 1), (1, 9, 0))]
    for axis in range(3):
        for value in values:
            trial.expect(ir.make("cummax", value, axis=axis))
            trial.expect(ir.make("cummin", value, axis=axis))
            if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
                trial.expect(ir.make("cumsum", value, axis=axis))
                trial.expect(ir.make("cumprod", value, axis=axis))
        if dtype.kind is Kind.FLOAT:
            positive = ir.make("abs", trial.sample((3, 5, 7), dtype, edges=False))
            for op in ("cumsum", "cumprod"):
                # A kernel of small floats keeps the running total in float32, like the reference.
                trial.expect(ir.make(op, positive, axis=axis), ulps=16 if dtype.bits >= 32 else 2)
    trial.run()


@pytest.mark.parametrize("dtype", COMPUTED, ids=name_of)
def test_indexing(dtype: DType) -> None:
    trial = Trial()
    rng = np.random.default_rng(3)
    x = trial.sample((4, 5, 6), dtype)
    for axis in range(3):
        size = (4, 5, 6)[axis]
        some = trial.input(rng.integers(0, size, (2, 3)))
        one, none = trial.input(np.array(size - 1)), trial.input(np.zeros((0, 2), np.int64))
        for indices in (some, one, none):
            trial.expect(ir.make("gather", x, indices, axis=axis))
        shape = tuple(3 if k == axis else s for k, s in enumerate((4, 5, 6)))
        along, updates = trial.input(rng.integers(0, size, shape)), trial.sample(shape, dtype)
        trial.expect(ir.make("gather_elements", x, along, axis=axis))
        reductions = ["none", "min", "max"]
        if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
            reductions += ["add", "mul"]
        for reduction in reductions:
            put = ir.make("scatter_elements", x, along, updates, axis=axis, reduction=reduction)
            trial.expect(put)
        if dtype in (FLOAT32, FLOAT64):
            put = ir.make("scatter_elements", x, along, updates, axis=axis, reduction="add")
            trial.expect(put)
    empty = trial.sample((0, 3), dtype)
    trial.expect(ir.make("gather", empty, trial.input(np.array([2, 0])), axis=1))
    nowhere = trial.input(np.zeros((0, 3), np.int64))
    trial.expect(ir.make("gather_elements", trial.sample((2, 3), dtype), nowhere, axis=0))
    trial.run()


@pytest.mark.parametrize("dtype", COMPUTED, ids=name_of)
def test_sorting(dtype: DType) -> None:
    trial = Trial()
    every = range(3)
    # What lies along an axis of length 0 or 1 is the same whatever its dtype.
    few = every if dtype is FLOAT32 else range(0)
    for shape, axes in (
        ((3, 70, 5), every),
        ((1, 1, 700), few or [2]),
        ((0, 4, 1), few or [1]),
        ((300, 0, 2), few),
    ):
        x = trial.sample(shape, dtype)
        for axis in axes:
            for descending in (False, True):
                trial.expect(ir.make("argsort", x, axis=axis, descending=descending))
                trial.expect(ir.make("sort", x, axis=axis, descending=descending))
    trial.run()


@pytest.mark.parametrize("dtype", NUMBERS, ids=name_of)
def test_contractions(dtype: DType) -> None:
    trial = Trial()
    ulps = 0 if dtype.kind is not Kind.FLOAT else 64 if dtype.bits >= 32 else 2

    def factor(*shape: int) -> Node:
        """Of one sign, so that nothing is lost to cancellation."""
        array = np.abs(sample(shape, dtype, len(trial.inputs), edges=False))
        return trial.input(np.asarray(array, dtype.to_numpy()))

    for m, k, n in ((1, 1, 1), (5, 7, 34), (2, 0, 3), (0, 4, 2), (3, 4, 1)):
        for ta, tb in ((False, False), (True, True)):
            a = factor(*((k, m) if ta else (m, k)))
            b = factor(*((n, k) if tb else (k, n)))
            trial.expect(ir.make("matmul", a, b, transpose_a=ta, transpose_b=tb), ulps)
    batched = ir.make(
        "matmul", factor(2, 1, 3, 4), factor(5, 4, 6), transpose_a=False, transpose_b=False
    )
    trial.expect(batched, ulps)
    attrs: Any = {"strides": (2, 1), "padding": ((1, 0), (0, 2)), "dilations": (1, 2)}
    trial.expect(ir.make("conv", factor(2, 4, 5, 6), factor(6, 2, 3, 2), groups=2, **attrs), ulps)
    trial.expect(ir.make("conv", factor(0, 4, 5, 6), factor(6, 4, 3, 2), groups=1, **attrs), ulps)
    line: Any = {"strides": (1,), "padding": ((0, 0),), "dilations": (1,)}
    trial.expect(ir.make("conv", factor(1, 1, 9), factor(1, 1, 3), groups=1, **line), ulps)
    trial.run()


@pytest.mark.parametrize("op", ["conv_transpose", "attention"])
def test_ops_written_out_in_others(op: str) -> None:
    trial = Trial()
    for dtype in (FLOAT32, FLOAT64):
        given = [
            trial.input(numbers(i).astype(dtype.to_numpy()))
            for i in Graph.of([EXAMPLES[op]()]).inputs
        ]
        trial.expect(ir.make(op, *given, **dict(EXAMPLES[op]().attrs)), ulps=64)
    trial.run()


def test_sizes_are_numbers_of_the_run() -> None:
    n = Var("n", 0, 9)
    x = ir.graph_input("x", 0, (n,), FLOAT32)
    total = ir.make("sum", x, axes=(0,))
    mean = ir.make("div", total, ir.size(n, FLOAT32))
    graph = Graph(
        (x,), (mean, ir.size(n * 3 + 1, INT64), ir.make("iota", axis=0, shape=(n,), dtype=INT32))
    )
    with compile_graph(graph) as program:
        for size in (4, 1, 9, 0):
            with np.errstate(all="ignore"):
                got, number, counted = program(np.ones(size, np.float32))
            assert np.isnan(got) if size == 0 else got == 1
            assert number == 3 * size + 1
            assert counted.tolist() == list(range(size))


def test_whole_numbers_and_their_transpose_in_one_kernel() -> None:
    """Elements of the same dtype as positions, in square tiles."""
    trial = Trial()
    x = trial.input(np.random.default_rng(8).integers(-9, 9, (64, 64)))
    turned = ir.make("permute", x, axes=(1, 0))
    less = ir.make("lt", x, turned)
    trial.expect(turned)
    trial.expect(ir.make("where", less, ir.make("add", x, turned), ir.make("neg", x)))
    trial.run()
