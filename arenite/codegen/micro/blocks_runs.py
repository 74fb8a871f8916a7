"""RunsKernel: float32 becomes runs of 32 bytes with their scales, as `ir.ops.blocks` says.

As a LoopKernel its body makes run by run: that is its meaning, and what a target without fast
rounding runs. What is compiled keeps a run in registers from its maximum to its sums. Magnitudes
are compared as integers, which puts NaN above all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.codegen import loop_ir as ir
from arenite.codegen.arguments import bind_arguments
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.special import _ROW, Draft
from arenite.codegen.kernels.values import index_expr
from arenite.codegen.micro.blocks_read import INT32, RUN, number
from arenite.codegen.micro.tile import lanes_of, moved
from arenite.codegen.numeric import round_even
from arenite.codegen.partials import Phase
from arenite.codegen.scope import SCALAR
from arenite.codegen.tile import Tiles
from arenite.codegen.vector import I64, Builder, Vec, VType
from arenite.dtype import DType, float32
from arenite.ir.dim import bounds, product
from arenite.ir.ops.block_forms import BLOCK, STEP
from arenite.ir.ops.blocks import (
    HALF_SUM_WORD,
    LEAST_NORMAL,
    RUN_WORDS,
    SCALE_WORD,
    SCALED_SUM_WORD,
    SUM_WORD,
)

#: Runs in a tile of the launch: some microseconds.
TILE_RUNS = 512
#: The bits of a float without its sign, and those of infinity.
_MAGNITUDE, _INFINITY = 0x7FFFFFFF, 0x7F800000


@dataclass(frozen=True, slots=True)
class RunsKernel(ir.LoopKernel):
    n_runs: ir.Expr


class RunsDriver(Tiles):
    """The function of a RunsKernel."""

    def __init__(self, builder: Builder, kernel: RunsKernel) -> None:
        super().__init__(builder, kernel)
        self.made = kernel
        bind_arguments(self)

    def run(self) -> None:
        b = self.builder
        n_runs = self.value(self.made.n_runs, SCALAR)
        first = Vec(b, "%tile_begin", I64) * TILE_RUNS
        last = b.intrinsic("smin", Vec(b, "%tile_end", I64) * TILE_RUNS, n_runs)
        self.counted_loop(first, last, [Phase(1, 1)], (), lambda _, at: self._one(at))
        b.block.end = "ret void"

    def _one(self, at: Vec) -> None:
        b = self.builder
        lanes = lanes_of(b.target, float32)
        t = VType("f", 32, lanes)
        [source] = (array.name for array in self.kernel.arrays if array.role == "in")
        x_at = moved(b, self.pointers[source], at * (BLOCK * 4))
        out_at = moved(b, self.pointers["out0"], at * (RUN_WORDS * 4))
        x = [
            b.emit(f"load {t}, ptr {b.offset(x_at, 4 * k)}, align 4", t)
            for k in range(0, BLOCK, lanes)
        ]
        largest = x[0].bits() & _MAGNITUDE
        for other in x[1:]:
            largest = b.intrinsic("smax", largest, other.bits() & _MAGNITUDE)
        most = self._reduced("smax", largest)
        scale = most.as_float() / 127.0
        is_none = scale.lt(LEAST_NORMAL)
        scale = is_none.select(0.0, scale)
        inverse = is_none.select(0.0, b.constant(1.0, scale.type) / scale)
        is_finite = most.lt(_INFINITY).convert("sext", most.type)
        spread, kept = b.broadcast(inverse, lanes), b.broadcast(is_finite, lanes)
        numbers = [round_even(value * spread).to_int() & kept for value in x]
        for k, value in enumerate(numbers):
            narrow = value.convert("trunc", VType("i", 8, lanes))
            where = b.offset(out_at, k * lanes)
            b.emit_void(f"store {narrow.type} {narrow.text}, ptr {where}, align 4")
        half = self._total(numbers[: RUN // lanes])
        total = half + self._total(numbers[RUN // lanes :])
        scaled = scale * total.convert("sitofp", scale.type)
        words = {
            SCALE_WORD: scale,
            SCALED_SUM_WORD: scaled,
            SUM_WORD: -total,
            HALF_SUM_WORD: -half,
        }
        for word, value in words.items():
            where = b.offset(out_at, 4 * word)
            b.emit_void(f"store {value.type} {value.text}, ptr {where}, align 4")

    def _total(self, vectors: list[Vec]) -> Vec:
        total = vectors[0]
        for other in vectors[1:]:
            total = total + other
        return self._reduced("add", total)

    def _reduced(self, op: str, x: Vec) -> Vec:
        """All lanes as one."""
        return self.builder.call(f"llvm.vector.reduce.{op}.{x.type.mangled}", x.type.scalar, x)


def quantise(draft: Draft) -> Built:
    """Row `row` of the work is one run of 32."""
    [x] = draft.node.inputs
    n_runs = product(x.shape[:-1]) * (bounds(x.shape[-1])[1] // BLOCK)
    lane = ir.Name("lane")
    scale, inverse = ir.Name("scale", float32), ir.Name("inverse", float32)
    most, total, half = (ir.Name("most", float32), ir.Name("total", INT32), ir.Name("half", INT32))
    word, four = ir.Name("word"), ir.Name("four", INT32)
    first = _ROW * RUN_WORDS

    def constant(value: float, dtype: DType = float32) -> ir.Expr:
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
    is_first = ir.Binary("lt", word, ir.index(RUN // STEP))
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
                ir.Binary("lt", ir.Name("raw", float32), constant(LEAST_NORMAL)),
                constant(0.0),
                ir.Name("raw", float32),
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
            ir.Bitcast(ir.Binary("mul", scale, ir.Cast(total, float32)), INT32),
        ),
        ir.Store("out0", first + SUM_WORD, ir.Unary("neg", total)),
        ir.Store("out0", first + HALF_SUM_WORD, ir.Unary("neg", half)),
    )
    built = draft.in_tiles(n_runs, TILE_RUNS, body)
    plain = built.loops
    kernel = RunsKernel(
        plain.name,
        plain.arrays,
        plain.sizes,
        plain.tiles,
        plain.tile_var,
        plain.body,
        index_expr(n_runs),
    )
    return Built(kernel, built.tiles)
