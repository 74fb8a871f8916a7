"""Products made of register tiles: against NumPy in float64, within the bound of their rounding.

Whatever is written lies between guards, scratch too. `Made` takes a function of tensors to a native
kernel without the rest of the pipeline, and can run its tiles in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import passes
from arenite.codegen import loop_ir as ir
from arenite.codegen import target as targets
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.choose import build
from arenite.codegen.micro.driver import Driver
from arenite.codegen.micro.kernel import MicroKernel
from arenite.codegen.scope import SCALAR, Binding
from arenite.codegen.vector import I64, Builder
from arenite.dtype import of as dtype_of
from arenite.ir import graph_input
from arenite.ir.dim import Dim, Var, bounds, evaluate
from arenite.ir.graph import Graph
from arenite.schedule import Kernel, fuse
from arenite.tensor import Tensor
from tests.codegen.building import Guarded
from tests.codegen.run_kernels import RUNNABLE, Compiled

Array = NDArray[Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TARGETS = [name for name in RUNNABLE if targets.named(name).has_fma]


def built_for(
    function: Callable[..., Tensor | Sequence[Tensor]],
    shapes: Sequence[tuple[Dim, ...]],
    dtype: Any = np.float32,
    target: str | targets.Target = "host",
) -> tuple[Graph, Kernel, Built]:
    """The graph of a function of tensors, its one kernel, and what is built of that."""
    inputs = [
        graph_input(f"x{k}", k, shape, dtype_of(np.dtype(dtype))) for k, shape in enumerate(shapes)
    ]
    results = function(*(Tensor.of_node(node) for node in inputs))
    results = [results] if isinstance(results, Tensor) else results
    outputs = tuple(result.node for result in results)
    graph, _ = passes.run(Graph(tuple(inputs), outputs), passes.PASSES)
    [kernel] = fuse(graph).kernels
    return graph, kernel, build(kernel, _target(target))


def _target(target: str | targets.Target) -> targets.Target:
    return targets.named(target) if isinstance(target, str) else target


class Made:
    """One kernel of a function of tensors, compiled."""

    def __init__(
        self,
        function: Callable[..., Tensor | Sequence[Tensor]],
        shapes: Sequence[tuple[Dim, ...]],
        dtype: Any = np.float32,
        target: str | targets.Target = "host",
    ) -> None:
        self.graph, self.kernel, self.built = built_for(function, shapes, dtype, target)
        self.compiled = Compiled(self.built.loops, _target(target))

    @property
    def loops(self) -> MicroKernel:
        loops = self.built.loops
        assert isinstance(loops, MicroKernel)
        return loops

    def run(
        self,
        arrays: Sequence[Array],
        sizes: Mapping[str, int] | None = None,
        tiles: Sequence[int] | None = None,
        splits: Sequence[tuple[int, int]] = (),
    ) -> list[Array]:
        """The outputs, after these tiles, or all, have run one by one, or some together as `splits`
        says."""
        sizes = sizes or {}
        given = dict(zip(self.graph.inputs, arrays, strict=True))
        bound: dict[str, Array] = {}
        guards: list[Guarded] = []
        names = iter(array.name for array in self.built.loops.arrays)
        for node in self.kernel.inputs:
            bound[next(names)] = np.ascontiguousarray(given[node])
        shapes = []
        for node in self.kernel.outputs:
            shape = tuple(evaluate(size, sizes) for size in node.shape)
            shapes.append(shape)
            guards.append(Guarded(np.zeros(shape, node.dtype.to_numpy()), offset=4))
            bound[next(names)] = guards[-1].array
        for scratch in self.built.scratch:
            count = evaluate(scratch.count, sizes)
            # What a kernel finds in its scratch is anything.
            guards.append(Guarded(np.full(count, np.nan, scratch.dtype.to_numpy())))
            bound[next(names)] = guards[-1].array
        if tiles is None:
            tiles = range(evaluate(self.built.tiles, sizes))
        splits = splits or [(tile, tile + 1) for tile in tiles]
        named = {var.symbol: sizes[var.name] for var in self.graph.vars}
        self.compiled.run(bound, named, tiles=0, splits=splits)
        for guard in guards:
            guard.check()
        return [guards[k].array.reshape(shape).copy() for k, shape in enumerate(shapes)]


def numbers(shape: Sequence[int], seed: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(dtype)


def bound_of(a: Array, b: Array, unit: float) -> Array:
    """How far a sum of products may lie from the true one, in any order of adding."""
    depth = a.shape[-1]
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    return np.asarray((depth + 2) * unit / (1 - (depth + 2) * unit) * size)


UNITS = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


def unit_of(dtype: Any) -> float:
    return UNITS.get(np.dtype(dtype), 2.0**-24)


def last_place(dtype: Any) -> float:
    """The relative error of rounding to a dtype."""
    return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Shape:
    """A product with the ways its operands may lie."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...] = ()
    a_batch: bool = True
    b_batch: bool = True
    ta: bool = False
    tb: bool = False
    a_step: int = 1
    b_step: int = 1

    def operands(self, dtype: Any) -> tuple[Array, Array]:
        """A and B as they lie in memory."""
        a = (self.k, self.m * self.a_step) if self.ta else (self.m, self.k * self.a_step)
        b = (self.n, self.k * self.b_step) if self.tb else (self.k, self.n * self.b_step)
        a_shape = (*(self.batch if self.a_batch else ()), *a)
        b_shape = (*(self.batch if self.b_batch else ()), *b)
        return numbers(a_shape, 1, dtype), numbers(b_shape, 2, dtype)

    def views(self, a: Any, b: Any) -> tuple[Any, Any]:
        """What is multiplied: [batch, m, k] and [batch, k, n], of arrays or of tensors."""
        a, b = a[..., :: self.a_step], b[..., :: self.b_step]
        return (a.swapaxes(-1, -2) if self.ta else a), (b.swapaxes(-1, -2) if self.tb else b)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = self.views(a, b)
        made: Tensor = left @ right
        return made


