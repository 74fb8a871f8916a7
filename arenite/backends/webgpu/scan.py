"""Scans: a group has some lines side by side, and walks along them a block at a time.

    a block      [ thread 0 | thread 1 | ... ]     of each line so many threads, each of which has
                                                   `OWN` elements and scans these by itself
    then         threads scan what each has in all, in steps 1, 2, 4, ...; what lies before a
                 thread's elements is combined with each of them
    behind it    the next block, with what all before it had

Lines that are short are a thread's each. In which order elements are combined does not depend on
how long a line is.
"""

from __future__ import annotations

from dataclasses import replace

from arenite.backends.webgpu.map import THREADS
from arenite.backends.webgpu.special import PointKernel
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.special import SCANS, scanned, three_axes
from arenite.codegen.kernels.values import (
    cast,
    check_dtype,
    compute_dtype,
    index_expr,
    loop,
    neutral,
)
from arenite.ir.dim import bounds, ceildiv
from arenite.schedule.kernel import Kernel

#: Elements of a line that one thread scans alone, at the most.
SHORT = 32
#: Elements of a thread in a block, and lines of a group at the most, which lie side by side: as
#: many as a load brings together.
OWN, MOST_LINES = 8, 8

_SUMS = "sums"


def build_scan(kernel: Kernel) -> Built:
    draft = PointKernel(kernel)
    [x] = draft.node.inputs
    check_dtype(x)
    before, size, after = three_axes(x.shape, draft.node.attr("axis"))
    if bounds(size)[1] <= SHORT:
        point, columns = ir.Name("point"), index_expr(after)
        places = (ir.Let("row", point // columns), ir.Let("v", point % columns))
        return draft.of_points(before * after, (*places, *scanned(draft)))
    n_lines = 1
    while n_lines < min(MOST_LINES, bounds(after)[1]):
        n_lines *= 2
    across = ceildiv(after, n_lines)
    tile = ir.Name("tile")
    body = (
        ir.Let("row", tile // index_expr(across)),
        ir.Let("first_line", tile % index_expr(across) * n_lines),
        loop("thread", THREADS, *_of_thread(draft, n_lines)),
    )
    built = draft.built(before * across, body)
    shared = (ir.SharedArray(_SUMS, compute_dtype(x.dtype), THREADS),)
    return replace(built, loops=ir.GroupKernel(*built.loops.parts, THREADS, shared))


def _of_thread(draft: PointKernel, n_lines: int) -> ir.Block:
    [x] = draft.node.inputs
    _, size, after = three_axes(x.shape, draft.node.attr("axis"))
    op, wide = SCANS[draft.node.op], compute_dtype(x.dtype)
    n_segments = THREADS // n_lines
    thread, line, segment = ir.Name("thread"), ir.Name("line"), ir.Name("segment")
    nothing = ir.Const(neutral(op, wide), wide)
    block: list[ir.Stmt] = []

    def let(name: str, value: ir.Expr) -> ir.Name:
        block.append(ir.Let(name, value))
        return ir.Name(name, value.dtype)

    def earlier(n: int) -> ir.Expr:
        """What the thread so many segments before this one has put down."""
        return ir.Load(_SUMS, thread - n * n_lines, wide, segment >= n, nothing)

    # Each thread's own elements.
    first = let("first", ir.Name("step") * (n_segments * OWN) + segment * OWN)
    places: list[ir.Name] = []
    insides: list[ir.Name] = []
    totals: list[ir.Name] = []
    for k in range(OWN):
        inside = let(f"inside{k}", ir.Name("is_line", ir.BOOL) & (first + k < index_expr(size)))
        place = (ir.Name("row") * index_expr(size) + first + k) * index_expr(after) + line
        places.append(let(f"at{k}", place))
        insides.append(inside)
        value = cast(draft.load(x, places[-1], inside), wide)
        value = ir.Select(inside, value, nothing)
        totals.append(let(f"total{k}", ir.Binary(op, totals[-1], value) if k else value))
    # What lies before them in the block.
    whole = totals[-1]
    n = 1
    while n < n_segments:
        block += [ir.Store(_SUMS, thread, whole), ir.Barrier()]
        whole = let(f"whole{n}", ir.Binary(op, earlier(n), whole))
        block.append(ir.Barrier())
        n *= 2
    block += [ir.Store(_SUMS, thread, whole), ir.Barrier()]
    base = let("base", ir.Binary(op, ir.Name("carry", wide), earlier(1)))
    of_block = let("of_block", ir.Load(_SUMS, (n_segments - 1) * n_lines + thread % n_lines, wide))
    for place, inside, total in zip(places, insides, totals, strict=True):
        result = cast(ir.Binary(op, base, total), x.dtype)
        block.append(ir.Store("out0", place, result, inside))
    block += [ir.Accumulate("carry", op, of_block), ir.Barrier()]
    return (
        ir.Let("line", ir.Name("first_line") + thread % n_lines),
        ir.Let("segment", thread // n_lines),
        ir.Let("is_line", line < index_expr(after)),
        ir.Accumulator("carry", nothing),
        loop("step", ceildiv(size, n_segments * OWN), *block, vector=False),
    )


BUILDERS = dict.fromkeys(SCANS, build_scan)
