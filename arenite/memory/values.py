"""What the planner places: values with a size, a lifetime and a region.

Ticks are non-negative whole numbers; a lifetime is half-open, so a value written by the launch at
tick 3 and last read by the launch at tick 5 lives over [3, 6). Sizes and offsets are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from arenite.device.allocator import as_integer
from arenite.errors import InvalidArgument
from arenite.records import NamedTuple

#: What a value is called: a number or a name, unique in its plan.
ValueId = int | str

#: Regions that lie in the arena, in the order they are stacked there.
ARENA_REGIONS = ("packed", "state", "work")
#: Regions with an address space of their own: weights in a mapped file, memory of the caller,
#: weights that are read once, at load, whose pages are given back then, and what a device takes
#: beside all values.
OUTSIDE_REGIONS = ("mapped", "io", "source", "device")
#: What is in memory while a program runs.
RESIDENT_REGIONS = (*ARENA_REGIONS, "mapped", "io", "device")
REGIONS = ARENA_REGIONS + OUTSIDE_REGIONS

#: The largest tick, size, offset and sum of sizes: a few of them add up within 64 signed bits.
MAX_NUMBER = 2**60


class _Span(NamedTuple):
    start: int
    end: int


class Lifetime(_Span):
    """The ticks [start, end) in which a value must keep its bytes."""

    __slots__ = ()

    def __new__(cls, start: int, end: int) -> Self:
        if type(start) is not int or type(end) is not int:
            start, end = as_integer("a tick", start), as_integer("a tick", end)
        if not 0 <= start <= end <= MAX_NUMBER:
            raise InvalidArgument(
                f"lifetime [{start}, {end}) is not a span of ticks: it must have "
                f"0 <= start <= end <= {MAX_NUMBER}"
            )
        return super().__new__(cls, start, end)

    def overlaps(self, other: Lifetime) -> bool:
        """Whether some tick lies in both; an empty lifetime overlaps nothing."""
        return max(self.start, other.start) < min(self.end, other.end)


class Alias(NamedTuple):
    """Bytes inside another value: `nbytes` of it from `offset` on."""

    of: ValueId
    offset: int = 0


class Value(NamedTuple):
    """One thing that needs bytes.

    `pin` fixes the offset within the region. `alias` makes it a view that takes no bytes of its
    own and keeps its owner alive. `takes_over` names values whose bytes it may take in place: such
    a value dies at the very tick this one is born (its last live tick is this one's first).
    """

    id: ValueId
    nbytes: int
    lifetime: Lifetime
    alignment: int = 64
    region: str = "work"
    pin: int | None = None
    alias: Alias | None = None
    takes_over: tuple[ValueId, ...] = ()

    @property
    def padded_nbytes(self) -> int:
        """The size rounded up to the alignment: what the value takes in its region."""
        return align_up(self.nbytes, self.alignment)


def align_up(number: int, alignment: int) -> int:
    return -(-number // alignment) * alignment


def check_values(values: Iterable[Value]) -> dict[ValueId, Value]:
    """The values by id, or InvalidArgument naming the first one that makes no sense."""
    by_id: dict[ValueId, Value] = {}
    for value in values:
        if not isinstance(value, Value):
            raise InvalidArgument(f"{value!r} is no Value")
        if type(value.id) not in (int, str):
            raise InvalidArgument(f"a value is called by a whole number or text, not {value.id!r}")
        if value.id in by_id:
            raise InvalidArgument(f"two values are called {value.id!r}; ids must be distinct")
        by_id[value.id] = value
    total_nbytes = 0
    for value in by_id.values():
        _check(value, by_id)
        total_nbytes += value.padded_nbytes
    if total_nbytes > MAX_NUMBER:
        raise InvalidArgument(f"all values together take {total_nbytes} bytes, over {MAX_NUMBER}")
    return by_id


def _check(value: Value, by_id: dict[ValueId, Value]) -> None:
    def wrong(reason: str) -> InvalidArgument:
        return InvalidArgument(f"value {value.id!r}: {reason}")

    if not isinstance(value.lifetime, Lifetime):
        raise wrong(f"its lifetime {value.lifetime!r} is no Lifetime")
    if not isinstance(value.alias, Alias | None):
        raise wrong(f"its alias {value.alias!r} is no Alias")
    if not isinstance(value.takes_over, tuple | list):
        raise wrong(f"the values it may take over are a tuple of ids, not {value.takes_over!r}")
    inside = 0 if value.alias is None else value.alias.offset
    for number in (value.nbytes, value.alignment, value.pin or 0, inside):
        # A whole number of another type would not be saved as one.
        if type(number) is not int:
            raise wrong(f"{number!r} among its sizes and offsets is not an int")
    if not 0 <= value.nbytes <= MAX_NUMBER:
        raise wrong(f"its size of {value.nbytes} bytes is not within 0..{MAX_NUMBER}")
    alignment = value.alignment
    if not (0 < alignment <= 2**30 and alignment & (alignment - 1) == 0):
        raise wrong(f"its alignment {alignment} is not a power of two up to {2**30}")
    if value.region not in REGIONS:
        raise wrong(f"region {value.region!r} is none of {', '.join(REGIONS)}")
    if value.alias is not None:
        _check_alias(value, value.alias, by_id)
    if value.pin is not None:
        if not 0 <= value.pin <= MAX_NUMBER:
            raise wrong(f"its pin {value.pin} is not an offset within 0..{MAX_NUMBER}")
        if value.pin % alignment:
            raise wrong(f"its pin {value.pin} is not a multiple of its alignment {alignment}")
    for other_id in value.takes_over:
        if other_id == value.id or other_id not in by_id:
            raise wrong(f"it may take over {other_id!r}, which is not another value")
        if by_id[other_id].region != value.region:
            raise wrong(
                f"it may take over {other_id!r}, which lies in region "
                f"{by_id[other_id].region!r}, not in {value.region!r}"
            )


def _check_alias(value: Value, alias: Alias, by_id: dict[ValueId, Value]) -> None:
    owner = by_id.get(alias.of)
    if owner is None or owner is value:
        raise InvalidArgument(f"value {value.id!r} is an alias of {alias.of!r}, not another value")
    if not 0 <= alias.offset <= owner.nbytes - value.nbytes:
        raise InvalidArgument(
            f"value {value.id!r} is an alias of bytes [{alias.offset}, "
            f"{alias.offset + value.nbytes}) of {owner.id!r}, which has {owner.nbytes} bytes"
        )
    if value.region != owner.region or value.pin is not None or value.takes_over:
        raise InvalidArgument(
            f"value {value.id!r} is an alias of {owner.id!r}: it has its owner's region, and "
            "neither a pin nor values to take over"
        )