def check(shape: Shape, dtype: Any = np.float32, target: str | targets.Target = "host") -> Made:
    a, b = shape.operands(dtype)
    made = Made(shape.product, [a.shape, b.shape], dtype, target)
    assert isinstance(made.built.loops, MicroKernel)
    [got] = made.run([a, b])
    left, right = shape.views(a.astype(np.float64), b.astype(np.float64))
    want = left @ right
    unit = unit_of(dtype)
    error = np.abs(got.astype(np.float64) - want)
    limit = bound_of(left, right, unit) + last_place(dtype) * np.abs(want) * 1.01
    assert got.shape == want.shape
    assert (error <= limit).all(), (shape, float((error / np.maximum(limit, 1e-300)).max()))
    return made


sides = st.one_of(st.integers(1, 40), st.integers(1, 300))
shapes = st.builds(
    Shape,
    sides,
    sides,
    sides,
    st.sampled_from([(), (), (3,), (2, 2)]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([1, 1, 3]),
)


@given(shapes, st.sampled_from(TARGETS))
@settings(max_examples=120, deadline=None, derandomize=True)
def test_products_of_any_shape(shape: Shape, target: str) -> None:
    check(shape, target=target)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 300, 70), (1, 150, 611), (5, 37, 129), (130, 70, 65), (33, 1, 40), (50, 41, 192)],
)
def test_other_floats(m: int, n: int, k: int, tb: bool, dtype: Any) -> None:
    check(Shape(m, n, k, tb=tb), dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
def test_a_narrow_left_side_is_widened_once(dtype: Any, target: str) -> None:
    """In chunks of K, which changes no bit: K that chunks do not divide is widened as it goes."""
    shape = Shape(40, 70, 96)
    a, b = shape.operands(dtype)
    [chunked] = check(shape, dtype, target).run([a, b])
    longer = Shape(40, 70, 97)
    zeros = np.zeros((40, 1), dtype), np.zeros((1, 70), dtype)
    more = [np.concatenate([a, zeros[0]], axis=1), np.concatenate([b, zeros[1]])]
    [whole] = Made(longer.product, [x.shape for x in more], dtype, target).run(more)
    np.testing.assert_array_equal(chunked.view(np.uint16), whole.view(np.uint16))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 1, 1),
        Shape(1, 1, 50),
        Shape(50, 1, 1),
        Shape(1, 50, 1),
        Shape(7, 9, 1),
        Shape(300, 1, 200),
        Shape(1, 2000, 513),  # rows of B read as streams, the last one in part
        Shape(1, 5003, 101),  # more columns than are done at a time
        Shape(3, 1100, 600),
        Shape(8, 1040, 300),
        Shape(30, 1000, 200),
        Shape(130, 1024, 300),  # B is copied, for its rows share cache sets
        Shape(70, 40, 1024),  # so do the rows of A
        Shape(90, 50, 800, tb=True),  # row dots
        Shape(140, 50, 800, tb=True),  # B is transposed into panels
        Shape(1, 515, 128, tb=True),  # a row of A that stays in registers
        Shape(1, 130, 250, tb=True),
        Shape(1, 3, 37, (4,), tb=True),
        Shape(301, 1, 64),
    ],
    ids=str,
)
def test_every_form(shape: Shape, target: str) -> None:
    check(shape, target=target)


