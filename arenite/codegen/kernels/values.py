"""Elements as loop-IR expressions: what one element of a node is, at an index of loop variables.

Inlined nodes are computed on the spot, views only change the index, values in memory are loaded.
Each element is named once in the block where it is computed and found again by (node, index).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

import numpy as np

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.functions import Function, function_of
from arenite.dtype import BY_NAME, UINT64, DType, Kind
from arenite.dtype import FLOAT32 as FLOAT32
from arenite.dtype import UINT32 as UINT32
from arenite.errors import NotCompiled
from arenite.ir import OPS, Dim, Node, Var, typed
from arenite.ir.dim import Floordiv, Positive
from arenite.ir.ops.access import Guard, Index, is_elementwise, linear, sources
from arenite.ir.ops.complex_parts import PART_OF
from arenite.ir.ops.reductions import greatest, least

COMPLEX64 = BY_NAME["complex64"]

#: Where a part of a complex number is among the two.
_PARTS = {"real": 0, "imag": 1}
#: Elementwise ops that are not one op of the loop IR of the same name, as expressions of operands
#: wide enough to compute with.
EXPRESSIONS: dict[str, Callable[..., ir.Expr]] = {
    "maximum": lambda a, b: ir.Binary("max", a, b),
    "minimum": lambda a, b: ir.Binary("min", a, b),
}
#: The same of bools.
_BOOL_BINARY = {"maximum": "or", "minimum": "and", "mul": "and", "add": "or"}


def index_expr(dim: Dim) -> ir.Expr:
    """A size or position as an int64 expression."""
    if isinstance(dim, int):
        return ir.index(dim)
    if isinstance(dim, Var):
        return ir.Name(dim.symbol)
    if isinstance(dim, Floordiv):
        return index_expr(dim.numerator) // index_expr(dim.divisor)
    if isinstance(dim, Positive):
        return ir.Binary("max", index_expr(dim.inner), ir.index(0))
    total: ir.Expr | None = None
    for monomial, number in dim.terms:
        term: ir.Expr = ir.index(abs(number)) if abs(number) != 1 or not monomial else ir.index(1)
        for atom in monomial:
            term = index_expr(atom) if term == ir.index(1) else term * index_expr(atom)
        if total is None:
            total = term if number > 0 else ir.index(0) - term
        else:
            total = total + term if number > 0 else total - term
    return ir.index(0) if total is None else total


def loop(var: str, count: Dim, *body: ir.Stmt, vector: bool = True) -> ir.For:
    """A loop over [0, count)."""
    return ir.For(var, ir.index(0), index_expr(count), body, vector=vector)


def neutral(op: str, dtype: DType) -> bool | int | float:
    """What changes nothing when it is combined."""
    if op == "and":
        ones = -1 if dtype.kind is Kind.SIGNED else 2**dtype.bits - 1
        return True if dtype.kind is Kind.BOOL else ones
    if op in ("max", "min"):
        return least(dtype) if op == "max" else greatest(dtype)
    return {Kind.BOOL: bool, Kind.FLOAT: float}.get(dtype.kind, int)(op == "mul")


def compute_dtype(dtype: DType) -> DType:
    """What is computed with: float32 for the small floats, which are storage only."""
    return FLOAT32 if dtype.kind is Kind.FLOAT and dtype.bits < 32 else dtype


def read_dtype(dtype: DType) -> DType:
    """What an array that is read has elements of: two floats for a complex number."""
    return PART_OF.get(dtype, dtype)


def stored_dtype(dtype: DType) -> DType:
    """What an array that is written has elements of: words of both parts of a complex number, where
    there are words so long."""
    return UINT64 if dtype == COMPLEX64 else PART_OF.get(dtype, dtype)


def zero(dtype: DType) -> bool | int | float:
    """0 as a number of the dtype."""
    return {Kind.BOOL: False, Kind.FLOAT: 0.0}.get(dtype.kind, 0)


def constant(value: bool | int | float, dtype: DType) -> ir.Expr:
    """A number of the dtype. Floats that are storage only are given by their bits, as the reference
    rounds them, and so is -0.0, which Python holds equal to 0.0."""
    is_small = dtype.kind is Kind.FLOAT and dtype.bits < 32
    if not is_small and (value != 0 or math.copysign(1, value) > 0):
        return ir.Const(value, dtype)
    code = np.asarray(value).astype(dtype.to_numpy()).view(f"u{dtype.bits // 8}")
    return ir.Bitcast(ir.Const(int(code), BY_NAME[f"uint{dtype.bits}"]), dtype)


def check_dtype(node: Node) -> None:
    """NotCompiled for elements that kernels cannot hold, with what holds them instead."""
    dtype = node.dtype
    if dtype.has_numpy:
        return
    what = f"input {node.attr('name')!r}" if node.op == "input" else node.op
    raise NotCompiled(
        f"{what} of {typed(node.shape, dtype)}: kernels do not compute with {dtype}; use float32, "
        "float16 or bfloat16, dequantised before"
    )


#: What an element is made of is asked for one by one; the expression is what it ends with.
Making: TypeAlias = Generator["tuple[Node, Index, Scope, ir.Expr | None]", Any, ir.Expr]


class Scope:
    """Statements of one block in the making, and the elements named in it or around it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.statements: list[ir.Stmt] = []
        self.known: dict[tuple[Node, Index, ir.Expr | None], ir.Expr] = {}

    def find(self, key: tuple[Node, Index, ir.Expr | None]) -> ir.Expr | None:
        scope: Scope | None = self
        while scope is not None:
            if key in scope.known:
                return scope.known[key]
            scope = scope.outer
        return None

    def inner(self) -> Scope:
        return Scope(self)

    def let(self, name: str, value: ir.Expr) -> ir.Name:
        """A value under a name, from here on."""
        self.statements.append(ir.Let(name, value))
        return ir.Name(name, value.dtype)

    @property
    def block(self) -> ir.Block:
        return tuple(self.statements)


