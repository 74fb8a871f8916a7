"""Attention for tests of its kernel: sizes, how operands lie, what is seen, and what must come out,
in float64, with the bound of its rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from arenite import passes
from arenite.backends.cpu.attention.kernel import Attention, AttentionKernel
from arenite.dtype import of as dtype_of
from arenite.ir import graph_input, make
from arenite.ir.dim import Dim
from arenite.ir.graph import Graph
from arenite.tensor import Tensor
from tests.codegen.made import MadeKernel
from tests.passes.lists import PASSES

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


class Made(MadeKernel):
    """The kernel of an attention; `is_plain` compiles what it means, query by query."""

    def __init__(
        self,
        case: Case,
        shapes: Sequence[tuple[Dim, ...]],
        target: str = "host",
        is_plain: bool = False,
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
        graph, _ = passes.run(Graph(tuple(inputs), (result.node,)), PASSES)
        super().__init__(graph, target, is_plain=is_plain)

    @property
    def attention(self) -> Attention:
        loops = self.built.loops
        assert isinstance(loops, AttentionKernel)
        return loops.attention


def made_of(case: Case, target: str = "host", is_plain: bool = False) -> Made:
    return Made(case, [x.shape for x in case.operands()], target, is_plain)


def check(case: Case, target: str = "host", is_plain: bool = False) -> Made:
    made = made_of(case, target, is_plain)
    assert made.attention
    arrays = case.operands()
    [got] = made.run(arrays)
    compare(case, arrays, got)
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