def test_forms_are_chosen() -> None:
    def product(shape: Shape) -> Any:
        return check(shape).loops.product

    assert product(Shape(1, 2000, 513)).few_form == "stream"
    assert product(Shape(1, 2000, 513)).few_heights == (1,)
    assert product(Shape(90, 50, 800, tb=True)).heights == ()
    assert product(Shape(140, 50, 800, tb=True)).copies_b
    assert product(Shape(140, 50, 800, tb=True)).few_heights == ()
    assert (
        product(Shape(1, 515, 800, tb=True)).few_columns
        > product(Shape(2, 515, 800, tb=True)).few_columns
    )
    assert not product(Shape(140, 48, 100)).copies_b
    assert product(Shape(70, 40, 1024)).heights[0] < product(Shape(70, 40, 1023)).heights[0]


@dataclass(frozen=True)
class Epilogue:
    name: str
    function: Callable[..., Any]  # of the product and two values of its shape, in tensors
    reference: Callable[..., Array]  # the same in NumPy
    slope: float = 1.0  # how much an error of the product may grow


def _gelu(x: Array) -> Array:
    from math import erf

    return np.asarray(x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))))


EPILOGUES = [
    Epilogue("relu", lambda x, r, b: (x + b).relu(), lambda x, r, b: np.maximum(x + b, 0)),
    Epilogue("residual", lambda x, r, b: x * 0.5 + r, lambda x, r, b: x * 0.5 + r),
    Epilogue("gelu", lambda x, r, b: (x + b).gelu(), lambda x, r, b: _gelu(x + b), 1.2),
    Epilogue(
        "silu and residual",
        lambda x, r, b: (x + b).silu() + r,
        lambda x, r, b: (x + b) / (1 + np.exp(-(x + b))) + r,
        1.2,
    ),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=lambda e: e.name)
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 700, 90), (6, 1030, 33), (45, 83, 60), (130, 70, 900)]
)
def test_epilogues(m: int, n: int, k: int, tb: bool, epilogue: Epilogue, target: str) -> None:
    shape = Shape(m, n, k, tb=tb)
    a, b = shape.operands(np.float32)
    residual, bias = numbers((m, n), 3), numbers((n,), 4)

    def function(x: Tensor, y: Tensor, r: Tensor, c: Tensor) -> Tensor:
        made: Tensor = epilogue.function(shape.product(x, y), r, c)
        return made

    made = Made(function, [a.shape, b.shape, (m, n), (n,)], target=target)
    assert isinstance(made.built.loops, MicroKernel)
    [got] = made.run([a, b, residual, bias])
    left, right = shape.views(a.astype(np.float64), b.astype(np.float64))
    total = left @ right
    want = epilogue.reference(total, residual.astype(np.float64), bias.astype(np.float64))
    size = np.abs(total) + np.abs(residual) + np.abs(bias)
    limit = epilogue.slope * bound_of(left, right, 2.0**-24) + 16 * 2.0**-24 * (size + 1)
    assert (np.abs(got - want) <= limit).all()


