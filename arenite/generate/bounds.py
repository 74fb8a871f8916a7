"""Numbers that a caller gives, checked: each is what it should be, or InvalidArgument names it."""

from __future__ import annotations

import math
from numbers import Integral, Real

from arenite.errors import InvalidArgument

#: Characters of a value that an error shows.
SHOWN = 60


def number(name: str, value: object, least: float, most: float) -> float:
    """A finite number within bounds; NumPy's are numbers too, flags are none."""
    as_float = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            as_float = float(value)
        except OverflowError:
            as_float = math.inf
    if not math.isfinite(as_float) or not least <= as_float <= most:
        wanted = _bounds("a number", least, most)
        raise InvalidArgument(f"{name} is {_shown(value)}; {wanted} is needed")
    return as_float


def whole(name: str, value: object, least: float = -math.inf, most: float = math.inf) -> int:
    """A whole number within bounds."""
    good = isinstance(value, Integral) and not isinstance(value, bool)
    if not good or not least <= value <= most:  # type: ignore[operator]
        wanted = _bounds("a whole number", least, most)
        raise InvalidArgument(f"{name} is {_shown(value)}; {wanted} is needed")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _bounds(what: str, least: float, most: float) -> str:
    what += f" from {least}" if least != -math.inf else ""
    return what + (f" to {most}" if most != math.inf else "")