class Values:
    """Makes expressions for the elements of one kernel's nodes."""

    def __init__(self, arrays: Mapping[Node, str]) -> None:
        self.arrays = dict(arrays)  # values in memory: arguments of the kernel
        self.rereadable: dict[Node, str] = {}  # rows an earlier pass has stored
        self.proven: set[Guard] = set()  # guards that hold wherever the loops go
        self._n_names = 0

    def fresh(self, prefix: str = "t") -> str:
        self._n_names += 1
        return f"{prefix}{self._n_names - 1}"

    def at(self, node: Node, index: Index, scope: Scope, mask: ir.Expr | None = None) -> ir.Expr:
        """The element of a node; lanes where `mask` is false may be anything but touch nothing."""
        return self._run(self._element(node, index, scope, mask))

    def _run(self, making: Making) -> ir.Expr:
        """Elements are made of elements, however deep: what waits for others is kept in a list."""
        waiting = [making]
        made: ir.Expr | None = None
        while waiting:
            try:
                waiting.append(self._element(*waiting[-1].send(made)))
                made = None
            except StopIteration as end:
                waiting.pop()
                made = end.value
        assert made is not None
        return made

    def _element(self, node: Node, index: Index, scope: Scope, mask: ir.Expr | None) -> Making:
        known = scope.find((node, index, mask)) or scope.find((node, index, None))
        if known is not None:
            return known
        place = self.arrays.get(node) or self.rereadable.get(node)
        if place is not None:
            at = index_expr(linear(index, node.shape))
            made: ir.Expr = ir.Load(place, at, node.dtype, mask)
        elif node.op in _PARTS:
            made = yield from self._part(node.inputs[0], _PARTS[node.op], index, scope, mask)
        elif node.op == "full":
            check_dtype(node)
            return constant(node.attr("value"), node.dtype)
        elif node.op == "size":
            made = cast(index_expr(node.attr("value")), node.dtype)
        elif node.op == "iota":
            made = cast(index_expr(index[node.attr("axis")]), node.dtype)
        elif (found := self._function(node, index, scope, mask)) is not None:
            operands = []
            for part in found.operands:
                operands.append((yield (part, index, scope, mask)))
            made = found.made(operands)
        elif is_elementwise(node):
            operands = []
            for source in sources(node, index):
                operands.append((yield (source.node, source.index, scope, mask)))
            made = _apply(node, operands)
        elif OPS[node.op].is_pieced:
            made = yield from self._guarded(node, index, scope, mask)
        else:
            [source] = sources(node, index)
            made = yield (source.node, source.index, scope, mask)
            scope.known[node, index, mask] = made
            return made
        named = self.named(made, scope)
        scope.known[node, index, mask] = named
        return named

    def _function(
        self, node: Node, index: Index, scope: Scope, mask: ir.Expr | None
    ) -> Function | None:
        """The function that a node spells out, if nothing on the way to it is there already."""
        found = function_of(node)
        if found is None or any(self._is_known(n, index, scope, mask) for n in found.between):
            return None
        return found

    def named(self, value: ir.Expr, scope: Scope, prefix: str = "t") -> ir.Expr:
        """A name for a value, from here on in the scope."""
        return scope.let(self.fresh(prefix), value)

    def _part(
        self, node: Node, k: int, index: Index, scope: Scope, mask: ir.Expr | None = None
    ) -> Making:
        """The real (0) or the imaginary part (1) of an element of a complex node, which is in
        memory, put together here, or a view of such a one."""
        while node not in self.arrays and node.op != "complex":
            [source] = sources(node, index)
            assert not source.guards
            node, index = source.node, source.index
        if node in self.arrays:
            at = index_expr(linear(index, node.shape) * 2 + k)
            return ir.Load(self.arrays[node], at, PART_OF[node.dtype], mask)
        made: ir.Expr = yield (node.inputs[k], index, scope, mask)
        return made

    def stored(self, node: Node, index: Index, scope: Scope) -> list[ir.Expr]:
        """What is stored of an element, side by side."""
        if node.dtype not in PART_OF:
            return [self.at(node, index, scope)]
        parts = [self.named(self._run(self._part(node, k, index, scope)), scope) for k in (0, 1)]
        if node.dtype != COMPLEX64:
            return parts
        low, high = (ir.Cast(ir.Bitcast(part, UINT32), UINT64) for part in parts)
        shifted = ir.Binary("shift_left", high, ir.Const(32, UINT64))
        return [ir.Binary("or", low, shifted)]

    def _is_known(self, node: Node, index: Index, scope: Scope, mask: ir.Expr | None) -> bool:
        """Whether an element is there already, in memory or under a name."""
        if node in self.arrays or node in self.rereadable:
            return True
        return any(scope.find((node, index, known)) is not None for known in (mask, None))

    def _guarded(self, node: Node, index: Index, scope: Scope, mask: ir.Expr | None) -> Making:
        """An element that comes from an input only where that has one."""
        padding = node.attr("value") if node.op == "pad" else zero(node.dtype)
        made = constant(padding, node.dtype)
        for k, source in enumerate(sources(node, index)):
            inside = guard_expr(source.guards, scope, self)
            if inside is None:
                whole: ir.Expr = yield (source.node, source.index, scope, mask)
                return whole
            both = inside if mask is None else self.named(inside & mask, scope)
            value = yield (source.node, source.index, scope, both)
            if k:
                made = self.named(made, scope)  # no select inside a select, however many there are
            made = ir.Select(inside, value, made)
        return made


