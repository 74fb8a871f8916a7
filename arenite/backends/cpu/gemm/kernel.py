"""MicroKernel: a product that register tiles compute, and the loops that say what it computes.

As a LoopKernel its body computes the tile's elements one by one: that is its meaning, for people
and for checks. What is compiled is the same made of register tiles, as `product` lays down.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.values import index_expr
from arenite.codegen.printer import expression_text, kernel_text, loop_text
from arenite.dtype import DType
from arenite.ir.dim import Dim, maximum

#: Row dots where A and B lie along K; streams where B lies along its columns; wider register tiles
#: where it lies in panels.
GemvForm: TypeAlias = Literal["dots", "stream", "tiles"]

#: The name of the finished sum in an epilogue. An underscore begins all names here, but for sizes.
SUM = "_sum"


@dataclass(frozen=True, slots=True)
class Operand:
    """Element (line, k) lies at base + line * `line` + k * `step`, counted in elements.

    A line is a row of A or a column of B; `base` is over the variables of the batch axes.
    """

    array: str
    dtype: DType
    base: ir.Expr
    line: ir.Expr
    step: ir.Expr

    def at(self, line: ir.Expr, k: ir.Expr) -> ir.Expr:
        return self.base + line * self.line + k * self.step


@dataclass(frozen=True, slots=True)
class Joined:
    """Tiles that differ in one range alone, of rows or of columns: several are done as one."""

    first: str  # the names of the range
    last: str
    length: int  # of it in one tile
    size: ir.Expr  # in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Rows x columns of sums over K, cut into blocks; how a block is computed.

    `place` names, for one block, the variables of the batch axes and FIRST_ROW ... LAST_COLUMN.
    A block of at most `gemv_up_to` rows takes a form of its own, `gemv_columns` at a time; others
    are made of tiles of `columns` vectors, with the columns of B copied side by side before where
    `copies_b` says so.
    """

    a: Operand
    b: Operand
    sum_dtype: DType
    row: str
    column: str
    batch: tuple[str, ...]
    depth: ir.Expr
    n_columns: ir.Expr
    blocks: ir.Expr
    blocks_a_tile: Dim = 1
    place: ir.Block
    lanes: int
    columns: int
    heights: tuple[int, ...]
    copies_b: bool = False
    gemv_up_to: int = 0
    gemv_form: GemvForm = "stream"
    gemv_columns: int = 1
    gemv_heights: tuple[int, ...] = ()
    epilogue: ir.Block
    is_short: bool  # the epilogue: done in registers
    copied_groups: int = 1  # groups of columns that are copied at a time
    joined: Joined | None = None
    stays: bool = False  # B, or much of it, from run to run in the last cache

    @property
    def width(self) -> int:
        """Columns of a full tile."""
        return self.columns * self.lanes


FIRST_ROW, LAST_ROW = ir.Name("_first_row"), ir.Name("_last_row")
FIRST_COLUMN, LAST_COLUMN = ir.Name("_first_column"), ir.Name("_last_column")
BLOCK, TILE, K = ir.Name("_block"), ir.Name("tile"), ir.Name("_k")
SCRATCH = "scratch0"


class BlockNumber:
    """The number of a block, taken apart digit by digit; the first one varies fastest."""

    def __init__(self) -> None:
        self.rest: ir.Expr = BLOCK

    def digit(self, size: Dim) -> ir.Expr:
        """The next digit, of so many values."""
        if size == 1:
            return ir.index(0)
        count = index_expr(maximum(size, 1))
        digit, self.rest = self.rest % count, self.rest // count
        return digit


@dataclass(frozen=True, slots=True)
class Details:
    """What a micro-kernel has beside its product: of plain tiles nothing, of others a subclass."""

    def text(self, kernel: MicroKernel) -> str:
        """The kernel as text: its loops, below how they are made."""
        product = fields_text(kernel.product, without=("place", "epilogue"))
        return f"// register tiles: {product}\n{loop_text(kernel)}"


@dataclass(frozen=True, slots=True)
class MicroKernel(ir.LoopKernel):
    product: Product
    details: Details = Details()


@kernel_text.register
def _(kernel: MicroKernel) -> str:
    return kernel.details.text(kernel)


def fields_text(record: Any, without: Collection[str]) -> str:
    """How a kernel is made, by the fields of a dataclass."""
    parts = [field.name for field in fields(record) if field.name not in without]
    return ", ".join(f"{name} {_plain(getattr(record, name))}" for name in parts)


def _plain(value: object) -> str:
    if isinstance(value, Joined):
        return f"{value.length} of {expression_text(value.size)} from {value.first}"
    if isinstance(value, Operand):
        at = expression_text(value.at(ir.Name("line"), ir.Name("step")))
        return f"{value.dtype} {value.array}[{at}]"
    return expression_text(value) if isinstance(value, ir.Expr) else str(value)


def tile_body(product: Product) -> ir.Block:
    """What a tile of the kernel computes, element by element."""
    element = sum_body(product, product.b.at(ir.Name(product.column), K))
    columns = ir.For(product.column, FIRST_COLUMN, LAST_COLUMN, element, vector=True)
    rows = ir.For(product.row, FIRST_ROW, LAST_ROW, (columns,))
    return in_blocks(product, (rows,))


def sum_body(product: Product, b_at: ir.Expr) -> ir.Block:
    """The sum of one row and one column, of which element K of B lies at `b_at`; the epilogue."""
    a, b, total = product.a, product.b, product.sum_dtype
    factors = [
        ir.Load(a.array, a.at(ir.Name(product.row), K), a.dtype),
        ir.Load(b.array, b_at, b.dtype),
    ]
    wide = [x if x.dtype == total else ir.Cast(x, total) for x in factors]
    step = ir.Accumulate("_acc", "add", ir.Binary("mul", *wide))
    return (
        ir.Accumulator("_acc", ir.Const(0.0, total)),
        ir.For(K.name, ir.index(0), product.depth, (step,)),
        ir.Let(SUM, ir.Name("_acc", total)),
        *product.epilogue,
    )


def in_blocks(product: Product, body: ir.Block) -> ir.Block:
    """The body for every block of a tile."""
    block = (*product.place, *body)
    if product.blocks_a_tile == 1:
        return (ir.Let(BLOCK.name, TILE), *block)
    first = TILE * (count := index_expr(product.blocks_a_tile))
    last = ir.Binary("min", first + count, product.blocks)
    return (ir.For(BLOCK.name, first, last, block),)
