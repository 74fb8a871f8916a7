"""What a template does to values, at a price: every operation costs steps, more for larger values.

A render has a budget of so many steps, and no value may grow over a size; what would is refused
before it is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.filters import do_round
from jinja2.runtime import Undefined

BASE_STEPS = 2**19
BASE_SIZE = 2**22  # characters of one value
ELEMENT_SIZE = 16  # characters that one element of a list counts as
STEP_SIZE = 256  # characters that one step pays for
MAX_INTEGER_BITS = 8192
MAX_WIDTH = 999  # of a formatted field

MAX_DEPTH = 200  # of lists in lists

_CONTAINERS = (list, tuple, set, frozenset, dict)
_WITH_LENGTH = (*_CONTAINERS, range)


class OverBudget(Exception):
    """A template that would take more steps or make larger values than it may."""


class Budget:
    """Steps that are left, and the size that no value may pass."""

    def __init__(self, given_size: int) -> None:
        self.steps = BASE_STEPS + 4 * given_size
        self.max_size = BASE_SIZE + 4 * given_size

    def spend(self, size: int) -> None:
        if size > self.max_size:
            raise OverBudget(f"makes a value of over {self.max_size} characters")
        self.steps -= 1 + size // STEP_SIZE
        if self.steps < 0:
            raise OverBudget("takes more steps than any conversation needs")


_BUDGET: ContextVar[Budget] = ContextVar("budget")


@contextmanager
def budget_for(given_size: int) -> Iterator[None]:
    """A budget for what is compiled or rendered inside, more for larger conversations."""
    token = _BUDGET.set(Budget(given_size))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def spend(size: int = 0) -> None:
    _BUDGET.get().spend(size)


def length_of(value: object) -> int:
    """Characters of a text; of a list its elements alone, not what is in them."""
    if isinstance(value, str):
        return len(value)
    return ELEMENT_SIZE * (1 + len(value) if isinstance(value, _WITH_LENGTH) else 1)


def size_of(value: object) -> int:
    """Characters of a value as if written out: what is in it twice counts twice."""
    if not isinstance(value, _CONTAINERS):
        return length_of(value)
    sizes: dict[int, tuple[int, int]] = {}  # and how deep it is
    stack: list[tuple[Any, bool]] = [(value, False)]
    while stack:
        item, has_parts = stack.pop()
        parts = [*item.keys(), *item.values()] if isinstance(item, dict) else item
        if has_parts:
            known = [sizes[id(p)] if id(p) in sizes else (length_of(p), 0) for p in parts]
            depth = 1 + max((depth for _, depth in known), default=0)
            if depth > MAX_DEPTH:
                raise OverBudget(f"nests over {MAX_DEPTH} lists")
            sizes[id(item)] = (length_of(item) + sum(size for size, _ in known), depth)
        elif id(item) not in sizes:
            stack.append((item, True))
            stack += [(part, False) for part in parts if isinstance(part, _CONTAINERS)]
    return sizes[id(value)][0]


def counted(value: Any) -> Any:
    """The value, paid for by its length: what is done with it does not look into its parts."""
    spend(length_of(value))
    return value


def charged(value: Any) -> Any:
    """The value, paid for by all that is in it."""
    spend(size_of(value))
    return value


def as_text(value: Any) -> Any:
    """A value as it may be printed: plain data only, paid for."""
    if isinstance(value, str | int | float | list | tuple | dict | Undefined) or value is None:
        return charged(value)
    raise SecurityError(f"prints an object of type {type(value).__name__}")


def text_of(value: Any) -> str:
    return str(as_text(value))


def join(values: Iterable[Any], separator: Any = "", attribute: Any = None) -> str:
    """Texts of values in one, as Jinja's filter of that name; the size is known before."""
    if attribute is not None:
        raise SecurityError("joins by attribute; map it first")
    texts, between = [], text_of(separator)
    total = 0
    for value in values:
        texts.append(value if isinstance(value, str) else text_of(value))
        total += len(texts[-1]) + len(between)
        if total > _BUDGET.get().max_size:
            break
    spend(total)
    return between.join(texts)


def replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    whole, part, other = text_of(text), text_of(old), text_of(new)
    n_found = whole.count(part)
    if count is not None and count >= 0:
        n_found = min(n_found, count)
    spend(len(whole) + n_found * len(other))
    return whole.replace(part, other, n_found)


def indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Lines moved to the right, as Jinja's filter of that name."""
    text = text_of(text)
    margin = width if isinstance(width, str) else " " * min(max(width, 0), MAX_WIDTH)
    spend(len(text) + (text.count("\n") + 1) * len(margin))
    begin, *others = text.split("\n")
    lines = [begin, *(margin + line if line or blank else line for line in others)]
    return (margin if first else "") + "\n".join(lines)


def formatted(text: str, *values: Any) -> str:
    """`text % values` with fields of a bounded width."""
    if re.search(r"%[^%A-Za-z]*(\*|\d{4,})", text):
        raise SecurityError(f"formats a field wider than {MAX_WIDTH} characters")
    size = sum(size_of(as_text(value)) for value in values)
    spend(text.count("%") * (size + MAX_WIDTH) + len(text))
    return text % (values[0] if len(values) == 1 and isinstance(values[0], dict) else values)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent is not None and not 0 <= indent <= MAX_WIDTH // 10:
        raise SecurityError(f"indents JSON by {indent}")
    spend(size_of(value) * (1 + (indent or 0)))
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def rounded(value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > 30:
        raise SecurityError(f"rounds to {precision} digits")
    return do_round(value, precision, method)  # type: ignore[arg-type]
