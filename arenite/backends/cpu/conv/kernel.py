"""Conv: what a micro-kernel of a convolution with channels last has beside its product.

A convolution is a product whose rows are the pixels of an output line and whose columns are output
channels. Beside what a product says, `Taps` say how K is walked: over the taps that lie inside the
image, which may be fewer at its edges, and over the input channels. Weights lie in panels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from arenite.backends.cpu.conv.strips import Strip
from arenite.backends.cpu.gemm.kernel import Details, MicroKernel
from arenite.backends.cpu.ops.byte_products import WORD
from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import expression_text, loop_text

#: The lines of a tile.
FIRST_LINE, LAST_LINE = ir.Name("first_line"), ir.Name("last_line")


@dataclass(frozen=True, slots=True)
class Taps:
    """A loop over part of K: how often it runs, and how far the input and the panels move."""

    count: ir.Expr
    step: ir.Expr  # elements of the input
    panel_step: int  # elements of a panel

    def __str__(self) -> str:
        return f"{expression_text(self.count)} x ({expression_text(self.step)}, {self.panel_step})"


@dataclass(frozen=True, slots=True)
class Ends:
    """A line read in place, whose strips leave out the taps outside: what K loops run around the
    taps of a line, and how far it is from one of these to the next."""

    strips: tuple[Strip, ...]
    n_around: int
    taps: int
    tap: int  # elements of the input
    depth: int
    channel: int  # elements of the input from one to the next


@dataclass(frozen=True, slots=True)
class Late:
    """Rows of the tiles of a run, and the heights of what may be left behind it: one tile."""

    rows: int
    rest: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conv(Details):
    """`loops` outermost first; `line` is the variable of the lines and `on_line` names, for one of
    them, the taps inside; `panels_at` is where the first of a group's columns begins."""

    loops: tuple[Taps, ...]
    panel: int  # elements from panel to panel
    panels_at: ir.Expr
    line: str
    on_line: ir.Block
    copied: ir.Block  # what a block begins with
    ends: Ends | None = None
    last_lanes: int = 0  # of the last vector of columns, if fewer than of others
    start: ir.Expr | None = None  # what sums begin with, if not with zero; the same for all rows
    late: Late | None = None
    outputs: ir.Block = ()  # what a group of columns ends with
    #: Where K is walked in words of bytes: bytes of A behind its last whole word; then there is one
    #: loop at the most.
    bytes_left: int | None = None
    #: Rows that tiles of a group of columns have in all, or may have; 0: they come in lines.
    group_rows: int = 0

    def text(self, kernel: MicroKernel) -> str:
        product = kernel.product
        loops = "; ".join(map(str, self.loops))
        shape = f"{product.columns} x {product.lanes} lanes, heights {product.heights}"
        if product.gemv_heights:
            low = f"{product.gemv_columns // product.lanes} x {product.lanes} lanes"
            shape += f"; up to {product.gemv_up_to} rows {low}, heights {product.gemv_heights}"
        head = [
            f"// register tiles: {shape}, epilogue {'short' if product.is_short else 'long'}, "
            f"K loops {loops}, panels of {self.panel} at {expression_text(self.panels_at)}",
            f"// rows of {product.a.array} ({product.a.dtype}) at "
            f"{expression_text(product.a.base)}, {expression_text(product.a.line)} apart, "
            f"depth {expression_text(product.depth)}",
            f"// sums begin with {'zero' if self.start is None else expression_text(self.start)}",
        ]
        if self.late is not None:
            head.append(f"// in runs of {self.late.rows} rows, then {self.late.rest}")
        if product.joined is not None:
            head.append(f"// tiles of {product.joined.length} rows, several of them as one")
        if self.group_rows:
            head.append(f"// groups of columns for {self.group_rows} rows")
        if self.last_lanes:
            head.append(f"// {self.last_lanes} lanes of the last columns")
        if self.ends is not None:
            cut = (f"{s.count} {s.name} from {s.first}" for s in self.ends.strips)
            head.append(f"// {', '.join(cut)}, {self.ends}")
        placed = loop_text(replace(kernel, body=(*product.place, *self.copied, *self.on_line)))
        if self.bytes_left is not None:
            head.insert(0, f"// words of {WORD} bytes, and {self.bytes_left} bytes")
        return "\n".join([*head, placed, loop_text(kernel)])
