"""One kernel of a graph, without the rest of the pipeline: built, compiled when it first runs.

Whatever it writes lies between guards, and what it finds in its scratch is NaN or noise. Its tiles
may run in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.cpu.build import build
from arenite.backends.cpu.gemm.kernel import MicroKernel
from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind
from arenite.ir.dim import evaluate
from arenite.ir.graph import Graph
from arenite.schedule import fuse
from tests.codegen import targets
from tests.codegen.building import Guarded
from tests.codegen.run_kernels import RUNNABLE, Compiled

Array = NDArray[Any]

#: Targets this machine runs that have register tiles of floats.
TARGETS = [name for name in RUNNABLE if targets.named(name).has_fma]


def as_target(target: str | targets.Target) -> targets.Target:
    return targets.named(target) if isinstance(target, str) else target


def plain(loops: ir.LoopKernel) -> ir.LoopKernel:
    """The loops that say what a kernel means, as loops only."""
    return ir.LoopKernel(
        loops.name, loops.arrays, loops.sizes, loops.tiles, loops.tile_var, loops.body
    )


class MadeKernel:
    """The one kernel of a graph, for a target; `is_plain` compiles the loops it means."""

    def __init__(
        self, graph: Graph, target: str | targets.Target = "host", *, is_plain: bool = False
    ) -> None:
        self.graph = graph
        self.target = as_target(target)
        [self.kernel] = fuse(graph).kernels
        self.built = build(self.kernel, self.target)
        self.is_plain = is_plain

    @cached_property
    def compiled(self) -> Compiled:
        loops = self.built.loops
        return Compiled(plain(loops) if self.is_plain else loops, self.target)

    @property
    def loops(self) -> MicroKernel:
        loops = self.built.loops
        assert isinstance(loops, MicroKernel), "fell back to plain loops"
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
        names = iter(array.name for array in self.built.loops.arrays)
        bound = {next(names): np.ascontiguousarray(given[node]) for node in self.kernel.inputs}
        guards: list[Guarded] = []
        shapes = []
        for node in self.kernel.outputs:
            shapes.append(tuple(evaluate(size, sizes) for size in node.shape))
            guards.append(Guarded(np.zeros(shapes[-1], node.dtype.to_numpy()), offset=4))
            bound[next(names)] = guards[-1].array
        for scratch in self.built.scratch:
            guards.append(Guarded(_anything(evaluate(scratch.count, sizes), scratch.dtype)))
            bound[next(names)] = guards[-1].array
        if tiles is None:
            tiles = range(evaluate(self.built.tiles, sizes))
        named = {var.symbol: sizes[var.name] for var in self.graph.vars}
        splits = splits or [(tile, tile + 1) for tile in tiles] or [(0, 0)]
        self.compiled.run(bound, named, splits=splits)
        for guard in guards:
            guard.check()
        return [guards[k].array.reshape(shape).copy() for k, shape in enumerate(shapes)]

    def run_backwards(
        self, arrays: Sequence[Array], sizes: Mapping[str, int] | None = None
    ) -> list[Array]:
        """The outputs, after the last tile has run first."""
        return self.run(arrays, sizes, range(evaluate(self.built.tiles, sizes or {}) - 1, -1, -1))


def _anything(count: int, dtype: DType) -> Array:
    kept_as = dtype.to_numpy()
    if dtype.kind is Kind.FLOAT:
        return np.full(count, np.nan, kept_as)
    noise = np.random.default_rng(3).integers(0, 256, count * kept_as.itemsize)
    return noise.astype(np.uint8).view(kept_as)
