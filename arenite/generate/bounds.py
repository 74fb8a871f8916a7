"""Numbers that a caller gives, checked: each is what it should be, or InvalidArgument names it."""

from __future__ import annotations

import math
from numbers import Integral, Real

from arenite.errors import InvalidArgument


def number(name: str, value: object, least: float, most: float) -> float:
    """A finite number within bounds; NumPy's are numbers too, flags are none."""
    good = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not least <= value <= most:  # type: ignore[operator]
        raise InvalidArgument(f"{name} is {value!r}; {_bounds('a number', least, most)} is needed")
    return float(value)  # type: ignore[arg-type]


def whole(name: str, value: object, least: float = -math.inf, most: float = math.inf) -> int:
    """A whole number within bounds."""
    good = isinstance(value, Integral) and not isinstance(value, bool)
    if not good or not least <= value <= most:  # type: ignore[operator]
        wanted = _bounds("a whole number", least, most)
        raise InvalidArgument(f"{name} is {value!r}; {wanted} is needed")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _bounds(what: str, least: float, most: float) -> str:
    what += f" from {least}" if least != -math.inf else ""
    return what + (f" to {most}" if most != math.inf else "")
