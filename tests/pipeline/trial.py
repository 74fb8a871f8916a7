"""Trial: many small nodes compiled as one graph and judged by the reference: one thread, two, and
launch by launch with every byte watched.
from tests.pipeline.loaded import loaded

Compiling costs far more than running, so a trial gathers whatever shares a subject. Results are
held bit for bit unless a node was added with a tolerance, in units in the last place of its dtype.
Any NaN is as good as another, and so is either zero where an op chooses among its elements.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import DType, Kind
from arenite.dtype import of as dtype_of
from arenite.ir import reference
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph
from arenite.runtime.executable import Executable
from tests.pipeline.loaded import loaded

Array = NDArray[Any]

_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 100.0, 3e4, -3e4, 1e-40)
#: Whether the largest of -0.0 and 0.0 is the one or the other is nobody's promise.
_CHOOSING = frozenset("maximum minimum max min cummax cummin scatter_elements".split())
_NOT_FINITE = (float("inf"), float("-inf"), float("nan"))


def sample(shape: tuple[int, ...], dtype: DType, seed: int, edges: bool = True) -> Array:
    """Random elements with the edge values of the dtype among them."""
    rng = np.random.default_rng(seed)
    if dtype.kind is Kind.BOOL:
        return np.asarray(rng.integers(0, 2, shape).astype(np.bool_))
    wanted = dtype.to_numpy()
    if dtype.kind is Kind.COMPLEX:
        made = np.empty(shape, wanted)
        part = dtype_of(made.real.dtype)
        made.real = sample(shape, part, seed, edges)
        made.imag = sample(shape, part, seed + 1000, edges)
        return made
    if dtype.kind is not Kind.FLOAT:
        limits = np.iinfo(wanted)
        values = rng.integers(max(limits.min, -20), 20, shape).astype(wanted)
        if edges:
            picked = rng.choice(np.array([limits.min, limits.max, 0, 1], wanted), shape)
            values = np.where(rng.random(shape) < 0.2, picked, values)
        return np.asarray(values, wanted)
    values = (3 * rng.standard_normal(shape)).astype(wanted)
    if edges:
        with np.errstate(all="ignore"):
            known = np.array([*_EDGES, *_NOT_FINITE], np.float64).astype(wanted)
        values = np.where(rng.random(shape) < 0.4, rng.choice(known, shape), values)
    return np.asarray(values, wanted)


class Trial:
    """Inputs and outputs of one graph in the making."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.inputs: list[Node] = []
        self.outputs: list[tuple[Node, float]] = []

    def input(self, array: Array) -> Node:
        dtype = dtype_of(array.dtype)
        node = ir.graph_input(f"x{len(self.inputs)}", len(self.inputs), array.shape, dtype)
        self.inputs.append(node)
        self.arrays.append(array)
        return node

    def sample(self, shape: tuple[int, ...], dtype: DType, edges: bool = True) -> Node:
        return self.input(sample(shape, dtype, len(self.inputs), edges))

    def expect(self, node: Node, ulps: float = 0) -> None:
        """Compare this node with the reference, within `ulps` units in the last place."""
        self.outputs.append((node, ulps))

    @property
    def graph(self) -> Graph:
        return Graph(tuple(self.inputs), tuple(node for node, _ in self.outputs))

    def run(self) -> None:
        """Compile, run and compare, also launch by launch with every byte watched."""
        graph = self.graph
        expected = reference.evaluate(graph, self.arrays)
        results = []
        for threads in (1, 2):
            with compile_graph(graph, threads=threads) as program:
                results.append(program(*self.arrays))
                program.verify()
        with compile_graph(graph) as program:
            checked = program.run_checked(*self.arrays)
        for (node, _), one, other in zip(self.outputs, results[0], checked, strict=True):
            assert _bits(one) == _bits(other), f"{node!r}: a checked run differs"
        for (node, ulps), one, two, wanted in zip(self.outputs, *results, expected, strict=True):
            assert _bits(one) == _bits(two), f"{node!r}: one and two threads differ"
            same(one, wanted, ulps, node)


def run_poisoned(program: Executable, *arrays: Array) -> list[Array]:
    """Run over an arena in which nothing of use is left."""
    loaded(program).binder.arena_base()
    arena = loaded(program).binder.arena
    assert arena is not None
    arena.buffer.as_host_bytes_mut()[:] = b"\xff" * arena.nbytes
    return program(*arrays)


def _bits(array: Array) -> bytes:
    """The bytes of an array, with one NaN for all."""
    if array.dtype.kind in "biu":
        return array.tobytes()
    if array.dtype.kind == "c":
        return _bits(array.real) + _bits(array.imag)
    wide = array.astype(np.float64)
    return np.where(np.isnan(wide), np.nan, wide).tobytes()


def same(result: Array, wanted: Array, ulps: float, node: Node) -> None:
    """Equal type, shape and elements, -0.0 apart from 0.0; or near, where `ulps` allows it."""
    what = repr(node)
    assert result.dtype == wanted.dtype, what
    assert result.shape == wanted.shape, what
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(result, wanted, err_msg=what)
        return
    if wanted.dtype.kind == "c":
        same(result.real, wanted.real, ulps, node)
        same(result.imag, wanted.imag, ulps, node)
        return
    one, other = result.astype(np.float64), wanted.astype(np.float64)
    if not ulps:
        np.testing.assert_array_equal(one, other, err_msg=what)
        if node.op in _CHOOSING:
            return
        both = ~np.isnan(other)
        signs = np.signbit(one[both]) == np.signbit(other[both])
        assert signs.all(), f"{what}: zeros of another sign"
        return
    information = ml_dtypes.finfo(wanted.dtype)  # type: ignore[no-untyped-call]
    unit, tiny = float(information.eps), float(information.smallest_subnormal)
    np.testing.assert_array_equal(np.isnan(one), np.isnan(other), err_msg=what)
    with np.errstate(all="ignore"):
        infinite = np.isinf(one) | np.isinf(other) | np.isnan(other)
        near = np.abs(one - other) <= ulps * np.maximum(unit * np.abs(other), tiny)
        assert (near | infinite).all(), (
            f"{what}: {one[~(near | infinite)][:4]} for {other[~(near | infinite)][:4]}"
        )
    # Where the reference is infinite the result may be the last finite number before it.
    largest = float(information.max) * (1 - ulps * unit)
    ends = infinite & ~np.isnan(other)
    assert (np.abs(one[ends]) >= largest).all(), what
    np.testing.assert_array_equal(np.sign(one[ends]), np.sign(other[ends]), err_msg=what)
