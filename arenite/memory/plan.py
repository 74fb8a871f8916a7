"""MemoryPlan: where every value lives, as plain data that prints and saves.

A plan is made by `memory.plan` and never changed. Values of the packed, state and work regions
have offsets in one arena; those of the mapped and io regions in address spaces of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import Any, cast

from arenite.errors import DoesNotFit, InvalidPlan
from arenite.memory.values import (
    ARENA_REGIONS,
    MAX_NUMBER,
    REGIONS,
    RESIDENT_REGIONS,
    Lifetime,
    ValueId,
)
from arenite.records import NamedTuple

SCHEMA = 3
#: The device whose memory the host has.
HOST = "cpu"
#: What a plan is made for: few bytes, where reuse makes launches wait for one another, or launches
#: side by side, where only data does.
OBJECTIVES = (MEMORY, CONCURRENCY) = ("memory", "concurrency")
#: Regions of the arena start at multiples of this, or of a larger alignment inside.
REGION_ALIGNMENT = 64


class Slot(NamedTuple):
    """The bytes of one value: `capacity` of them from `offset`, of which `nbytes` are used.

    A value that never lives, and whose aliases and owner never do, has none.
    """

    id: ValueId
    region: str
    offset: int  # in the arena for its regions, else in the region's own address space
    nbytes: int
    capacity: int
    alignment: int
    lifetime: Lifetime
    block: int  # values of a region with one block number were placed as one
    pinned: bool = False
    alias_of: ValueId | None = None
    took_over: ValueId | None = None

    @property
    def end(self) -> int:
        """The offset behind the last byte of the slot."""
        return self.offset + self.capacity


class Region(NamedTuple):
    """One stretch of a plan: [base, base + nbytes) of the arena, or an address space of its own."""

    name: str
    base: int
    nbytes: int
    lower_bound: int  # the largest sum of live bytes, each block padded to its alignment
    device: str = HOST  # whose memory it is

    @property
    def in_arena(self) -> bool:
        """Whether it lies in the arena."""
        return self.name in ARENA_REGIONS


class Tick(NamedTuple):
    """What happens at one tick of the schedule, for people."""

    name: str  # of the kernel, or of the step
    reads: tuple[ValueId, ...]
    writes: tuple[ValueId, ...]  # scratch among them
    origin: str = ""  # the place in a model or a source that it comes from
    at_load: bool = False  # once, before the first run


class Price(NamedTuple):
    """What a plan takes: bytes of its arena, and launches that wait because of reuse alone."""

    peak_nbytes: int
    reuse_edges: int


class MemoryPlan(NamedTuple):
    """Every value's slot, the regions, and how the plan came about."""

    slots: Mapping[ValueId, Slot]
    regions: Mapping[str, Region]
    peak_tick: int  # when the most arena bytes are live
    capacity: int | None = None
    method: str = ""  # what placed the work region
    work: int = 0  # neighbours looked at while placing
    seconds: float = 0.0
    objective: str = MEMORY
    reuse_edges: int = 0  # pairs of launches that only the sharing of bytes orders
    instead: Price | None = None  # of the plan for memory, where this is not it
    #: Of a buffer beside the arena that has its 32-bit floats in half precision; 0: there is none.
    shadow_nbytes: int = 0
    #: What else is known of values, for people: dtype and shape, where they come from.
    details: Mapping[ValueId, str] = MappingProxyType({})
    #: What runs at each tick, from tick 0 on, where a schedule is known.
    ticks: Sequence[Tick] = ()

    def __eq__(self, other: object) -> bool:
        """Neither how long it took to make nor what is for people makes another plan of it."""
        if not isinstance(other, MemoryPlan):
            return NotImplemented
        mine, its = (one._replace(seconds=0.0, details={}, ticks=()) for one in (self, other))
        return tuple(mine) == tuple(its)

    def __ne__(self, other: object) -> bool:
        return not self == other

    @property
    def peak_nbytes(self) -> int:
        """Bytes of the arena."""
        return max((r.base + r.nbytes for r in self.regions.values() if r.in_arena), default=0)

    @property
    def total_nbytes(self) -> int:
        """Bytes of the arena and its shadow, and of what is in memory outside of them while the
        program runs: mapped weights read in place, inputs and outputs."""
        outside = (r for r in self.regions.values() if not r.in_arena)
        resident = (r.nbytes for r in outside if r.name in RESIDENT_REGIONS)
        return self.peak_nbytes + self.shadow_nbytes + sum(resident)

    @property
    def nbytes_by_device(self) -> dict[str, int]:
        """`total_nbytes`, counted apart for the memory of each device."""
        found: dict[str, int] = {}
        for region in self.regions.values():
            if region.in_arena or region.name in RESIDENT_REGIONS:
                found.setdefault(region.device, 0)
                found[region.device] += 0 if region.in_arena else region.nbytes
        for region in self.regions.values():
            if region.in_arena:  # all of the arena is on one device
                found[region.device] += self.peak_nbytes + self.shadow_nbytes
                break
        return found

    @property
    def lower_bound(self) -> int:
        """Bytes that no arena for these values can go below, its regions being stacked."""
        return sum(r.lower_bound for r in self.regions.values() if r.in_arena)

    @property
    def ratio(self) -> float:
        """Bytes of the arena over the lower bound; 1 is as small as can be."""
        return self.peak_nbytes / self.lower_bound if self.lower_bound else 1.0

    @property
    def reused_nbytes(self) -> int:
        """What the arena saves: bytes of all its blocks, each counted once, above the peak."""
        blocks: dict[tuple[str, int], int] = {}
        for slot in self.slots.values():
            if slot.region in ARENA_REGIONS and slot.alias_of is None:
                key = (slot.region, slot.block)
                blocks[key] = max(blocks.get(key, 0), slot.capacity)
        return sum(blocks.values()) - self.peak_nbytes

    def with_shadow(self) -> MemoryPlan:
        """The same plan with a half-precision shadow of the arena, which takes half of its bytes:
        what `Arena.write_f32` writes at an offset is there as float16 at half of that offset. A
        device without float16 in its kernels makes none."""
        shadow_nbytes = -(-self.peak_nbytes // 2)
        if self.capacity is not None and self.peak_nbytes + shadow_nbytes > self.capacity:
            raise DoesNotFit(
                f"the arena takes {self.peak_nbytes} bytes and its half-precision shadow "
                f"{shadow_nbytes} more; there may be {self.capacity}. Leave the shadow out",
                capacity=self.capacity,
                lower_bound=self.lower_bound + -(-self.lower_bound // 2),
                smallest_known=self.peak_nbytes + shadow_nbytes,
                peak_tick=self.peak_tick,
                live=(),
            )
        return self._replace(shadow_nbytes=shadow_nbytes)

    def with_more(self, region: str, nbytes: Mapping[str, int], device: str) -> MemoryPlan:
        """The same plan with more in a region outside of the arena, by what for, as long as the
        program is there."""
        if not nbytes:
            return self
        end = max((slot.lifetime.end for slot in self.slots.values()), default=1)
        before = self.regions.get(region, Region(region, 0, 0, 0, device))
        slots, at = dict(self.slots), before.nbytes
        for name, size in nbytes.items():
            slots[name] = Slot(name, region, at, size, size, 1, Lifetime(0, end), len(slots))
            at += size
        more = at - before.nbytes
        after = before._replace(nbytes=at, lower_bound=before.lower_bound + more)
        return self._replace(slots=slots, regions={**self.regions, region: after})

    def live_at(self, tick: int) -> list[Slot]:
        """Slots whose bytes are in use at a tick, the largest first. An alias is not among them: it
        keeps its owner's bytes in use, from the first tick that one of them lives to the last."""
        spans: dict[ValueId, tuple[int, int]] = {}
        for slot in self.slots.values():
            if slot.lifetime.start < slot.lifetime.end:
                owner = slot
                while owner.alias_of is not None:
                    owner = self.slots[owner.alias_of]
                start, end = spans.get(owner.id, slot.lifetime)
                spans[owner.id] = min(start, slot.lifetime.start), max(end, slot.lifetime.end)
        live = [self.slots[k] for k, (start, end) in spans.items() if start <= tick < end]
        return sorted(live, key=lambda slot: (-slot.capacity, str(slot.id)))

    def verify(self) -> None:
        """Run the validator, which shares no code with the planner; InvalidPlan if it objects."""
        from arenite.memory.validator import validate

        validate(self)

    def to_json(self) -> str:
        """The whole plan as JSON text with a schema number; `from_json` reads it back."""
        import json

        data = {
            "schema": SCHEMA,
            "kind": "arenite.MemoryPlan",
            "peak_nbytes": self.peak_nbytes,
            "total_nbytes": self.total_nbytes,
            "lower_bound": self.lower_bound,
            "peak_tick": self.peak_tick,
            "capacity": self.capacity,
            "method": self.method,
            "work": self.work,
            "seconds": self.seconds,
            "objective": self.objective,
            "reuse_edges": self.reuse_edges,
            "instead": None if self.instead is None else self.instead._asdict(),
            "shadow_nbytes": self.shadow_nbytes,
            "regions": [region._asdict() for region in self.regions.values()],
            "slots": [_slot_to_json(s, self.details.get(s.id)) for s in self.slots.values()],
            "ticks": [tick._asdict() for tick in self.ticks],
        }
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str, *, is_proven: bool = False) -> MemoryPlan:
        """Read a saved plan; whatever is missing, wrongly typed or unsound raises InvalidPlan. Of
        one that was proven before it was saved it is not proven again that no values collide."""
        import json

        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidPlan(f"saved plan is not JSON: {error}") from None
        top = _Fields(data, "saved plan")
        if top.number("schema") != SCHEMA:
            raise InvalidPlan(f"saved plan has schema {data['schema']}, not {SCHEMA}")
        regions = [_region(_Fields(r, f"region {k}")) for k, r in enumerate(top.items("regions"))]
        rows = [_Fields(s, f"slot {k}") for k, s in enumerate(top.items("slots"))]
        slots = [_slot(row) for row in rows]
        plan = cls(
            slots={slot.id: slot for slot in slots},
            regions={region.name: region for region in regions},
            peak_tick=top.number("peak_tick"),
            capacity=top.number("capacity", optional=True),
            method=top.text("method"),
            work=top.number("work"),
            seconds=top.seconds("seconds"),
            objective=top.choice("objective", OBJECTIVES),
            reuse_edges=top.number("reuse_edges"),
            instead=_price(data.get("instead")),
            shadow_nbytes=top.number("shadow_nbytes", optional=True) or 0,
            details={
                s.id: r.text("detail")
                for s, r in zip(slots, rows, strict=True)
                if "detail" in r.data
            },
            ticks=[_tick(_Fields(t, f"tick {k}")) for k, t in enumerate(top.items("ticks", []))],
        )
        if len(plan.slots) != len(slots) or len(plan.regions) != len(regions):
            raise InvalidPlan("saved plan names a value or a region twice")
        for k, tick in enumerate(plan.ticks):
            for value_id in (*tick.reads, *tick.writes):
                if value_id not in plan.slots:
                    raise InvalidPlan(f"tick {k} of a saved plan names no value: {value_id!r}")
        if not is_proven:
            plan.verify()
        return plan

    def to_svg(self) -> str:
        """A drawing: time across, bytes up, one box a value."""
        from arenite.memory.svg import draw

        return draw(self)

    def to_html(self, title: str = "") -> str:
        """A page of its own: the memory map over time, to step through, search and zoom."""
        from arenite.memory.page import plan_page

        return plan_page(self, title)

    def save_html(self, path: str | PathLike[str], title: str = "") -> None:
        """Write the page of `to_html` to a file; it needs nothing else to be looked at."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_html(title))

    def table(self, limit: int = 20) -> str:
        """The summary, then the largest slots, as aligned text."""
        from arenite.memory.tables import plan_table

        return plan_table(self, limit)

    def _repr_html_(self) -> str:
        from arenite.memory.tables import plan_html

        return plan_html(self, 20)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return (
            f"<MemoryPlan of {len(self.slots)} values: {self.peak_nbytes} bytes, "
            f"{self.ratio:.3f} of the lower bound>"
        )


def _slot_to_json(slot: Slot, detail: str | None) -> dict[str, Any]:
    data = slot._asdict()
    data["lifetime"] = [slot.lifetime.start, slot.lifetime.end]
    return data if detail is None else {**data, "detail": detail}


class _Fields:
    """Checked access to the fields of one JSON object from a file of unknown origin."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise InvalidPlan(f"{where} is not a JSON object")
        self.data: dict[str, Any] = data
        self.where = where

    def wrong(self, name: str, wanted: str) -> InvalidPlan:
        return InvalidPlan(f"{self.where}: field {name!r} must be {wanted}")

    def _is_number(self, value: Any) -> bool:
        return type(value) is int and 0 <= value <= MAX_NUMBER

    def number(self, name: str, optional: bool = False) -> Any:
        value = self.data.get(name)
        if (value is None and optional) or self._is_number(value):
            return value
        raise self.wrong(name, f"a whole number from 0 to {MAX_NUMBER}")

    def seconds(self, name: str) -> float:
        value = self.data.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and 0 <= cast(float, value) <= MAX_NUMBER:
            return float(cast(float, value))
        raise self.wrong(name, f"a number from 0 to {MAX_NUMBER}")

    def text(self, name: str) -> str:
        value = self.data.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "text")
        return value

    def flag(self, name: str) -> bool:
        value = self.data.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def items(self, name: str, default: list[Any] | None = None) -> list[Any]:
        value = self.data.get(name, default)
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def value_id(self, name: str, optional: bool = False) -> Any:
        value = self.data.get(name)
        if (value is None and optional) or type(value) in (int, str):
            return value
        raise self.wrong(name, "a value's id: a whole number or text")

    def choice(self, name: str, among: tuple[str, ...]) -> str:
        if self.data.get(name) not in among:
            raise self.wrong(name, f"one of {', '.join(among)}")
        return str(self.data[name])

    def lifetime(self, name: str) -> Lifetime:
        value = self.data.get(name)
        if not (isinstance(value, list) and len(value) == 2 and all(map(self._is_number, value))):
            raise self.wrong(name, "[start, end]")
        if value[0] > value[1]:
            raise self.wrong(name, "[start, end] with start <= end")
        return Lifetime(*value)


