"""Which kernels need no check of each access: those of which it is proven that no index leaves its
array, whatever the sizes are. WGSL checks every access, and counts the turns of every loop, unless
a module is made without.

In: loops with int64 indices, and how many elements each array has. Out: the first access that is
not proven, as text, or "". An index becomes a polynomial over sizes and `Place`s (loop variables,
quotients, what is loaded); of a place facts are known, polynomials that are not negative there:

    for k in start .. stop        k - start,  stop - 1 - k
    q = a // d, r = a % d         q,  r,  d - 1 - r,  last(a) // d - q
    under a mask a < b            b - a - 1

To prove that a polynomial is never negative, the latest place is taken out of it by a fact, then
the one before; what is left has sizes alone, and `ir.dim.bounds` tells. What comes from data has no
facts but those of masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from itertools import product as pairs
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import expression_text
from arenite.dtype import Kind
from arenite.ir.dim import (
    Atom,
    Dim,
    Var,
    bounds,
    exact_quotient,
    known_le,
    maximum,
    minimum,
    product,
    substitute,
    terms_of,
)

#: Facts that are tried for one statement: what needs more is not proven.
MAX_STEPS = 2_000
#: Bounds of a part that are looked at.
_MAX_BOUNDS = 2
_MOST = 2**31 - 1


def unproven(
    kernel: ir.GroupKernel, counts: Mapping[str, Dim], sizes: Mapping[str, Var], tiles: Dim
) -> str:
    """The first access of a kernel that may lie outside, or ""; `counts` are elements as its loops
    count them."""
    known = sizes_at_work(sizes, tiles)
    elements: dict[str, Dim] = {name: substitute(count, known) for name, count in counts.items()}
    elements |= {array.name: array.count for array in kernel.shared}
    numbers = {name: known.get(var, var) for name, var in sizes.items()}
    try:
        Proof(kernel, elements, numbers).run(substitute(tiles, known))
    except Unproven as reason:
        return str(reason)
    return ""


def sizes_at_work(sizes: Mapping[str, Var], tiles: Dim) -> dict[Var, Dim]:
    """Sizes of which 0 leaves nothing to do: they are at least 1 where something is done."""
    return {
        var: type(var)(var.name, 1, var.high)
        for var in sizes.values()
        if var.low == 0 < var.high and bounds(substitute(tiles, {var: 0}))[1] == 0
    }


class Unproven(Exception):
    """Says what may be."""


class Place(Atom):
    """A number that is known while a kernel runs; `is_data`: it may be anything."""

    __slots__ = ("is_data", "number")

    def __init__(self, number: int, is_data: bool) -> None:
        self.number, self.is_data = number, is_data
        self._set_key(f"place {number}")


def _places(dim: Dim) -> list[Place]:
    return [one for factors in terms_of(dim) for one in factors if isinstance(one, Place)]


def _is_data(*dims: Dim) -> bool:
    return any(place.is_data for dim in dims for place in _places(dim))


def _is_whole(dim: Dim) -> bool:
    """Whether it is the number itself: a sum of data may have wrapped."""
    return isinstance(dim, Place) or not _is_data(dim)


class Proof:
    def __init__(
        self, kernel: ir.GroupKernel, counts: Mapping[str, Dim], sizes: Mapping[str, Dim]
    ) -> None:
        self.kernel, self.counts = kernel, counts
        self.names: dict[str, Dim] = {name: sizes[name] for name in kernel.sizes}
        self.facts: dict[Place, list[tuple[Dim, int]]] = {}  # and the place's coefficient
        #: What a place is at most, and at least, by a quotient of it: which a mask may bound.
        self.by_quotient: dict[Place, list[tuple[Dim, int]]] = {}
        self.quotients: dict[tuple[str, Dim, Dim], Place] = {}
        self.n_inside = 0  # conditions around
        self.conditions: dict[str, list[Dim]] = {}  # what holds where a name is true
        self.done: dict[int, tuple[ir.Expr, Dim]] = {}  # by identity, which is kept
        self.n_places = self.n_steps = 0

    def run(self, tiles: Dim) -> None:
        tile = self.place()
        self.know(tile, tiles - 1 - tile)
        self.names[self.kernel.tile_var] = tile
        self.block(self.kernel.body)

    # Places and what is known of them.

    def place(self, is_data: bool = False, least: Dim | None = 0) -> Place:
        self.n_places += 1
        place = Place(self.n_places, is_data)
        self.facts[place] = []
        if least is not None:
            self.know(place - least)
        return place

    def know(self, *facts: Dim) -> list[Place]:
        """Takes polynomials for such that are not negative; for which places."""
        found = []
        for fact in facts:
            latest = max(_places(fact), key=lambda place: place.number, default=None)
            factor = None if latest is None else _factor(fact, latest)
            if latest is not None and isinstance(factor, int):
                self.facts[latest].append((fact, factor))
                found.append(latest)
        return found

    def forget(self, places: Sequence[Place]) -> None:
        for place in places:
            self.facts[place].pop()

    def lows(self, dim: Dim, may_turn: bool = True) -> Iterator[Dim]:
        """Polynomials of sizes alone that are nowhere above this one; once on the way a place may
        give way to a quotient of it."""
        self.n_steps += 1
        if self.n_steps > MAX_STEPS:
            raise Unproven("there are too many ways to look at it")
        latest = max(_places(dim), key=lambda place: place.number, default=None)
        if latest is None:
            yield dim
            return
        factor = _factor(dim, latest)
        if factor is None:
            return
        is_up = self.holds(factor)
        if not is_up and not self.holds(-factor):
            return
        facts = [(*one, may_turn) for one in self.facts[latest]]
        if may_turn:
            facts += [(*one, False) for one in self.by_quotient.get(latest, ())]
        for fact, of_place, may_turn_then in facts:
            times = _quotient(factor, of_place) if is_up == (of_place > 0) else None
            if times is not None:
                yield from self.lows(dim - times * fact, may_turn_then)

    def holds(self, dim: Dim) -> bool:
        """Whether it is never negative."""
        return any(bounds(low)[0] >= 0 for low in self.lows(dim))

    def highs(self, dim: Dim) -> list[Dim]:
        return [-low for low in islice(self.lows(-dim), _MAX_BOUNDS)]

    # Statements.

    def block(self, block: ir.Block) -> None:
        names, conditions = dict(self.names), dict(self.conditions)
        for stmt in block:
            self.statement(stmt)
        self.names, self.conditions = names, conditions

    def statement(self, stmt: ir.Stmt) -> None:
        self.done, self.n_steps = {}, 0  # names may mean something else now
        for one in ir.walk(*ir.expressions(stmt)):
            if isinstance(one, ir.Load):
                self.access(one.array, one.index, one.mask, is_read=True)
            elif isinstance(one, ir.Table):
                self.table()
        inside: list[Dim] = []
        match stmt:
            case ir.Let(name, value):
                self.let(name, value)
            case ir.Store(array, index, _, mask):
                self.access(array, index, mask, is_read=False)
            case ir.For(var, start, stop):
                first, last = self.value(start), self.value(stop) - 1
                self.loop(stmt, first, last)
                place = self.place(_is_data(first, last), least=None)
                self.know(place - first, last - place)
                self.names[var] = place
            case ir.If(cond):
                inside = self.condition(cond)
            case ir.Foreign():
                self.foreign(stmt)
            case ir.While():
                raise Unproven("how long a loop runs")
            case ir.Accumulator(name):
                self.names.pop(name, None)  # something else each time that it is read
        for number, block in enumerate(ir.blocks(stmt)):
            known = self.know(*inside) if number == 0 else []
            self.n_inside += bool(known)
            self.block(block)
            self.n_inside -= bool(known)
            self.forget(known)

    def let(self, name: str, value: ir.Expr) -> None:
        self.names.pop(name, None)
        self.conditions.pop(name, None)
        if value.dtype == ir.BOOL:
            self.conditions[name] = self.condition(value)
        elif value.dtype == ir.INT64:
            found = self.value(value)
            self.names[name] = found if _is_whole(found) else self.place(True, least=None)

    def table(self) -> None:
        raise Unproven("which of its numbers is taken from a table")

    def loop(self, loop: ir.For, first: Dim, last: Dim) -> None:
        """What a thread counts up to passes the end by a step."""
        step = self.kernel.threads if loop.vector else 1
        if not any(known_le(high + step, _MOST) for high in self.highs(last)):
            raise Unproven(f"where the loop over {loop.var} ends")

    def foreign(self, stmt: ir.Foreign) -> None:
        if not stmt.accesses:
            raise Unproven("what text of the device's own accesses")
        for access in stmt.accesses:
            outside = dict(self.names)
            for name, most in access.most:
                self.done = {}
                last = self.value(most)
                # Of no numbers at all everything would hold, and the text may still do something.
                if not self.holds(last):
                    raise Unproven(f"whether {name} is ever anything, up to {last}")
                place = self.place()
                self.know(last - place)
                self.names[name] = place
            self.done = {}
            self.access(access.array, access.index, None, is_read=True)
            self.names = outside

    def access(self, array: str, index: ir.Expr, mask: ir.Expr | None, *, is_read: bool) -> None:
        at, count = self.value(index), self.counts[array]
        known = self.know(*([] if mask is None else self.condition(mask)))
        # Where a mask does not hold the first element is read.
        is_inside = self.holds(at) and self.holds(count - 1 - at)
        self.forget(known)
        if not is_inside or (mask is not None and is_read and bounds(count)[0] < 1):
            raise Unproven(f"{array}[{expression_text(index)}], of {count}")

    # Expressions.

    def condition(self, cond: ir.Expr) -> list[Dim]:
        """What is not negative where it holds."""
        match cond:
            case ir.Name(name):
                return self.conditions.get(name, [])
            case ir.Binary("and", a, b):
                return [*self.condition(a), *self.condition(b)]
            case ir.Binary(op, a, b) if a.dtype == ir.INT64 and op in _COMPARED:
                one, two = self.value(a), self.value(b)
                is_known = _is_whole(one) and _is_whole(two)
                return [made(one, two) for made in _COMPARED[op]] if is_known else []
        return []

    def value(self, expr: ir.Expr) -> Dim:
        """An integer as a polynomial; what is no sum or product is a place."""
        known = self.done.get(id(expr))
        if known is not None and known[0] is expr:
            return known[1]
        found = self.polynomial(expr)
        self.done[id(expr)] = (expr, found)
        return found

    def polynomial(self, expr: ir.Expr) -> Dim:
        match expr:
            case ir.Const(value):
                return int(value)
            case ir.Name(name) if name in self.names:
                return self.names[name]
            case ir.Unary("neg", x) if expr.dtype == ir.INT64:
                return -self.value(x)
            case ir.Binary(op, a, b) if expr.dtype == ir.INT64 and op in _ARITHMETIC:
                return _ARITHMETIC[op](self.value(a), self.value(b))
            case ir.Binary(op, a, b) if expr.dtype == ir.INT64 and op in ("floordiv", "mod"):
                return self.divided(op, self.value(a), self.value(b))
            case ir.Binary("min" | "max" as op, a, b) if expr.dtype == ir.INT64:
                return self.chosen(op, self.value(a), self.value(b))
            case ir.Select(cond, a, b) if expr.dtype == ir.INT64:
                return self.selected(self.condition(cond), self.value(a), self.value(b))
            case ir.Cast(x) if x.dtype.kind is Kind.BOOL:
                return self.ranged(0, 1)
            case ir.Cast(x) if x.dtype.kind is not Kind.FLOAT and x.dtype.bits <= 32:
                low = -(2 ** (x.dtype.bits - 1)) if x.dtype.kind is Kind.SIGNED else 0
                return self.ranged(low, low + 2**x.dtype.bits - 1)
        return self.place(True, least=None)

    def ranged(self, low: int, high: int) -> Place:
        place = self.place(least=low)
        self.know(high - place)
        return place

    def divided(self, op: str, a: Dim, b: Dim) -> Dim:
        if not self.holds(b - 1):
            return self.place(True, least=None)
        if not _places(a) and not _places(b):
            return a // b if op == "floordiv" else a % b
        known = self.quotients.get((op, a, b))
        if known is None:
            known = self.rest(a, b) if op == "mod" else self.quotient(a, b)
            if not self.n_inside:  # what is known of it holds everywhere
                self.quotients[op, a, b] = known
        return known

    def rest(self, a: Dim, b: Dim) -> Place:
        is_positive = self.holds(a)
        rest = self.place(_is_data(b))
        self.know(b - 1 - rest, *([a - rest] if is_positive else []))
        return rest

    def quotient(self, a: Dim, b: Dim) -> Place:
        is_positive = self.holds(a)
        highs = self.highs(a)
        quotient = self.place(_is_data(a, b), least=0 if is_positive else None)
        for high in highs if not _places(b) else ():
            whole = exact_quotient(high + 1, b)  # of n * b - 1 it is n - 1
            self.know((high // b if whole is None else whole - 1) - quotient)
        if isinstance(b, int) and _is_whole(a):
            self.know(a - b * quotient, b * quotient + b - 1 - a)
        if isinstance(a, Place):
            facts = (b * quotient + b - 1 - a, -1), (a - b * quotient, 1)
            self.by_quotient.setdefault(a, []).extend(facts)
        return self.settled(quotient)

    def chosen(self, op: str, a: Dim, b: Dim) -> Dim:
        """The smaller or the larger of two."""
        if not _places(a) and not _places(b):
            return minimum(a, b) if op == "min" else maximum(a, b)
        place = self.place(_is_data(a, b), least=None)
        for side in sorted((a, b), key=lambda side: len(_places(side))):
            if _is_whole(side):
                self.know(side - place if op == "min" else place - side)
        (lows, highs), (other_lows, other_highs) = self.ends(a), self.ends(b)
        if op == "min":
            self.know(*(place - minimum(*pair) for pair in pairs(lows, other_lows)))
        else:
            self.know(*(maximum(*pair) - place for pair in pairs(highs, other_highs)))
        return self.settled(place)

    def selected(self, facts: Sequence[Dim], a: Dim, b: Dim) -> Place:
        """One of two, the first where these facts hold."""
        known = self.know(*facts)
        lows, highs = self.ends(a)
        self.forget(known)
        other_lows, other_highs = self.ends(b)
        place = self.place(_is_data(a, b), least=None)
        self.know(*(place - minimum(*pair) for pair in pairs(lows, other_lows)))
        self.know(*(maximum(*pair) - place for pair in pairs(highs, other_highs)))
        return self.settled(place)

    def ends(self, dim: Dim) -> tuple[list[Dim], list[Dim]]:
        return [*islice(self.lows(dim), _MAX_BOUNDS)], self.highs(dim)

    def settled(self, place: Place) -> Place:
        """A place all of whose facts are known: between two bounds it is no matter of data."""
        if place.is_data and any(True for _ in self.lows(place)) and self.highs(place):
            place.is_data = False
        return place


_Made: TypeAlias = Callable[[Dim, Dim], Dim]
_COMPARED: dict[str, tuple[_Made, ...]] = {
    "lt": (lambda a, b: b - a - 1,),
    "le": (lambda a, b: b - a,),
    "gt": (lambda a, b: a - b - 1,),
    "ge": (lambda a, b: a - b,),
    "eq": (lambda a, b: a - b, lambda a, b: b - a),
}
_ARITHMETIC: dict[str, _Made] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}


def _factor(dim: Dim, place: Place) -> Dim | None:
    """What a place is multiplied with; None where it is so by itself."""
    total: Dim = 0
    for factors, number in terms_of(dim).items():
        n_times = factors.count(place)
        if n_times > 1:
            return None
        if n_times == 1:
            total = total + product([number, *(one for one in factors if one != place)])
    return total


def _quotient(dim: Dim, by: int) -> Dim | None:
    """A polynomial over a number, if that divides it."""
    if any(number % by for number in terms_of(dim).values()):
        return None
    total: Dim = 0
    for factors, number in terms_of(dim).items():
        total = total + product([number // by, *factors])
    return total
