"""Sizes of a model's inputs that come with a call: their names, their bounds, and forms of them.

A name in a file may be anything, and is made an identifier; a size without one is named after its
input and axis. A Form says what a program assumes about sizes: numbers, variables within bounds,
sizes that are equal, multiples of a number, sums of others.

    batch 1..64, height = 32 * 1..128, mask_0 = batch, mask_1 = past + length
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from arenite import saved_json
from arenite.errors import BoundsError, InvalidArgument
from arenite.ir.dim import Dim, Var, bounds
from arenite.records import NamedTuple

#: What a caller says of a size: 4, "4", "1..8" or (1, 8).
GivenSize: TypeAlias = "int | str | tuple[int, int]"

#: More than any axis has.
MAX_SIZE = 2**31

_RANGE = r"\s*(\d{1,18})\s*(?:\.\.\s*(\d{1,18})\s*)?"
#: Names that mean something else in calls of `plan` and `compile`.
_TAKEN = frozenset({"self", "memory", "threads", "plan", "device", "values", "on_progress"})
#: The largest a size may be, of which nothing is said: bits of all such sizes together, by how many
#: there are, and of one.
_BITS_TOGETHER = {1: 16, 2: 24, 3: 33}
_MOST_BITS_TOGETHER, _MOST_BITS = 36, 16
#: Bits that are taken off, where so large a plan cannot be made.
N_TIERS, _TIER_BITS = 4, 8


def identifier(text: str) -> str:
    """A name that Python takes, made of any; "" where nothing is left of it."""
    made = re.sub(r"\W", "_", text).strip("_")
    if made[:1].isdigit():
        made = f"_{made}"
    return f"{made}_size" if keyword.iskeyword(made) or made in _TAKEN else made


class SizeNames:
    """Names of sizes by what the file calls them; each is one size."""

    def __init__(self) -> None:
        self._by_given: dict[str, str] = {}
        self._taken: set[str] = set()

    def named(self, given: str | int | None, path: str, axis: int) -> str | int:
        """The name of the size of an axis of an input; a number stays."""
        if isinstance(given, int):
            return given
        # "?" is no name: two such sizes need not be equal.
        own = identifier(given or "")
        text = given if given and own else f"{path} {axis}"
        if text not in self._by_given:
            wanted = own or identifier(f"{path}_{axis}") or f"size_{axis}"
            name, k = wanted, 2
            while name in self._taken:
                name, k = f"{wanted}_{k}", k + 1
            self._taken.add(name)
            self._by_given[text] = name
        return self._by_given[text]

    def find(self, given: str, known: Collection[str]) -> str:
        """The name that a caller means, who may write it as the file has it."""
        if given in known:
            return given
        other = self._by_given.get(given)
        if other is not None and other in known:
            return other
        names = ", ".join(sorted(known)) or "none: all are fixed"
        raise InvalidArgument(f"there is no size {given!r} to be said; there are {names}")


def bounds_of(name: str, given: Any) -> tuple[int, int]:
    """The least and the largest value that a caller says a size has."""
    pair: tuple[int, int] | None = None
    if isinstance(given, str):
        found = re.fullmatch(_RANGE, given)
        if found:
            pair = (int(found[1]), int(found[2] or found[1]))
    elif isinstance(given, tuple) and len(given) == 2 and all(type(one) is int for one in given):
        pair = given
    elif isinstance(given, range) and given.step == 1 and len(given):
        pair = (given.start, given.stop - 1)
    elif hasattr(given, "__index__") and not isinstance(given, bool):
        pair = (int(given.__index__()), int(given.__index__()))
    if pair is None:
        raise InvalidArgument(f"size {name!r} is a number or a range such as '1..8', not {given!r}")
    if not 0 <= pair[0] <= pair[1]:
        raise BoundsError(f"size {name!r} is to be {pair[0]}..{pair[1]}, which has no value")
    if pair[1] > MAX_SIZE:
        raise BoundsError(f"size {name!r} is to be {pair[1]}, and no size is above {MAX_SIZE}")
    return pair


class Size(NamedTuple):
    """`factor` times a variable, or a number, or the sum of other sizes."""

    root: str  # "" for a number, and for a sum
    factor: int
    low: int  # of the variable, or the number
    high: int
    addends: tuple[str, ...] = ()  # names of the other sizes

    @property
    def name(self) -> str:
        """That of the variable."""
        return self.root if self.factor == 1 else f"{self.root}_by_{self.factor}"

    @property
    def dim(self) -> Dim:
        """Not that of a sum."""
        return self.factor * Var(self.name, self.low, self.high) if self.root else self.low

    def value(self, size: int) -> int | None:
        """What the variable is, for a size; None where it is not so."""
        value, over = divmod(size, self.factor)
        return None if over or not self.low <= value <= self.high else value

    def __str__(self) -> str:
        if self.addends:
            return " + ".join(self.addends)
        if not self.root:
            return str(self.low)
        return f"{f'{self.factor} * ' * (self.factor > 1)}{self.root} {self.low}..{self.high}"


class Form(NamedTuple):
    """What a program assumes of sizes, by name."""

    sizes: tuple[tuple[str, Size], ...] = ()

    @staticmethod
    def of_numbers(sizes: Mapping[str, int]) -> Form:
        return Form(tuple((name, Size("", 1, one, one)) for name, one in sizes.items()))

    @staticmethod
    def of_bounds(
        names: Iterable[str],
        given: Mapping[str, tuple[int, int]],
        tier: int = 0,
        may_be_empty: Collection[str] = (),
    ) -> Form:
        """Each a variable of its own; of which no bounds are given has usual ones."""
        names = list(names)
        n_free = len([name for name in names if name not in given])
        bits = _BITS_TOGETHER.get(n_free, _MOST_BITS_TOGETHER) - tier * _TIER_BITS
        high = 2 ** max(1, min(_MOST_BITS, bits // max(n_free, 1)))
        made = []
        for name in names:
            low, most = given.get(name, (int(name not in may_be_empty), high))
            made.append((name, Size("" if low == most else name, 1, low, most)))
        return Form(tuple(made))

    def to_json(self) -> str:
        return saved_json.dumps([[name, *one] for name, one in self.sizes])

    @staticmethod
    def from_json(text: str) -> Form:
        """ValueError, or TypeError, where it is none."""
        made = []
        for name, root, factor, low, high, addends in saved_json.loads(text):
            one = Size(str(root), int(factor), int(low), int(high), tuple(map(str, addends)))
            made.append((str(name), one))
        return Form(tuple(made))

    @property
    def is_open(self) -> bool:
        """Whether some size is a variable."""
        return any(one.root for _, one in self.sizes)

    @property
    def roots(self) -> list[str]:
        return list(dict.fromkeys(one.root for _, one in self.sizes if one.root))

    def dim(self, name: str) -> Dim:
        one = dict(self.sizes)[name]
        return sum((self.dim(other) for other in one.addends), start=0) if one.addends else one.dim

    def values(self, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """What the variables are for sizes, by their names; None where they are not of this form.

        Sizes that are said to be equal are."""
        found: dict[str, int] = {}
        for name, one in self.sizes:
            if one.addends:
                if sizes[name] != sum(sizes[other] for other in one.addends):
                    return None
                continue
            value = one.value(sizes[name])
            if value is None:
                return None
            if one.root and found.setdefault(one.name, value) != value:
                return None
        return found

    def least(self) -> dict[str, int]:
        """The least values of the variables."""
        found = self.values({name: bounds(self.dim(name))[0] for name, _ in self.sizes})
        assert found is not None
        return found

    def largest(self) -> dict[str, int]:
        """The largest sizes."""
        return {name: bounds(self.dim(name))[1] for name, _ in self.sizes}

    def equal(self, root: str, other: str) -> Form:
        """With two variables one, within the bounds of both."""
        a, b = self.variable(root), self.variable(other)
        low, high = max(a.low, b.low), max(min(a.high, b.high), a.low, b.low)
        one = a._replace(low=low, high=high)
        return self.changed({root: one, other: one})

    def sum_of(self, root: str, addends: tuple[str, ...]) -> Form:
        """With a variable the sum of others."""
        return self.changed({root: Size("", 1, 0, 0, addends)})

    def changed(self, roots: Mapping[str, Size]) -> Form:
        """With other variables, or numbers, in place of some."""
        return Form(tuple((name, roots.get(one.root, one)) for name, one in self.sizes))

    def variable(self, root: str) -> Size:
        return next(one for _, one in self.sizes if one.root == root)

    def wide_enough(self, sizes: Mapping[str, int], fixed: Collection[str]) -> Form:
        """With room for sizes above the usual bounds; those in `fixed` stay."""
        high: dict[str, int] = {}
        for name, one in self.sizes:
            if one.root and name not in fixed:
                needed = -(-sizes[name] // one.factor)
                wide = one.high if needed <= one.high else 1 << (needed - 1).bit_length()
                high[one.root] = max(high.get(one.root, 0), wide)
        return Form(
            tuple(
                (name, one._replace(high=high.get(one.root, one.high))) for name, one in self.sizes
            )
        )

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {one.low}..{one.high}" if name == one.root and one.factor == 1
            else f"{name} = {one}"
            for name, one in self.sizes
        )  # fmt: skip