def _price(data: Any) -> Price | None:
    if data is None:
        return None
    fields = _Fields(data, "what the plan for memory takes")
    return Price(fields.number("peak_nbytes"), fields.number("reuse_edges"))


def _region(fields: _Fields) -> Region:
    return Region(
        fields.choice("name", REGIONS),
        fields.number("base"),
        fields.number("nbytes"),
        fields.number("lower_bound"),
        fields.text("device"),
    )


def _tick(fields: _Fields) -> Tick:
    for name in ("reads", "writes"):
        if not all(type(one) in (int, str) for one in fields.items(name)):
            raise fields.wrong(name, "a list of values' ids")
    return Tick(
        fields.text("name"),
        tuple(fields.items("reads")),
        tuple(fields.items("writes")),
        fields.text("origin"),
        fields.flag("at_load"),
    )


def _slot(fields: _Fields) -> Slot:
    return Slot(
        fields.value_id("id"),
        fields.choice("region", REGIONS),
        fields.number("offset"),
        fields.number("nbytes"),
        fields.number("capacity"),
        fields.number("alignment"),
        fields.lifetime("lifetime"),
        fields.number("block"),
        fields.flag("pinned"),
        fields.value_id("alias_of", optional=True),
        fields.value_id("took_over", optional=True),
    )
