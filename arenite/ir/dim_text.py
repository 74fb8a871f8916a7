"""Sizes as a person would write them: `%`, `max` and `min` come back from their canonical forms."""

from __future__ import annotations

from arenite.ir.dim import Dim, Floordiv, Positive, Var, terms_of


def written(dim: Dim) -> str:
    """The text of a size."""
    if isinstance(dim, int):
        return str(dim)
    if isinstance(dim, Var):
        return dim.name
    if isinstance(dim, Floordiv):
        return f"{_factor(dim.numerator)}//{_factor(dim.divisor)}"
    if isinstance(dim, Positive):
        return f"max(0, {written(dim.inner)})"
    for monomial, c in dim.terms:
        if len(monomial) == 1 and isinstance(monomial[0], Positive) and c in (1, -1):
            rest = dim - c * monomial[0]
            other = rest + c * monomial[0].inner
            return f"{'max' if c > 0 else 'min'}({written(other)}, {written(rest)})"
    parts: list[tuple[int, str]] = []  # (sign, text)
    left: Dim = dim
    for monomial, c in dim.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, Floordiv) and isinstance(atom.divisor, int) and c % atom.divisor == 0:
            times = -c // atom.divisor
            without = left - c * atom - times * atom.numerator
            if len(terms_of(without)) < len(terms_of(left - c * atom)):
                modulo = f"{_factor(atom.numerator)} % {atom.divisor}"
                one = len(terms_of(without)) == 0 and times == 1
                shown = modulo if one else f"({modulo})"
                parts.append((times, shown if abs(times) == 1 else f"{abs(times)}*{shown}"))
                left = without
    terms = [] if isinstance(left, int) and left == 0 else terms_of(left).items()
    for monomial, c in terms:
        factors = [_factor(atom) for atom in monomial]
        if abs(c) != 1 or not monomial:
            factors.insert(0, str(abs(c)))
        parts.append((c, "*".join(factors)))
    first, *others = parts
    text = ("-" if first[0] < 0 else "") + first[1]
    return text + "".join(f" {'-' if sign < 0 else '+'} {part}" for sign, part in others)


def _factor(dim: Dim) -> str:
    text = written(dim)
    return text if isinstance(dim, int | Var | Positive) else f"({text})"
