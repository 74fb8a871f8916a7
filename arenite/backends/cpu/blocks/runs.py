"""RunsKernel: FLOAT32 becomes runs of 32 bytes with their scales, as `ir.ops.blocks` says.

As a LoopKernel its body makes run by run: that is its meaning, for people and for checks. What is
compiled keeps runs in registers from their maxima to their sums, four side by side. Magnitudes are
compared as integers, which puts NaN above all others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from arenite.backends.cpu.gemm.row_dots import halved
from arenite.backends.cpu.gemm.tile import lanes_of, moved
from arenite.backends.cpu.lowering.arithmetic import unary
from arenite.backends.cpu.lowering.loops import Lowering
from arenite.backends.cpu.lowering.partials import Phase
from arenite.backends.cpu.lowering.scope import SCALAR
from arenite.backends.cpu.lowering.tile import quarter
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.backends.cpu.ops.block_forms import BLOCK, STEP
from arenite.backends.cpu.ops.blocks import (
    HALF_SUM_WORD,
    RUN_WORDS,
    SCALE_WORD,
    SCALED_SUM_WORD,
    SUM_WORD,
)
from arenite.codegen import loop_ir as ir
from arenite.codegen.block_elements import number
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.special import _ROW, RowKernel
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import FLOAT32, INT32, DType
from arenite.ir.dim import bounds, product
from arenite.ir.ops.blocks import LEAST_NORMAL

#: Runs in a tile of the launch: some microseconds.
TILE_RUNS = 512
#: The bits of a float without its sign, and those of infinity.
_MAGNITUDE, _INFINITY = 0x7FFFFFFF, 0x7F800000


#: Runs made side by side: as many as a small vector has lanes, which holds a number of each.
TOGETHER = 4

Join: TypeAlias = Callable[[Vec, Vec], Vec]


@dataclass(frozen=True, slots=True)
class RunsKernel(ir.LoopKernel):
    n_runs: ir.Expr


class RunsDriver:
    """The function of a RunsKernel."""

    def __init__(self, builder: Builder, kernel: RunsKernel) -> None:
        self.builder = builder
        self.kernel = kernel
        self.lowering = Lowering(builder, kernel)

    def run(self) -> None:
        b = self.builder
        n_runs = self.lowering.value(self.kernel.n_runs, SCALAR)
        first = Vec(b, "%tile_begin", I64) * TILE_RUNS
        last = b.intrinsic("smin", Vec(b, "%tile_end", I64) * TILE_RUNS, n_runs)
        phases = [Phase(1, TOGETHER), Phase(1, 1)]
        self.lowering.counted_loop(
            first, last, phases, (), lambda phase, at: self._runs(at, phase.parts)
        )
        b.block.end = "ret void"

    def _runs(self, first: Vec, count: int) -> None:
        """Some runs from `first` on, at most four; of fewer the last stands for those missing."""
        b = self.builder
        lanes = lanes_of(b.target, FLOAT32)
        t = VType("f", 32, lanes)
        [source] = (array.name for array in self.kernel.arrays if array.role == "in")
        x_at = moved(b, self.lowering.pointers[source], first * (BLOCK * 4))
        out_at = moved(b, self.lowering.pointers["out0"], first * (RUN_WORDS * 4))

        def load(run: int, lane: int) -> Vec:
            where = b.offset(x_at, 4 * (min(run, count - 1) * BLOCK + lane))
            return b.load(t, where, 4)

        runs = [[load(run, lane) for lane in range(0, BLOCK, lanes)] for run in range(TOGETHER)]
        largest = [[x.bits() & _MAGNITUDE for x in run] for run in runs]
        most = _across([reduce(_larger, own) for own in largest], _larger)
        scale = most.as_float() / 127.0
        is_none = scale.lt(LEAST_NORMAL)
        scale = is_none.select(0.0, scale)
        inverse = is_none.select(0.0, b.constant(1.0, scale.type) / scale)
        is_finite = most.lt(_INFINITY).convert("sext", most.type)
        made = []
        for k, run in enumerate(runs):
            spread, kept = (b.shuffle(x, None, [k] * lanes) for x in (inverse, is_finite))
            made.append([unary("round", x * spread, FLOAT32).to_int() & kept for x in run])
        for k, numbers in enumerate(made[:count]):
            for part, value in enumerate(numbers):
                narrow = value.convert("trunc", VType("i", 8, lanes))
                where = b.offset(out_at, k * RUN_WORDS * 4 + part * lanes)
                b.store(narrow, where, 4)
        in_half = BLOCK // 2 // lanes
        half, other = (
            _across([reduce(operator.add, numbers[part]) for numbers in made], operator.add)
            for part in (slice(in_half), slice(in_half, None))
        )
        total = half + other
        scaled = scale * total.convert("sitofp", scale.type)
        words = quarter([scale.bits(), scaled.bits(), -total, -half])
        for k, own in enumerate(words[:count]):
            where = b.offset(out_at, 4 * (k * RUN_WORDS + SCALE_WORD))
            b.store(own, where, 4)


def _larger(a: Vec, b: Vec) -> Vec:
    return a.builder.intrinsic("smax", a, b)


def _across(vectors: list[Vec], join: Join) -> Vec:
    """Four vectors, the lanes of each joined to one: a vector of four."""
    return reduce(join, quarter([halved(x, join, TOGETHER) for x in vectors]))


def quantise(draft: RowKernel) -> Built:
    """Row `row` of the work is one run of 32."""
    [x] = draft.node.inputs
    n_runs = product(x.shape[:-1]) * (bounds(x.shape[-1])[1] // BLOCK)
    lane = ir.Name("lane")
    scale, inverse = ir.Name("scale", FLOAT32), ir.Name("inverse", FLOAT32)
    most, total, half = (ir.Name("most", FLOAT32), ir.Name("total", INT32), ir.Name("half", INT32))
    word, four = ir.Name("word"), ir.Name("four", INT32)
    first = _ROW * RUN_WORDS

    def constant(value: float, dtype: DType = FLOAT32) -> ir.Expr:
        return ir.Const(value, dtype)

    largest = ir.Unary("abs", draft.load(x, _ROW * BLOCK + lane))
    raw = ir.Binary("div", most, constant(127.0))
    one_over = ir.Binary("div", constant(1.0), scale)
    pieces, lets = [], []
    for k in range(STEP):
        scaled = ir.Binary("mul", draft.load(x, _ROW * BLOCK + word * STEP + k), inverse)
        lets.append(ir.Let(f"q{k}", ir.Cast(ir.Unary("round", scaled), INT32)))
        pieces.append(ir.Name(f"q{k}", INT32))
    packed: ir.Expr = number(0)
    for k, piece in enumerate(pieces):
        low = ir.Binary("and", piece, number(255))
        packed = ir.Binary("or", packed, ir.Binary("shift_left", low, number(8 * k)))
    is_first = ir.Binary("lt", word, ir.index(BLOCK // 2 // STEP))
    body: ir.Block = (
        ir.Accumulator("most", constant(0.0)),
        ir.For(
            "lane",
            ir.index(0),
            ir.index(BLOCK),
            (ir.Accumulate("most", "max", largest),),
            vector=True,
        ),
        ir.Let("raw", raw),
        ir.Let(
            "scale",
            ir.Select(
                ir.Binary("lt", ir.Name("raw", FLOAT32), constant(LEAST_NORMAL)),
                constant(0.0),
                ir.Name("raw", FLOAT32),
            ),
        ),
        ir.Let(
            "inverse",
            ir.Select(ir.Binary("eq", scale, constant(0.0)), constant(0.0), one_over),
        ),
        ir.Accumulator("total", number(0)),
        ir.Accumulator("half", number(0)),
        ir.For(
            "word",
            ir.index(0),
            ir.index(BLOCK // STEP),
            (
                *lets,
                ir.Let("four", pieces[0] + pieces[1] + pieces[2] + pieces[3]),
                ir.Accumulate("total", "add", four),
                ir.Accumulate("half", "add", ir.Select(is_first, four, number(0))),
                ir.Store("out0", first + word, packed),
            ),
            vector=True,
        ),
        ir.Store("out0", first + SCALE_WORD, ir.Bitcast(scale, INT32)),
        ir.Store(
            "out0",
            first + SCALED_SUM_WORD,
            ir.Bitcast(ir.Binary("mul", scale, ir.Cast(total, FLOAT32)), INT32),
        ),
        ir.Store("out0", first + SUM_WORD, ir.Unary("neg", total)),
        ir.Store("out0", first + HALF_SUM_WORD, ir.Unary("neg", half)),
    )
    built = draft.in_tiles(n_runs, TILE_RUNS, body)
    plain = built.loops
    kernel = RunsKernel(*plain.parts, index_expr(n_runs))
    return Built(kernel, built.tiles)
