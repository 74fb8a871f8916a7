"""A plan as bytes that are read back in place: for programs on disk, where every start reads it.

Its JSON text is for people and other programs; this is the same, as columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from arenite import saved_json
from arenite.errors import InvalidPlan
from arenite.memory.columns import NO_ROW, NUMBERS, SlotColumns
from arenite.memory.flat import flattened, unflattened
from arenite.memory.plan import OBJECTIVES, MemoryPlan, Price, Region, Tick
from arenite.memory.values import MAX_NUMBER, REGIONS, ValueId

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ABOUT = (
    *("peak_tick", "capacity", "method", "work", "seconds", "objective", "reuse_edges"),
    "shadow_nbytes",
)


def plan_to_bytes(plan: MemoryPlan) -> bytes:
    columns = SlotColumns.of(plan.slots)
    data = {
        "about": [getattr(plan, name) for name in _ABOUT],
        "instead": None if plan.instead is None else list(plan.instead),
        "regions": [list(region) for region in plan.regions.values()],
        "ids": list(columns.ids),
    }
    arrays = {name: getattr(columns, name) for name in ("region", "pinned", *NUMBERS)}
    if plan.details:
        texts = saved_json.dumps([plan.details.get(one, "") for one in columns.ids])
        arrays["details"] = np.frombuffer(texts.encode(), np.uint8)
    if plan.ticks:
        texts = saved_json.dumps([_tick_to_rows(tick, columns.rows) for tick in plan.ticks])
        arrays["ticks"] = np.frombuffer(texts.encode(), np.uint8)
    return flattened(data, arrays)


class _Details(Mapping[ValueId, str]):
    """What is known of values, read when someone asks: a start does not."""

    def __init__(self, ids: Sequence[ValueId], content: NDArray[Any]) -> None:
        self.ids = ids
        self.content = content

    @cached_property
    def _texts(self) -> dict[ValueId, str]:
        try:
            texts = saved_json.loads(self.content.tobytes())
            pairs = zip(self.ids, texts, strict=True)
            return {one: str(text) for one, text in pairs if text}
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidPlan(f"details of a saved plan that cannot be read: {error!r}") from None

    def __getitem__(self, value_id: ValueId) -> str:
        return self._texts[value_id]

    def __iter__(self) -> Iterator[ValueId]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def _tick_to_rows(tick: Tick, rows: Mapping[ValueId, int]) -> list[Any]:
    """A tick whose values are rows."""
    reads, writes = ([rows[one] for one in some] for some in (tick.reads, tick.writes))
    return [tick.name, reads, writes, tick.origin, tick.at_load]


class _Ticks(Sequence[Tick]):
    """What runs at each tick, read when someone asks: a start does not."""

    def __init__(self, ids: Sequence[ValueId], content: NDArray[Any]) -> None:
        self.ids = ids
        self.content = content

    @cached_property
    def _ticks(self) -> list[Tick]:
        try:
            return [
                Tick(str(name), self._named(reads), self._named(writes), str(origin), bool(at_load))
                for name, reads, writes, origin, at_load in saved_json.loads(self.content.tobytes())
            ]
        except (IndexError, TypeError, ValueError, RecursionError) as error:
            raise InvalidPlan(f"ticks of a saved plan that cannot be read: {error!r}") from None

    def _named(self, rows: list[int]) -> tuple[ValueId, ...]:
        return tuple(self.ids[_number(row)] for row in rows)

    @overload
    def __getitem__(self, at: int) -> Tick: ...
    @overload
    def __getitem__(self, at: slice) -> list[Tick]: ...
    def __getitem__(self, at: int | slice) -> Tick | list[Tick]:
        return self._ticks[at]

    def __len__(self) -> int:
        return len(self._ticks)


def plan_from_bytes(content: memoryview) -> MemoryPlan:
    """The plan, of which it was proven before it was saved that no values collide; InvalidPlan
    where a number or a name cannot be one of a plan."""
    try:
        data, arrays = unflattened(content)
        about = dict(zip(_ABOUT, data["about"], strict=True))
        _check_about(about)
        instead = data["instead"]
        details, ticks = arrays.pop("details", None), arrays.pop("ticks", None)
        columns = SlotColumns(data["ids"], **arrays)
        _check(columns)
        regions = {
            name: Region(name, _number(base), _number(nbytes), _number(least), str(device))
            for name, base, nbytes, least, device in data["regions"]
        }
        plan = MemoryPlan(
            slots=columns,
            regions=regions,
            instead=None if instead is None else Price(*map(_number, instead)),
            details={} if details is None else _Details(columns.ids, details),
            ticks=() if ticks is None else _Ticks(columns.ids, ticks),
            **about,
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidPlan(f"a saved plan that cannot be read: {error!r}") from None
    if not set(regions) <= set(REGIONS) or plan.objective not in OBJECTIVES:
        raise InvalidPlan(f"a saved plan of regions {list(regions)}, made for {plan.objective!r}")
    return plan


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"{value!r} is no number of a plan")
    return value


def _check_about(about: dict[str, Any]) -> None:
    for name in ("peak_tick", "work", "reuse_edges", "shadow_nbytes"):
        _number(about[name])
    if about["capacity"] is not None:
        _number(about["capacity"])
    if not isinstance(about["method"], str):
        raise ValueError(f"method {about['method']!r} is no text")
    seconds = about["seconds"]
    if type(seconds) is not float or not 0 <= seconds <= MAX_NUMBER:
        raise ValueError(f"{seconds!r} is no number of seconds")


def _check(columns: SlotColumns) -> None:
    n = len(columns.ids)
    if len(columns.rows) != n or not all(type(one) in (int, str) for one in columns.ids):
        raise ValueError("a value is named twice, or by no name")
    if any(len(getattr(columns, name)) != n for name in ("region", "pinned", *NUMBERS)):
        raise ValueError(f"not every column has {n} rows")
    if columns.region.dtype != np.uint8 or columns.pinned.dtype != np.bool_:
        raise ValueError(f"regions are {columns.region.dtype}, pins {columns.pinned.dtype}")
    for name in NUMBERS:
        column, is_row = getattr(columns, name), name in ("alias_of", "took_over")
        if column.dtype != np.int64:
            raise ValueError(f"column {name} is {column.dtype}")
        low, high = (NO_ROW, n - 1) if is_row else (int(name == "alignment"), MAX_NUMBER)
        if n and not (low <= int(column.min()) and int(column.max()) <= high):
            raise ValueError(f"column {name} has a number below {low} or above {high}")
    if bool((columns.region >= len(REGIONS)).any()) or bool((columns.start > columns.end).any()):
        raise ValueError("a slot is in no region, or ends before it begins")
    owners = np.where(columns.alias_of == NO_ROW, np.arange(n), columns.alias_of)
    for _ in range(n.bit_length()):  # aliases of aliases
        owners = owners[owners]
    if bool((columns.alias_of[owners] != NO_ROW).any()):
        raise ValueError("a value is an alias of itself, through others")
