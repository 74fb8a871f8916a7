"""How wide a vector loop runs: lanes of a vector, vectors that go through the body together.

Lanes are chosen so that the common element fills a register; when 64-bit values meet narrower ones,
the wider take two registers (four of the narrowest kinds are avoided). Reductions need several
vectors to hide the latency of their chain; long bodies hide it themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind

#: Rough cost in instructions of what is not a single one.
_COST = {
    "exp": 14,
    "exp2": 12,
    "expm1": 16,
    "sigmoid": 17,
    "times_sigmoid": 18,
    "log": 18,
    "log2": 18,
    "log1p": 22,
    "tanh": 20,
    "erf": 26,
    "erf1p": 18,
    "gelu": 18,
    "sin": 28,
    "cos": 28,
    "pow": 60,
    "mod": 30,
    "fmod": 30,
    "floordiv": 30,
}
_OTHER_MATHS = 30
_CHEAP_MATHS = frozenset("floor ceil round trunc isnan isinf sqrt rsqrt reciprocal".split())


@dataclass(frozen=True, slots=True)
class Shape:
    lanes: int
    parts: int
    length: int | None  # of the loop, where it is known


def shape_of(loop: ir.For, target: Target) -> Shape:
    """Lanes and vectors for a vector loop."""
    lanes, length = lanes_of(loop.body, target, {loop.var}), _length(loop)
    parts = loop.unroll or _dividing(_parts(loop, target), length, lanes)
    return Shape(lanes, parts, length)


def _dividing(parts: int, length: int | None, lanes: int) -> int:
    """So many vectors, or some fewer where these leave less of a short loop to single ones."""
    if length is None or length // lanes >= 4 * parts:
        return parts
    whole = max(1, length // lanes)
    return min(range(min(parts, whole), parts // 2, -1), key=lambda n: whole % n, default=whole)


def _length(loop: ir.For) -> int | None:
    """How often a loop turns, where that is known."""
    start, stop = _number(loop.start), _number(loop.stop)
    return None if start is None or stop is None else stop - start


def _number(expr: ir.Expr) -> int | None:
    match expr:
        case ir.Const(value):
            return int(value)
        case ir.Binary("min", a, b):
            sides = _number(a), _number(b)
            return None if None in sides else min(side for side in sides if side is not None)
    return None


def _parts(loop: ir.For, target: Target) -> int:
    cost = sum(_cost(expr) for expr in _values(loop.body))
    registers = max(1, 4 * target.n_vector_registers // 32)
    if any(isinstance(stmt, ir.For) for stmt in loop.body):
        # A cheap body walks several lines of a row at once, as memory likes it.
        return 4 * registers if cost <= 4 else registers if cost <= 16 else 1
    if any(isinstance(s, ir.Accumulate | ir.AccumulateArg) for s in ir.statements(loop.body)):
        return 4 if cost <= 12 else 2 if cost <= 48 else 1
    return 2 if cost <= 10 else 1


def lanes_of(body: ir.Block, target: Target, varying: set[str]) -> int:
    widths = {bits for bits in _widths(body, varying) if bits}
    widest = max(widths, default=32)
    if widest == 64 and min(widths) <= 32:
        widest = 32
    return max(2, target.vector_bits // widest)


def _widths(body: ir.Block, varying: set[str]) -> Iterator[int]:
    """Bits of the elements that are loaded, computed and stored, indices aside."""
    inside = set(varying)
    for stmt in body:
        match stmt:
            case ir.Let(name, value) | ir.Accumulator(name, value):
                found = list(_expression_widths(value, inside))
                # An index is used through what it reaches; as a value it shows up elsewhere.
                if found or not isinstance(stmt, ir.Let):
                    inside.add(name)
                yield from found if value.dtype != ir.INT64 else ()
            case ir.Store(_, _, value):
                yield value.dtype.bits
                yield from _expression_widths(value, inside)
            case ir.Accumulate(_, _, value):
                yield from _expression_widths(value, inside)
            case ir.AccumulateArg(_, _, _, value, where):
                yield where.dtype.bits
                yield from _expression_widths(value, inside)
        for block in ir.blocks(stmt):
            yield from _widths(block, inside)


def _expression_widths(expr: ir.Expr, varying: set[str]) -> Iterator[int]:
    stack = [expr]
    seen: set[int] = set()
    while stack:
        at = stack.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, ir.Load):
            yield at.dtype.bits
            stack += [part for part in (at.mask, at.other) if part is not None]
            continue
        if isinstance(at, ir.Name):
            if at.name in varying:
                yield _register_bits(at.dtype)
            continue
        if not isinstance(at, ir.Const):
            yield _register_bits(at.dtype)
        stack += ir.children(at)


def _register_bits(dtype: DType) -> int:
    """Bits of a value in a register; a bool takes the width of what it was compared from."""
    if dtype.kind is Kind.BOOL:
        return 0
    return dtype.bits


def _values(body: ir.Block) -> Iterator[ir.Expr]:
    """Every operation in a block outside of index arithmetic, shared ones once."""
    seen: set[int] = set()
    for stmt in ir.statements(body):
        stack = [expr for expr in ir.expressions(stmt) if expr.dtype != ir.INT64]
        while stack:
            at = stack.pop()
            if id(at) in seen:
                continue
            seen.add(id(at))
            yield at
            if not isinstance(at, ir.Load):
                stack += ir.children(at)


def _cost(expr: ir.Expr) -> int:
    match expr:
        case ir.Const() | ir.Name():
            return 0
        case ir.Unary(op):
            if op in _COST:
                return _COST[op]
            return _OTHER_MATHS if op in ir.FLOAT_UNARY_OPS - _CHEAP_MATHS else 1
        case ir.Binary(op):
            return _COST.get(op, _OTHER_MATHS if op == "atan2" else 1)
        case ir.Cast(x, dtype):
            is_small = (
                Kind.FLOAT in (x.dtype.kind, dtype.kind) and min(x.dtype.bits, dtype.bits) == 8
            )
            return 12 if is_small else 2
    return 1