def test_two_outputs_of_one_product() -> None:
    a, b = numbers((40, 30), 1), numbers((30, 50), 2)

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        total = x @ y
        return [total, (total * 2.0).astype("float16")]

    plain, half = Made(function, [a.shape, b.shape]).run([a, b])
    np.testing.assert_allclose(plain, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(half, (plain * 2).astype(np.float16))


@pytest.mark.parametrize(
    "shape", [Shape(200, 300, 200), Shape(1, 3000, 600), Shape(90, 400, 800, tb=True)]
)
def test_tiles_may_run_in_any_order(shape: Shape) -> None:
    """So results do not depend on the number of threads."""
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [a.shape, b.shape])
    n_tiles = evaluate(made.built.tiles, {})
    assert n_tiles > 1
    [forwards] = made.run([a, b])
    [backwards] = made.run([a, b], tiles=range(n_tiles - 1, -1, -1))
    np.testing.assert_array_equal(forwards.view(np.uint32), backwards.view(np.uint32))


@pytest.mark.parametrize(
    "shape", [Shape(1, 3000, 600), Shape(5, 2100, 300), Shape(1, 5000, 128, tb=True)], ids=str
)
def test_tiles_may_run_together(shape: Shape) -> None:
    """However many of them a launch is given at once, no bit changes."""
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [a.shape, b.shape])
    n_tiles = evaluate(made.built.tiles, {})
    assert n_tiles > 1
    [one_by_one] = made.run([a, b])
    for splits in ([(0, n_tiles)], [(1, n_tiles), (0, 1)], [(0, 0), (0, n_tiles)]):
        [together] = made.run([a, b], splits=splits)
        np.testing.assert_array_equal(together.view(np.uint32), one_by_one.view(np.uint32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=str)
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 70, 530, tb=True),
        Shape(1, 5, 300, tb=True),
        Shape(3, 37, 290, tb=True),
        Shape(1, 1030, 43),
        Shape(4, 2050, 9),
    ],
    ids=str,
)
def test_more_than_the_caches_hold(shape: Shape, name: str, dtype: Any) -> None:
    check(shape, dtype, replace(targets.named(name), l3_nbytes=1 << 10))


@pytest.mark.parametrize(
    "shape",
    [Shape(20, 70, 30), Shape(2, 1100, 40), Shape(20, 40, 200, tb=True), Shape(30, 33, 17, (3,))],
)
def test_a_tile_writes_what_its_loops_say(shape: Shape) -> None:
    """The kernel's own loops, compiled as loops, write the same elements in each tile."""
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [a.shape, b.shape])
    loops = made.loops
    plain = ir.LoopKernel(
        loops.name, loops.arrays, loops.sizes, loops.tiles, loops.tile_var, loops.body
    )
    tiled, untiled = made.compiled, Compiled(plain, targets.host())
    for tile in range(evaluate(made.built.tiles, {})):
        one = [tile]
        made.compiled = tiled
        [got] = made.run([a, b], tiles=one)
        made.compiled = untiled
        [want] = made.run([a, b], tiles=one)
        np.testing.assert_array_equal(got != 0, want != 0)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("m", [1, 30, 150])
def test_nan_and_infinity_pass_through(m: int, tb: bool) -> None:
    shape = Shape(m, 41, 130, tb=tb)
    a, b = shape.operands(np.float32)
    a[0, 7] = np.inf
    b[(3, 7) if tb else (7, 3)] = 0
    b[(5, 9) if tb else (9, 5)] = np.nan
    made = Made(shape.product, [a.shape, b.shape])
    [got] = made.run([a, b])
    with np.errstate(invalid="ignore"):
        want = np.matmul(*shape.views(a.astype(np.float64), b.astype(np.float64)))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got == np.inf, want == np.inf)
    np.testing.assert_array_equal(got == -np.inf, want == -np.inf)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("least", [1, 100])
