"""Attention in one kernel: against NumPy in float64, within the bound of its rounding.

Whatever is written lies between guards, scratch too, and scratch begins as NaN. `Made` takes an
attention of views to a native kernel without the rest of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from arenite.codegen.kernels.choose import build
from arenite.codegen.micro.attention_kernel import Attention, AttentionKernel
from arenite.dtype import of as dtype_of
from arenite.errors import NotCompiled
from arenite.ir import graph_input, make
from arenite.ir.dim import Dim, Var, evaluate
from arenite.ir.graph import Graph
from arenite.ir.reference import evaluate as evaluate_graph
from arenite.schedule import fuse
from arenite.tensor import Tensor
from tests.codegen.building import Guarded, same
from tests.codegen.run_kernels import RUNNABLE, Compiled

Array = NDArray[Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
UNITS = {np.dtype(np.float64): 2.0**-53}


@dataclass(frozen=True)
class Case:
    """Sizes, how the operands lie in memory, and what is seen.

    `lies` spells the axes of memory: heads, tokens, width, in the order they have there.
    """

    batch: tuple[int, ...] = (1,)
    heads: int = 2
    groups: int = 2
    queries: int = 5
    keys: int = 7
    depth: int = 8
    width: int = 8
    lies: str = "htd"
    causal: bool = False
    offset: int = 0
    window: int = 0
    mask: str = ""  # "bool" or "add"
    mask_axes: str = "bhts"  # those along which the mask has its full size
    dtype: Any = np.float32
    kept: Any = None  # what keys and values are kept as: the same, a narrower float, or int8
    scales: Any = np.float32  # what the scales of int8 are
    spread: float = 1.0
    chunk: int = 0  # keys of a part; 0: no parts

    @property
    def scores(self) -> tuple[int, ...]:
        return (*self.batch, self.heads, self.queries, self.keys)

    def operands(self, seed: int = 0) -> list[Array]:
        """q, k, v, the mask and scales as they lie in memory."""
        rng = np.random.default_rng(seed)
        found: list[Array] = []
        for heads, tokens, width in (
            (self.heads, self.queries, self.depth),
            (self.groups, self.keys, self.depth),
            (self.groups, self.keys, self.width),
        ):
            values = rng.standard_normal((*self.batch, heads, tokens, width)) * self.spread
            dtype = self.dtype if not found or self.kept is None else self.kept
            if dtype is np.int8:
                values = np.rint(np.clip(values * 50, -128, 127))
            found.append(np.ascontiguousarray(self._turned(values)).astype(dtype))
        if self.mask:
            kept = ["b" in self.mask_axes] * len(self.batch)
            kept += [axis in self.mask_axes for axis in "hts"]
            shape = [size if own else 1 for size, own in zip(self.scores, kept, strict=True)]
            if self.mask == "bool":
                found.append(rng.random(shape) > 0.4)
            else:
                values = rng.standard_normal(shape) * 2
                values[rng.random(shape) < 0.2] = -np.inf
                found.append(values.astype(self.dtype))
        if self.kept is np.int8:
            # By key and head, or by head and key.
            for _ in range(2):
                values = rng.uniform(0.001, 0.04, (*self.batch, self.groups, self.keys))
                lying = values.swapaxes(-1, -2) if self.lies == "thd" else values
                found.append(np.ascontiguousarray(lying).astype(self.scales))
        return found

    def _axes(self) -> list[int]:
        n = len(self.batch)
        return [*range(n), *(n + "htd".index(axis) for axis in self.lies)]

    def _turned(self, values: Array) -> Array:
        return values.transpose(self._axes())

    def seen(self, lying: Any) -> Any:
        """An operand as [..., heads, tokens, width], of an array or of a tensor."""
        back = [int(at) for at in np.argsort(self._axes())]
        return lying.transpose(*back) if isinstance(lying, Tensor) else lying.transpose(back)

    def scales_of(self, lying: Any) -> Any:
        """Scales as [..., heads, tokens]."""
        return lying.swapaxes(-1, -2) if self.lies == "thd" else lying

    def attention(self, *tensors: Tensor) -> Tensor:
        nodes = [self.seen(x).node for x in tensors[:3]]
        rest = list(tensors[3:])
        if self.mask:
            nodes.append(rest.pop(0).node)
        nodes += [self.scales_of(x).node for x in rest]
        attrs = {"causal": self.causal, "offset": self.offset, "window": self.window}
        if self.chunk:
            attrs["chunk"] = self.chunk
        op = "attention_parts" if self.chunk else "attention"
        return Tensor.of_node(make(op, *nodes, scale=self.depth**-0.5, **attrs))


def reference(case: Case, arrays: Sequence[Array]) -> tuple[Array, Array]:
    """The result in float64, and how far rounding may take a computed one from it."""
    q, k, v = (case.seen(x).astype(np.float64) for x in arrays[:3])
    if case.kept is np.int8:
        k, v = (
            x * case.scales_of(one).astype(np.float64)[..., None]
            for x, one in zip((k, v), arrays[-2:], strict=True)
        )
    times = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(x, times, axis=-3) for x in (k, v))
    scale = q.shape[-1] ** -0.5
    unit = UNITS.get(np.dtype(case.dtype), 2.0**-24)
    scores = q @ k.swapaxes(-1, -2) * scale
    sizes = np.abs(q) @ np.abs(k).swapaxes(-1, -2) * scale
    if case.mask == "add":
        scores = scores + arrays[3].astype(np.float64)
        sizes = sizes + np.where(np.isfinite(arrays[3]), np.abs(arrays[3]), 0)
    hidden = np.zeros(scores.shape, bool)
    if case.mask == "bool":
        hidden |= ~arrays[3]
    if case.causal:
        n_queries, n_keys = scores.shape[-2:]
        last = np.arange(n_queries)[:, None] + case.offset
        hidden |= np.arange(n_keys) > last
        if case.window:
            hidden |= np.arange(n_keys) <= last - case.window
    scores = np.where(hidden, -np.inf, scores)
    highest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = weights.sum(axis=-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    want = weights @ v
    # A score is off by its depth, a weight by twice that and exp2, a sum by its length.
    off = np.max((case.depth + 8) * unit * sizes, axis=-1, keepdims=True, initial=0)
    relative = 4 * off + (2 * scores.shape[-1] + 32) * unit
    eps = float(ml_dtypes.finfo(case.dtype).eps)  # type: ignore[no-untyped-call]
    return want, relative * (weights @ np.abs(v)) + eps * np.abs(want) + 1e-30


class Made:
    """The kernel of an attention, compiled; `plain` compiles what it means, query by query."""

    def __init__(
        self,
        case: Case,
        shapes: Sequence[tuple[Dim, ...]],
        target: str = "host",
        plain: bool = False,
    ) -> None:
        float_dtype = dtype_of(np.dtype(case.dtype))
        kept = float_dtype if case.kept is None else dtype_of(np.dtype(case.kept))
        dtypes = [float_dtype, kept, kept]
        if case.mask:
            dtypes.append(dtype_of("bool") if case.mask == "bool" else float_dtype)
        if case.kept is np.int8:
            dtypes += [dtype_of(np.dtype(case.scales))] * 2
        inputs = [
            graph_input(f"x{k}", k, shape, dtype)
            for k, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        ]
        result = case.attention(*(Tensor.of_node(node) for node in inputs))
        self.graph, _ = passes.run(Graph(tuple(inputs), (result.node,)), passes.PASSES)
        [self.kernel] = fuse(self.graph).kernels
        self.built = build(self.kernel, targets.named(target))
        loops = self.built.loops
        assert isinstance(loops, AttentionKernel)
        self.attention: Attention = loops.attention
        if plain:
            loops = ir.LoopKernel(
                loops.name, loops.arrays, loops.sizes, loops.tiles, loops.tile_var, loops.body
            )
        self.compiled = Compiled(loops, targets.named(target))

    def run(
        self,
        arrays: Sequence[Array],
        sizes: Mapping[str, int] | None = None,
        tiles: Sequence[int] | None = None,
    ) -> Array:
        sizes = sizes or {}
        given = dict(zip(self.graph.inputs, arrays, strict=True))
        names = [array.name for array in self.built.loops.arrays]
        bound = {
            name: np.ascontiguousarray(given[node])
            for name, node in zip(names, self.kernel.inputs, strict=False)
        }
        [node] = self.kernel.outputs
        shape = tuple(evaluate(size, sizes) for size in node.shape)
        out = Guarded(np.zeros(shape, node.dtype.to_numpy()), offset=4)
        [need] = self.built.scratch
        scratch = Guarded(np.full(evaluate(need.count, sizes), np.nan, need.dtype.to_numpy()))
        bound |= {names[-2]: out.array, names[-1]: scratch.array}
        if tiles is None:
            tiles = range(evaluate(self.built.tiles, sizes))
        named = {var.symbol: sizes[var.name] for var in self.graph.vars}
        self.compiled.run(bound, named, splits=[(tile, tile + 1) for tile in tiles])
        out.check()
        scratch.check()
        return out.array.reshape(shape).copy()


def check(case: Case, target: str = "host", plain: bool = False) -> Made:
    arrays = case.operands()
    made = Made(case, [x.shape for x in arrays], target, plain)
    compare(case, arrays, made.run(arrays))
    return made


def compare(case: Case, arrays: Sequence[Array], got: Array) -> None:
    want, limit = reference(case, arrays)
    if case.chunk:
        assert got.shape[-2] == -(-case.keys // case.chunk)
        got = joined(got.astype(np.float64))
    assert got.shape == want.shape
    error = np.abs(got.astype(np.float64) - want)
    assert (error <= limit).all(), (case, float((error / limit).max()))


def joined(parts: Array) -> Array:
    """Parts of an attention as one."""
    sums, highest, total = parts[..., :-2], parts[..., -2], parts[..., -1]
    top = highest.max(axis=-1, keepdims=True, initial=-np.inf)
    factor = np.exp2(highest - np.where(np.isneginf(top), 0, top))
    whole = (total * factor).sum(axis=-1)
    mixed = (sums * factor[..., None]).sum(axis=-2)
    return np.asarray(mixed / np.where(whole == 0, 1, whole)[..., None])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    groups = draw(st.integers(1, 3))
    causal = draw(st.booleans())
    keys = draw(st.one_of(st.integers(1, 30), st.integers(1, 400)))
    return Case(
        batch=draw(st.sampled_from([(), (1,), (2,), (2, 2)])),
        heads=groups * draw(st.sampled_from([1, 2, 3, 7])),
        groups=groups,
        queries=draw(st.one_of(st.integers(1, 10), st.integers(1, 300))),
        keys=keys,
        depth=draw(st.integers(1, 80)),
        width=draw(st.integers(1, 80)),
        lies=draw(st.sampled_from(["htd", "htd", "thd", "hdt"])),
        causal=causal,
        window=draw(st.sampled_from([0, 1, 5, 40, 200])) if causal else 0,
        kept=draw(st.sampled_from([None, None, np.float16, np.int8])),
        scales=draw(st.sampled_from([np.float32, np.float16])),
        offset=draw(st.one_of(st.just(0), st.integers(-keys, 2 * keys))),
        mask=draw(st.sampled_from(["", "", "bool", "add"])),
        mask_axes=draw(st.sampled_from(["bhts", "ts", "s", "bs", "hs", "bt", ""])),
    )


@given(cases(), st.sampled_from(RUNNABLE))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_attention_of_any_shape(case: Case, target: str) -> None:
    check(case, target)


@given(cases(), st.integers(1, 8), st.integers(1, 300), st.sampled_from(RUNNABLE))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_parts_of_any_shape(case: Case, queries: int, chunk: int, target: str) -> None:
    lies = "htd" if case.lies == "hdt" else case.lies
    queries = min(queries, 32 // (case.heads // case.groups))
    check(replace(case, queries=queries, lies=lies, chunk=chunk), target)


def test_parts_of_many_queries_are_refused() -> None:
    case = Case(queries=9, keys=30, chunk=10)
    with pytest.raises(NotCompiled, match="has 9 queries; parts are made of at most 8"):
        Made(case, [x.shape for x in case.operands()])


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
def test_parts_of_small_floats(dtype: Any) -> None:
    case = Case(queries=3, keys=700, chunk=128, causal=True, offset=600, dtype=dtype)
    assert check(case).built.loops.array("out0").dtype == dtype_of("float32")


@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("queries", [1, 6, 40, 133])
@pytest.mark.parametrize("causal", [False, True])
def test_other_floats(queries: int, causal: bool, dtype: Any) -> None:
    case = Case(queries=queries, keys=150, depth=40, width=24, causal=causal, dtype=dtype)
    check(replace(case, lies="thd", mask="add", mask_axes="ts"))
    check(replace(case, heads=6, groups=2, offset=30))


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("depth", [1, 16, 64, 129, 256])
@pytest.mark.parametrize("queries", [1, 4, 70])
def test_widths(depth: int, queries: int, target: str) -> None:
    check(Case(queries=queries, keys=90, depth=depth, width=257 - depth), target)


def test_rows_a_page_apart() -> None:
    case = Case(heads=16, groups=16, queries=70, keys=140, depth=64, width=64, lies="thd")
    assert check(case).attention.copies_k
    assert not check(replace(case, heads=12, groups=12)).attention.copies_k


@pytest.mark.parametrize("queries", [3, 150])
def test_scores_that_grow_from_block_to_block(queries: int) -> None:
    """Every block of keys beats all before it by far, so that earlier results all but vanish."""
    case = Case(queries=queries, keys=600, depth=4, width=5)
    q, k, v = case.operands()
    q[...] = np.abs(q)
    k[...] = np.abs(k) * np.linspace(0, 60, case.keys, dtype=np.float32)[:, None]
    arrays = [q, k, v]
    made = Made(case, [x.shape for x in arrays])
    compare(case, arrays, made.run(arrays))
    flipped = [q, k[..., ::-1, :].copy(), v]
    compare(case, flipped, made.run(flipped))


@pytest.mark.parametrize("queries", [2, 40])
def test_who_sees_nothing_gets_zeros(queries: int) -> None:
    case = Case(queries=queries, keys=300, mask="bool")
    q, k, v, mask = case.operands()
    mask[..., 1, :] = False
    mask[..., 0, :290] = False
    made = Made(case, [q.shape, k.shape, v.shape, mask.shape])
    got = made.run([q, k, v, mask])
    assert (got[..., 1, :] == 0).all()
    compare(case, [q, k, v, mask], got)
    early = Case(queries=queries, keys=300, causal=True, offset=-1)
    assert (check(early).run([q, k, v])[..., 0, :] == 0).all()


@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", ["q", "k", "mask"])
def test_what_is_not_a_number_spreads_as_in_the_reference(
    place: str, bad: float, queries: int
) -> None:
    case = Case(queries=queries, keys=270, mask="add")
    arrays = case.operands()
    q, k, _, mask = arrays
    np.nan_to_num(mask, copy=False, neginf=-3.0)
    if place == "q":
        q[..., 1, 3] = bad
    elif place == "k":
        k[..., 200, 3] = bad
    else:
        mask[..., 1, 100] = bad
    made = Made(case, [x.shape for x in arrays])
    [expected] = evaluate_graph(made.graph, arrays)
    got = made.run(arrays)
    assert (np.isnan(got) == np.isnan(expected)).all()
    fine = ~np.isnan(expected)
    assert np.abs(got[fine] - expected[fine]).max(initial=0) < 1e-5


@pytest.mark.parametrize("queries", [1, 5, 140])
def test_tiles_in_any_order_give_the_same_bits(queries: int) -> None:
    case = Case(batch=(3,), heads=6, groups=3, queries=queries, keys=200, causal=True, offset=60)
    arrays = case.operands()
    made = Made(case, [x.shape for x in arrays])
    n_tiles = evaluate(made.built.tiles, {})
    assert n_tiles > 2
    first = made.run(arrays)
    assert same(first, made.run(arrays, tiles=range(n_tiles - 1, -1, -1)))


def test_more_blocks_than_tiles() -> None:
    case = Case(batch=(13,), heads=8, groups=4, queries=20, keys=20, depth=4, width=4)
    made = check(case)
    assert evaluate(made.built.tiles, {}) < 13 * 8


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["", "add"])
def test_sizes_known_later(causal: bool, mask: str) -> None:
    batch, queries, keys = Var("batch", 1, 4), Var("queries", 1, 700), Var("keys", 1, 700)
    case = Case(heads=4, groups=2, depth=12, width=20, causal=causal, offset=9, mask=mask)
    case = replace(case, mask_axes="ts", lies="thd")
    shapes: list[tuple[Dim, ...]] = [
        (batch, queries, 4, 12),
        (batch, keys, 2, 12),
        (batch, keys, 2, 20),
    ]
    if mask:
        shapes.append((1, 1, queries, keys))
    made = Made(case, shapes)
    for b, t, s in [(1, 1, 1), (2, 1, 700), (1, 8, 130), (3, 9, 129), (1, 300, 257), (4, 128, 128)]:
        now = replace(case, batch=(b,), queries=t, keys=s)
        arrays = now.operands()
        compare(now, arrays, made.run(arrays, {"batch": b, "queries": t, "keys": s}))


def test_an_offset_known_later() -> None:
    past = Var("past", 0, 500)
    case = Case(heads=4, groups=2, queries=1, causal=True)
    for queries in (1, 20):
        later = replace(case, queries=queries, offset=past)  # type: ignore[arg-type]
        keys: Dim = past + queries
        made = Made(later, [(1, 4, queries, 8), (1, 2, keys, 8), (1, 2, keys, 8)])
        for n in (0, 3, 500):
            now = replace(case, queries=queries, offset=n, keys=n + queries)
            arrays = now.operands()
            compare(now, arrays, made.run(arrays, {"past": n}))


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize(
    "case",
    [
        Case(heads=6, depth=21, width=13),
        Case(heads=2, depth=64, width=64, kept=np.int8),
        Case(heads=4, depth=3, width=70, window=37),
        Case(depth=16, width=16, window=130, dtype=np.float64),
        Case(depth=40, width=24, window=130, dtype=np.float16),
    ],
    ids=str,
)
def test_rows_do_not_depend_on_those_beside_them(case: Case, target: str) -> None:
    """Nor on whether their number was known: the last call is of a kernel of its own."""
    rows, past = Var("rows", 1, 300), Var("past", 0, 300)
    whole = replace(case, queries=300, keys=300, causal=True, spread=2.0)
    q, *others = whole.operands()
    later = replace(whole, offset=past)  # type: ignore[arg-type]
    seen: Dim = past + rows
    shapes = [tuple(seen if size == 300 else size for size in x.shape) for x in others]
    made = Made(later, [(1, case.heads, rows, case.depth), *shapes], target)

    def run(made: Made, at: int, n: int) -> Array:
        given = [x[:, :, : at + n] for x in others]
        return made.run([q[:, :, at : at + n], *given], {"rows": n, "past": at})

    expected = run(made, 0, 300)
    for n in (1, 2, 7, 8, 9, 16, 33, 128):
        for at in range(0, 301 - n, max(n, 23)):
            assert same(run(made, at, n), expected[:, :, at : at + n]), (n, at)
    for n in (4, 20):
        fixed = replace(whole, queries=n, offset=300 - n)
        known = Made(fixed, [(1, case.heads, n, case.depth), *(x.shape for x in others)], target)
        got = known.run([q[:, :, 300 - n :], *others])
        assert same(got, expected[:, :, 300 - n :]), n


def test_forms_are_chosen() -> None:
    def forms(case: Case) -> tuple[int, bool]:
        made = check(case).attention
        return made.few_up_to, made.has_panels

    case = Case(keys=40, depth=16, width=16)
    assert forms(replace(case, queries=3)) == (8, False)
    assert forms(replace(case, queries=64)) == (0, True)
    assert forms(replace(case, queries=3, lies="hdt")) == (0, True)
    assert check(replace(case, queries=77)).attention.has_narrow
    assert not check(replace(case, queries=64)).attention.has_narrow
    shared = replace(case, heads=12, groups=3)  # four heads share keys
    assert check(replace(shared, queries=1)).attention.few_blocks == ir.index(3)
    assert forms(replace(shared, queries=8)) == (8, False)
    assert forms(replace(shared, queries=8, groups=1)) == (0, True)
    assert forms(replace(shared, queries=1, heads=40, groups=1)) == (1, False)


@pytest.mark.parametrize(
    "case",
    [
        Case(queries=5, keys=9, causal=True, offset=2),
        Case(queries=40, keys=30, heads=4, mask="bool", lies="thd"),
        Case(queries=1, keys=30, heads=4, mask="add", mask_axes="hs"),
        Case(queries=2, keys=30, causal=True, offset=3, chunk=7),
        Case(queries=5, keys=30, causal=True, offset=20, window=6),
        Case(queries=3, keys=30, heads=4, mask="add", kept=np.int8, lies="thd"),
    ],
    ids=str,
)
def test_the_loops_mean_the_same(case: Case) -> None:
    check(case, plain=True)


@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (np.float64, np.float16),
        (np.float64, np.int8),
        (np.float32, BFLOAT16),
        (np.float16, np.int8),
    ],
    ids=str,
)
def test_keys_narrower_than_queries(dtype: Any, kept: Any, queries: int) -> None:
    case = Case(heads=6, queries=queries, keys=300, depth=24, width=40, dtype=dtype, kept=kept)
    check(replace(case, lies="thd", causal=True, offset=250, window=90))
    check(replace(case, mask="add", mask_axes="ts"))


def test_windows_skip_what_no_query_sees() -> None:
    """Keys before the window of all queries are never read: they may be anything."""
    for queries in (1, 3, 100):
        case = Case(queries=queries, keys=900, causal=True, offset=790, window=64)
        q, k, v = case.operands()
        made = Made(case, [x.shape for x in (q, k, v)])
        wanted = made.run([q, k, v])
        for x in (k, v):
            x[..., : 790 - 63, :] = np.nan
        np.testing.assert_array_equal(made.run([q, k, v]), wanted)
