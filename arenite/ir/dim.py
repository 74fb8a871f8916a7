"""Sizes: a `Dim` is an int, or an expression over named variables with bounds.

An expression is a sum of products with integer coefficients, kept in one canonical form, so that
equal sizes compare equal: `(n + 1) * 2 == 2 * n + 2`. What a polynomial cannot say is an atom:

    Var(name, low, high)            a size known when the program is bound
    Found(name, low, high)          one found while it runs, by the op `cut`
    Floordiv(numerator, divisor)    rounded down; the divisor is always positive
    Positive(inner)                 max(0, inner)

Everything else is made of these: `a % b = a - b*(a//b)`, `max(a, b) = b + max(0, a - b)`. Bounds
are found by interval arithmetic that undoes these forms, and never leave out a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce
from math import gcd
from typing import TypeAlias, Union

from arenite.errors import BoundsError, InvalidArgument
from arenite.ir.corners import bounds_together, grow_together

Dim: TypeAlias = Union[int, "Expr"]
Bounds: TypeAlias = tuple[int, int]  # inclusive
Monomial: TypeAlias = tuple["Atom", ...]  # factors, sorted; the empty one stands for 1

Term: TypeAlias = tuple[Monomial, int]

# Each atom that bounds() takes apart doubles its work at worst.
_MAX_UNDONE_ATOMS = 4

# Layers repeat, and so does the arithmetic on their sizes: results that are kept, of each kind.
_MAX_KEPT = 1 << 12


class Expr:
    """A size that is no number yet. Immutable; equal expressions have equal keys."""

    __slots__ = ("_bounds", "_hash", "key")

    key: str
    _hash: int
    _bounds: Bounds | None

    def _set_key(self, key: str) -> None:
        self.key = key
        self._hash = hash(key)
        self._bounds = None

    @property
    def terms(self) -> tuple[tuple[Monomial, int], ...]:
        """(product of atoms, coefficient), highest degree first."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expr):
            return self is other or self.key == other.key
        return False if isinstance(other, int) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, int | Expr):
            return NotImplemented
        return _add(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        if not isinstance(other, int | Expr):
            return NotImplemented
        return _add(self, other, -1)

    def __rsub__(self, other: int) -> Dim:
        return _add(other, self, -1)

    def __neg__(self) -> Dim:
        return _add(0, self, -1)

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, int | Expr):
            return NotImplemented
        return _multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return _floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        if not isinstance(other, int | Expr):
            return NotImplemented
        return self - other * _floordiv(self, other)

    def __rmod__(self, other: int) -> Dim:
        return other - self * _floordiv(other, self)

    def __str__(self) -> str:
        from arenite.ir.dim_text import written

        return written(self)

    __repr__ = __str__


class Atom(Expr):
    """An expression that is one factor of a product."""

    __slots__ = ()

    @property
    def terms(self) -> tuple[tuple[Monomial, int], ...]:
        return (((self,), 1),)


class Var(Atom):
    """A named size with inclusive bounds."""

    __slots__ = ("high", "low", "name")

    def __init__(self, name: str, low: int, high: int) -> None:
        if not name.isidentifier():
            raise InvalidArgument(f"a Var needs a name that is an identifier, not {name!r}")
        if not 0 <= low <= high:
            raise InvalidArgument(
                f"Var {name!r} needs bounds with 0 <= low <= high, not {low}..{high}"
            )
        self.name, self.low, self.high = name, int(low), int(high)
        self._set_key(f"{self.symbol}[{low}..{high}]")

    @property
    def symbol(self) -> str:
        """What generated code calls it: no name that code gives itself begins so."""
        return f"size_{self.name}"


class LoopVar(Var):
    """The variable of a loop, in positions; its name is the code's own."""

    __slots__ = ()

    @property
    def symbol(self) -> str:
        return self.name


class Found(Var):
    """A size that is found while a program runs."""

    __slots__ = ()

    def __init__(self, name: str, low: int, high: int) -> None:
        super().__init__(name, low, high)
        self._set_key(f"{self.key} found")  # never equal to a variable of that name


class Floordiv(Atom):
    """numerator // divisor, where nothing more could be said."""

    __slots__ = ("divisor", "numerator")

    def __init__(self, numerator: Expr, divisor: Dim) -> None:
        self.numerator, self.divisor = numerator, divisor
        self._set_key(f"({numerator.key})//({_key(divisor)})")


class Positive(Atom):
    """max(0, inner), where inner may have either sign."""

    __slots__ = ("inner",)

    def __init__(self, inner: Expr) -> None:
        self.inner = inner
        self._set_key(f"max(0,{inner.key})")


