"""An attention over pages becomes an AttentionKernel, with keys where a table has them.

Each row of an attention over pages is a query by itself, with the keys of its text: what it gives
does not depend on the rows beside it, nor on which pages the keys lie in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arenite.backends.cpu.attention.build import AttentionBuilder, Seen
from arenite.backends.cpu.attention.kernel import (
    BLOCK,
    FIRST_PAGE,
    KEY,
    POSITION,
    D,
    PagedOperand,
    least,
    most,
)
from arenite.backends.cpu.gemm.kernel import Operand
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.errors import IndexOutOfRange
from arenite.ir import Dim, Node, bounds
from arenite.ir.compose.basic import expand_dims, permute
from arenite.ir.ops.attention import Operands, pages_operands
from arenite.schedule.kernel import Kernel

_ROW = ir.Name("batch0")


def build_pages(kernel: Kernel, target: Target, choice: str = "") -> Built:
    """The kernel of an attention over pages."""
    return _PagesBuilder(kernel, kernel.stages[0].node, target).built()


class _PagesBuilder(AttentionBuilder):
    """Rows are batches of one query each."""

    def _given(self) -> Operands:
        """Queries as [rows, heads, 1, width], keys as [groups, rows of the pool, width]."""
        self.pages = pages_operands(self.node.inputs)
        given = self.pages.values
        scales = [given.k_scale, given.v_scale]
        return replace(
            given,
            q=expand_dims(given.q, 2),
            k=permute(given.k, (1, 0, 2)),
            v=permute(given.v, (1, 0, 2)),
            k_scale=scales[0] and permute(scales[0], (1, 0)),
            v_scale=scales[1] and permute(scales[1], (1, 0)),
        )

    def _seen(self) -> Seen:
        return Seen(True, POSITION, POSITION + 1, self.node.attr("page"))

    def _result_index(self) -> list[Dim]:
        rows, heads, _, width = super()._result_index()
        return [rows, heads, width]

    def _keys(self, node: Node, step: ir.Name) -> Operand:
        return self._paged(node, self._index("group", KEY, step)[1:], step)

    def _scales(self, node: Node | None) -> Operand | None:
        return None if node is None else self._paged(node, self._index("group", KEY, D)[1:-1], D)

    def _paged(self, node: Node, index: Sequence[Dim], step: ir.Name) -> PagedOperand:
        one, table, page = self._in_memory(node, index, KEY, step), self.pages.table, self._page
        n_pages = bounds(self.n_keys)[1] // page
        array = self.names[table]
        return PagedOperand(
            one.array, one.dtype, one.base, one.line, one.step, array, table.dtype, page, n_pages
        )

    @property
    def _page(self) -> int:
        page: int = self.node.attr("page")
        return page

    def _unravel(self, inner: Sequence[tuple[str, Dim]], rest: ir.Expr = BLOCK) -> list[ir.Stmt]:
        """And the position and the first page of a row, which must be there with its pages."""
        pages = self.pages
        n_texts, n_pages = pages.table.shape
        keys = self._keys(self.given.k, D)
        assert isinstance(keys, PagedOperand)
        number, page = ir.Name("number"), ir.Name("page")
        parts: list[ir.Stmt] = [*super()._unravel(inner, rest)]
        for name, node, size in (
            (POSITION.name, pages.position, self._size(n_pages) * self._page),
            ("text", pages.text, self._size(n_texts)),
        ):
            given = ir.Name(f"given_{name}")
            parts += [
                ir.Let(given.name, self._number(node, _ROW)),
                _required((given >= 0) & (given < size)),
                ir.Let(name, most(least(given, size - 1), 0)),
            ]
        check = (
            ir.Let(number.name, keys.number(page)),
            _required((number >= 0) & (number < ir.index(keys.n_pages))),
        )
        return [
            *parts,
            ir.Let(FIRST_PAGE.name, ir.Name("text") * self._size(n_pages)),
            ir.For(page.name, self._first_seen_page(), POSITION // self._page + 1, check),
        ]

    def _first_seen_page(self) -> ir.Expr:
        window = self.node.attr("window")
        if not window:
            return ir.index(0)
        return most(POSITION + (1 - window), 0) // self._page

    def _number(self, node: Node, at: ir.Expr) -> ir.Expr:
        """An element of a vector of numbers."""
        found = ir.Load(self.names[node], at, node.dtype)
        return found if node.dtype == ir.INT64 else ir.Cast(found, ir.INT64)


def _required(condition: ir.Expr) -> ir.Stmt:
    return ir.Require(condition, ir.index(IndexOutOfRange.code))


BUILDERS = {"attention_pages": build_pages}