def guard_expr(guards: tuple[Guard, ...], scope: Scope, values: Values) -> ir.Expr | None:
    """Whether all guards hold, named in the scope; None where there is nothing to guard."""
    inside: ir.Expr | None = None
    for guard in guards:
        if guard in values.proven:
            continue
        position = index_expr(guard.position)
        one = (position >= 0) & (position < index_expr(guard.size))
        inside = one if inside is None else inside & one
    if inside is None:
        return None
    return values.named(inside, scope, "ok")


def cast(value: ir.Expr, dtype: DType) -> ir.Expr:
    """The value as another dtype, or as it is."""
    return value if value.dtype == dtype else ir.Cast(value, dtype)


def _apply(node: Node, operands: list[ir.Expr]) -> ir.Expr:
    """An elementwise op; small floats are computed in float32 and rounded once."""
    check_dtype(node)
    if node.op == "cast":
        return cast(operands[0], node.dtype)
    if node.op == "bitcast":
        return ir.Bitcast(operands[0], node.dtype)
    if node.op == "where":
        return ir.Select(*operands)
    wide = [cast(value, compute_dtype(value.dtype)) for value in operands]
    if wide[0].dtype.kind is Kind.BOOL and node.op in _BOOL_BINARY:
        made: ir.Expr = ir.Binary(_BOOL_BINARY[node.op], *wide)
    elif node.op in EXPRESSIONS:
        made = EXPRESSIONS[node.op](*wide)
    else:
        made = ir.Unary(node.op, *wide) if len(wide) == 1 else ir.Binary(node.op, *wide)
    return cast(made, node.dtype)