class Sum(Expr):
    """Two or more terms, or one that is not a bare atom."""

    __slots__ = ("_terms",)

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self._terms = terms
        self._set_key("+".join("*".join([str(c), *(a.key for a in m)]) for m, c in terms))

    @property
    def terms(self) -> tuple[tuple[Monomial, int], ...]:
        return self._terms


def _key(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else dim.key


def _term_order(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return -len(term[0]), [atom.key for atom in term[0]]


def terms_of(dim: Dim) -> dict[Monomial, int]:
    """The coefficients by product of atoms; none of 0."""
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    return dict(dim.terms)


def _of_terms(terms: Mapping[Monomial, int]) -> Dim:
    kept = sorted(((m, c) for m, c in terms.items() if c), key=_term_order)
    if not kept:
        return 0
    if len(kept) == 1:
        monomial, coefficient = kept[0]
        if not monomial:
            return coefficient
        if len(monomial) == 1 and coefficient == 1:
            return monomial[0]
    return Sum(tuple(kept))


@lru_cache(_MAX_KEPT)
def _add(a: Dim, b: Dim, sign: int) -> Dim:
    terms = terms_of(a)
    for monomial, coefficient in terms_of(b).items():
        terms[monomial] = terms.get(monomial, 0) + sign * coefficient
    return _of_terms(terms)


@lru_cache(_MAX_KEPT)
def _multiply(a: Dim, b: Dim) -> Dim:
    terms: dict[Monomial, int] = {}
    for left, c in terms_of(a).items():
        for right, d in terms_of(b).items():
            monomial = tuple(sorted(left + right, key=_key))
            terms[monomial] = terms.get(monomial, 0) + c * d
    return _of_terms(terms)


def product(dims: Iterable[Dim]) -> Dim:
    """The number of elements of a shape."""
    count: Dim = 1
    for dim in dims:
        count = count * dim
    return count


def ceildiv(a: Dim, b: Dim) -> Dim:
    """a / b rounded up, for a positive b."""
    return (a + b - 1) // b


def known_divisor(dim: Dim) -> int:
    """The largest number that divides a size for all values of the variables."""
    return gcd(*terms_of(dim).values())


def exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """q with q * b == a for all values of the variables, also where b is 0; None: none is known."""
    if a == b:
        return 1
    if b == 0:
        return None
    whole, left = _divided(terms_of(a), terms_of(b))
    if left == 0:
        return whole
    return a // b if bounds(b)[0] > 0 and a % b == 0 else None


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of two sizes."""
    return b + _positive(a - b)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two sizes."""
    return a - _positive(a - b)


def _positive(dim: Dim) -> Dim:
    low, high = bounds(dim)
    if low >= 0:
        return dim
    if high <= 0:
        return 0
    assert isinstance(dim, Expr)
    if dim.terms[0][1] < 0:  # of e and -e one is canonical: max(0, e) = e + max(0, -e)
        return dim + _positive(-dim)
    content = known_divisor(dim)
    inner = _of_terms({m: c // content for m, c in dim.terms})
    assert isinstance(inner, Expr)
    return content * Positive(inner)


def _floordiv(a: Dim, b: Dim) -> Dim:
    if not isinstance(b, int | Expr):
        return NotImplemented
    if bounds(b)[0] < 1:
        raise BoundsError(f"{a} // {b}: the divisor must be positive, it may be {bounds(b)[0]}")
    return _floordiv_by_int(a, b) if isinstance(b, int) else _floordiv_by_expr(a, b)


@lru_cache(_MAX_KEPT)
def _floordiv_by_int(a: Dim, b: int) -> Dim:
    # b*q + r over b is q + r over b, term by term; what is left has coefficients below b.
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in terms_of(a).items():
        # Towards zero, so that no term changes its direction; the constant becomes 0..b-1.
        q = c // b if c >= 0 or not monomial else -(-c // b)
        quotient[monomial], rest[monomial] = q, c - q * b
    whole, left = _of_terms(quotient), _of_terms(rest)
    low, high = bounds(left)
    if low // b == high // b:
        return whole + low // b
    assert isinstance(left, Expr)
    common = reduce(gcd, (c for m, c in left.terms if m), b)
    if common > 1:
        reduced = _of_terms({m: c // common for m, c in left.terms})
        return whole + _floordiv_by_int(reduced, b // common)
    # (n//d + k) // b = (n + k*d) // (d*b)
    (monomial, c), *others = left.terms
    inner = monomial[0]
    if (
        c == 1
        and len(monomial) == 1
        and isinstance(inner, Floordiv)
        and (not others or (len(others) == 1 and not others[0][0]))
    ):
        constant = others[0][1] if others else 0
        return whole + (inner.numerator + constant * inner.divisor) // (inner.divisor * b)
    return whole + Floordiv(left, b)


@lru_cache(_MAX_KEPT)
def _floordiv_by_expr(a: Dim, b: Expr) -> Dim:
    whole, left = _divided(terms_of(a), terms_of(b))
    if left == 0 or (bounds(left)[0] >= 0 and bounds(left - b)[1] < 0):
        return whole
    if isinstance(a, int):
        return a // bounds(b)[0] if a // bounds(b)[0] == a // bounds(b)[1] else _quotient(a, b)
    factor, content = _common_factor(a, b)
    if factor or content > 1:
        return _without(a, factor, content) // _without(b, factor, content)
    low, high = bounds(Floordiv(a, b))
    return low if low == high else Floordiv(a, b)


def _quotient(a: int, b: Expr) -> Dim:
    """A number over an expression: the numerator of an atom is an expression too."""
    return Floordiv(Sum((((), a),)), b)


def _divided(a: dict[Monomial, int], b: dict[Monomial, int]) -> tuple[Dim, Dim]:
    """Polynomial division: quotient and remainder."""
    (leading, c), *_ = sorted(b.items(), key=_term_order)
    quotient: dict[Monomial, int] = {}
    rest = dict(a)
    while True:
        for monomial, d in sorted(rest.items(), key=_term_order):
            factor = _cancelled(monomial, leading)
            if d and d % c == 0 and factor is not None:
                break
        else:
            return _of_terms(quotient), _of_terms(rest)
        quotient[factor] = d // c
        for other, e in b.items():
            key = tuple(sorted(other + factor, key=_key))
            rest[key] = rest.get(key, 0) - d // c * e


def _cancelled(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _common_factor(a: Expr, b: Expr) -> tuple[Monomial, int]:
    """The largest product of atoms and the largest number that divide every term of both."""
    monomials = [m for m, _ in (*a.terms, *b.terms)]
    factor: Monomial = ()
    for atom in monomials[0]:
        if all(_cancelled(m, (*factor, atom)) is not None for m in monomials):
            factor = (*factor, atom)
    return factor, reduce(gcd, (c for _, c in (*a.terms, *b.terms)))


def _without(dim: Expr, factor: Monomial, content: int) -> Dim:
    return _of_terms({_cancelled(m, factor) or (): c // content for m, c in dim.terms})


def bounds(dim: Dim) -> Bounds:
    """(low, high), inclusive; every value the size can take lies within."""
    if isinstance(dim, int):
        return dim, dim
    if dim._bounds is None:
        dim._bounds = _bounds_of(dim)
    return dim._bounds


def _bounds_of(dim: Expr) -> Bounds:
    if isinstance(dim, Var):
        return dim.low, dim.high
    if isinstance(dim, Positive):
        low, high = bounds(dim.inner)
        return max(0, low), max(0, high)
    if isinstance(dim, Floordiv):
        corners = [n // d for n in bounds(dim.numerator) for d in bounds(dim.divisor)]
        return min(corners), max(corners)
    parts = _independent_parts(dim.terms)
    if len(parts) > 1:
        ends = [bounds(_of_terms(dict(part))) for part in parts]
        return sum(low for low, _ in ends), sum(high for _, high in ends)
    return _bounds_of_part(dim)


def _independent_parts(terms: Iterable[Term]) -> list[list[Term]]:
    """A sum as sums that share no variable; their bounds are found apart, where those of the whole
    would take apart an atom of each beside those of all others."""
    parts: list[tuple[set[Var], list[Term]]] = []
    for term in terms:
        own = {var for atom in term[0] for var in variables(atom)}
        joined = [term]
        apart = []
        for names, part in parts:
            if names.isdisjoint(own):
                apart.append((names, part))
            else:
                own |= names
                joined = part + joined
        parts = [*apart, (own, joined)]
    return [part for _, part in parts]


def _bounds_of_part(dim: Expr) -> Bounds:
    low = high = 0
    for monomial, coefficient in dim.terms:
        term = (coefficient, coefficient)
        for atom in monomial:
            corners = [x * y for x in term for y in bounds(atom)]
            term = min(corners), max(corners)
        low, high = low + term[0], high + term[1]
    if grow_together(dim.terms):
        ends = {atom: bounds(atom) for monomial, _ in dim.terms for atom in monomial}
        other_low, other_high = bounds_together(dim.terms, ends)
        low, high = max(low, other_low), min(high, other_high)
    alone = [m[0] for m, _ in dim.terms if len(m) == 1 and not isinstance(m[0], Var)]
    among = {a: None for m, _ in dim.terms if len(m) > 1 for a in m if isinstance(a, Positive)}
    undone = [*alone, *(a for a in among if a not in alone and _factor_of(a, dim) != 0)]
    for atom in undone[:_MAX_UNDONE_ATOMS]:
        other_low, other_high = _bounds_without(dim, atom)
        low, high = max(low, other_low), min(high, other_high)
    return low, high


def _bounds_without(dim: Expr, atom: Atom) -> Bounds:
    """Bounds of `dim = rest + c*atom`, found from expressions that lack the atom."""
    if isinstance(atom, Positive):  # one of two expressions, whichever is larger (c >= 0)
        factor = _factor_of(atom, dim)
        rest = dim - factor * atom
        one, two = bounds(rest), bounds(rest + factor * atom.inner)
        choose = max if bounds(factor)[0] >= 0 else min
        return choose(one[0], two[0]), choose(one[1], two[1])
    assert isinstance(atom, Floordiv)
    c, d = terms_of(dim)[atom,], atom.divisor
    rest = dim - c * atom
    if not isinstance(d, int):
        return bounds(rest)[0] + min(c * b for b in bounds(atom)), bounds(rest)[1] + max(
            c * b for b in bounds(atom)
        )
    # d*dim = d*rest + c*(numerator - m) with m in 0..d-1
    low, high = bounds(d * rest + c * atom.numerator)
    slack = -c * (d - 1)
    return -(-(low + min(0, slack)) // d), (high + max(0, slack)) // d


def _factor_of(atom: Atom, dim: Expr) -> Dim:
    """What an atom is multiplied with in a sum, of one sign: in all terms that have it once, or
    where these have either sign in that of the atom alone."""
    parts = {m: c for m, c in dim.terms if m.count(atom) == 1}
    factor = _of_terms({_cancelled(m, (atom,)) or (): c for m, c in parts.items()})
    low, high = bounds(factor)
    return parts.get((atom,), 0) if low < 0 < high else factor


def known_le(a: Dim, b: Dim) -> bool:
    """Whether a <= b for every value of the variables, as far as bounds tell."""
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    return bounds(b - a)[0] >= 0


@lru_cache(_MAX_KEPT)
def variables(dim: Dim) -> frozenset[Var]:
    """The variables in a size."""
    found: set[Var] = set()
    pending: list[Dim] = [dim]
    while pending:
        current = pending.pop()
        if isinstance(current, Var):
            found.add(current)
        elif isinstance(current, Floordiv):
            pending += [current.numerator, current.divisor]
        elif isinstance(current, Positive):
            pending.append(current.inner)
        elif isinstance(current, Expr):
            pending += [atom for monomial, _ in current.terms for atom in monomial]
    return frozenset(found)


def substitute(dim: Dim, replaced: Mapping[Var, Dim]) -> Dim:
    """The same size with variables replaced, all at once."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Var):
        return replaced.get(dim, dim)
    if isinstance(dim, Floordiv):
        return substitute(dim.numerator, replaced) // substitute(dim.divisor, replaced)
    if isinstance(dim, Positive):
        return maximum(substitute(dim.inner, replaced), 0)
    total: Dim = 0
    for monomial, number in dim.terms:
        total = total + product([number, *(substitute(atom, replaced) for atom in monomial)])
    return total


def found_in(dim: Dim) -> frozenset[Found]:
    """The sizes in it that are found while running."""
    return frozenset(var for var in variables(dim) if isinstance(var, Found))


def check_binding(var: Var, value: int) -> int:
    """`value`, or BoundsError where the variable cannot have it."""
    if not var.low <= value <= var.high:
        raise BoundsError(f"{var.name} = {value} is outside its bounds {var.low}..{var.high}")
    return value


def evaluate(dim: Dim, bindings: Mapping[str, int]) -> int:
    """The number, with each variable bound by name to a value within its bounds."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Var):
        if dim.name not in bindings:
            known = ", ".join(sorted(bindings)) or "none"
            raise BoundsError(f"variable {dim.name!r} has no value; bound are: {known}")
        return check_binding(dim, bindings[dim.name])
    if isinstance(dim, Floordiv):
        return evaluate(dim.numerator, bindings) // evaluate(dim.divisor, bindings)
    if isinstance(dim, Positive):
        return max(0, evaluate(dim.inner, bindings))
    total = 0
    for monomial, coefficient in dim.terms:
        for atom in monomial:
            coefficient *= evaluate(atom, bindings)
        total += coefficient
    return total