def test_sizes_known_later(least: int, tb: bool, target: str) -> None:
    rows, columns, depth = Var("rows", least, 400), Var("columns", 1, 300), Var("depth", 1, 900)
    shape = Shape(1, 1, 1, tb=tb)
    b_shape = (columns, depth) if tb else (depth, columns)

    def function(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
        return (shape.product(x, y) + c).relu()

    made = Made(function, [(rows, depth), b_shape, (columns,)], target=target)
    assert isinstance(made.built.loops, MicroKernel)
    tried = [(1, 1, 1), (1, 300, 900), (13, 33, 40), (100, 31, 800), (170, 9, 70), (400, 130, 129)]
    for m, n, k in [size for size in tried if size[0] >= least]:
        one = Shape(m, n, k, tb=tb)
        a, b = one.operands(np.float32)
        bias = numbers((n,), 5)
        sizes = {"rows": m, "columns": n, "depth": k}
        [got] = made.run([a, b, bias], sizes)
        left, right = one.views(a.astype(np.float64), b.astype(np.float64))
        want = np.maximum(left @ right + bias, 0)
        limit = bound_of(left, right, 2.0**-24) + 1e-6 * (1 + np.abs(want))
        assert (np.abs(got - want) <= limit).all(), (m, n, k)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(("n", "k"), [(96, 100), (1030, 60), (41, 800)])
def test_rows_known_later(n: int, k: int, tb: bool, target: str) -> None:
    rows = Var("rows", 1, 200)
    shape = Shape(1, n, k, tb=tb)
    b = shape.operands(np.float32)[1]
    made = Made(shape.product, [(rows, k), b.shape], target=target)
    for m in (1, 2, 3, 5, 8, 9, 13, 40, 96, 97, 168, 169, 199):
        one = Shape(m, n, k, tb=tb)
        a, b = one.operands(np.float32)
        [got] = made.run([a, b], {"rows": m})
        left, right = one.views(a.astype(np.float64), b.astype(np.float64))
        assert (np.abs(got - left @ right) <= bound_of(left, right, 2.0**-24)).all(), m


def test_scratch_does_not_grow_with_rows() -> None:
    """Where rows are known later, tiles are bounded, and so is what is planned for them."""
    shape = Shape(1, 3072, 768, tb=True)
    few, many = (
        built_for(shape.product, [(Var("rows", 1, most), 768), (3072, 768)])[2]
        for most in (200, 100_000)
    )
    assert few.scratch
    assert bounds(many.scratch[0].nbytes)[1] == bounds(few.scratch[0].nbytes)[1]


@pytest.mark.parametrize("shape", [((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0))], ids=str)
def test_sizes_of_zero(shape: Any) -> None:
    a, b = (np.ones(s, np.float32) for s in shape)
    made = Made(lambda x, y: x @ y, [a.shape, b.shape])
    [got] = made.run([a, b])
    np.testing.assert_array_equal(got, a @ b)


def test_expressions_made_while_emitting_stay_apart() -> None:
    """Each is gone when the next is made, and must not be taken for it."""
    loops = built_for(lambda x, y: x @ y, [(3, 4), (4, 5)])[2].loops
    assert isinstance(loops, MicroKernel)
    driver = Driver(Builder(targets.host()), loops)
    number = driver.builder.emit("add i64 0, 0", I64)
    driver.scope.bind("tile", Binding(ir.INT64, 0, values={SCALAR: number}))
    made = [driver.value(ir.Name("tile") + k, SCALAR).text for k in range(1, 100)]
    assert len({*made}) == len(made)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 40, 300, tb=True),
        Shape(1, 40, 100, tb=True),
        Shape(4, 40, 300, tb=True),
        Shape(1, 1040, 50),
        Shape(20, 60, 50),
    ],
    ids=str,
)
def test_results_do_not_depend_on_where_operands_lie(shape: Shape, target: str) -> None:
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [a.shape, b.shape], target=target)
    [want] = made.run([a, b])
    for offset in (0, 4, 16, 20, 32, 44, 60):
        [got] = made.run([_at(a, offset), _at(b, 60 - offset)])
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def _at(values: Array, offset: int) -> Array:
    """The same numbers, so many bytes after the beginning of a cache line."""
    raw = np.empty(values.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    place = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    place[...] = values
    return place


@pytest.mark.parametrize("name", "k block sum acc group first_row column depth part stripe".split())
@pytest.mark.parametrize("tb", [False, True])
def test_a_size_may_have_any_name(name: str, tb: bool) -> None:
    shape = Shape(7, 1030, 130, tb=tb)
    a, b = shape.operands(np.float32)
    made = Made(shape.product, [(Var(name, 1, 200), 130), b.shape])
    [got] = made.run([a, b], {name: 7})
    left, right = shape.views(a.astype(np.float64), b.astype(np.float64))
    assert (np.abs(got - left @ right) <= bound_of(left, right, 2.0**-24)).all()
