"""Frame: what a start and a bind need of a program, as columns by number of the value.

It follows from launches, steps, values and plan; a file has it beside them, so that these become
objects only when someone looks at them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.ir.dim import Dim, Found, found_in, variables
from arenite.memory import ValueId
from arenite.memory.columns import SlotColumns
from arenite.memory.flat import Arrays
from arenite.memory.plan import CONCURRENCY, MemoryPlan
from arenite.memory.values import ARENA_REGIONS
from arenite.memory.values import REGIONS as PLAN_REGIONS
from arenite.program.assemble import Assembly
from arenite.program.places import NOWHERE, Numbers, Resizer
from arenite.program.record_json import dim_from_json, dim_to_json
from arenite.program.skeleton import Skeleton
from arenite.program.steps import Step, StepKind
from arenite.program.waits import (
    MAX_KEPT,
    WaitBook,
    Waits,
    found_waits,
    moving_values,
    waits_from_arrays,
    waits_to_arrays,
)
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.memory.replay import Below
    from arenite.program.compiled import Compiled

#: Where values of each kind are; but for those of `work` they live as long as the program.
REGIONS = {
    "constant": "mapped",
    "input": "io",
    "output": "io",
    "packed": "packed",
    "state": "state",
    "work": "work",
}
KINDS = (*REGIONS, "pointer")
_OUTSIDE = ("constant", "input", "output")

NOTHING_MOVES: Numbers = np.zeros((0, 0), np.int64)
#: Bytes of constants that are read at load before their pages are given back.
PART_NBYTES = 4 * 2**20
#: For how many sizes waits are looked for before a program is saved, and how many sets are saved.
MAX_SAMPLES = 40
MAX_SAVED = 8


class Frame(NamedTuple):
    """Columns are by number of the value unless something else is said."""

    kinds: NDArray[np.uint8]  # which of KINDS
    sources: Numbers  # as in ValueSpec
    rows: Numbers  # its row in the plan; NOWHERE: it is a pointer
    nbytes_of: Numbers  # which of `dims` its bytes are; NOWHERE: as the plan has it
    dims: tuple[Dim, ...]
    skeleton: Skeleton
    moving: Numbers  # a row a block: values whose bytes differ from bind to bind
    known: tuple[Waits, ...]
    below: Below | None  # who stands on whom in the work region
    load: Skeleton  # of the load step, with a segment behind each part
    load_known: tuple[Waits, ...]
    load_order: Numbers  # the launches of the load step, as the program counts them
    part_of: Numbers  # the part that gives a constant's pages back,
    given_back: Numbers  # and the constant

    def numbers(self, *kinds: str) -> list[int]:
        """The values of these kinds."""
        return np.flatnonzero(_is_one_of(*kinds)[self.kinds]).tolist()

    @property
    def io(self) -> Numbers:
        """Which of the io addresses a value has; NOWHERE: none."""
        is_outside = _is_one_of(*_OUTSIDE)[self.kinds]
        return np.where(is_outside, np.cumsum(is_outside) - 1, NOWHERE)

    @property
    def in_arena(self) -> NDArray[np.bool_]:
        return _is_one_of(*ARENA_REGIONS)[self.kinds]

    def wait_book(self, max_kept: int = MAX_KEPT) -> WaitBook:
        return WaitBook(self.skeleton, self.moving, self.known, max_kept)

    def load_wait_book(self) -> WaitBook:
        return WaitBook(self.load, NOTHING_MOVES, self.load_known)

    @classmethod
    def of(cls, compiled: Compiled) -> Frame:
        from arenite.program.launch_hazards import data_hazards, pointed_to
        from arenite.program.layout import Layout

        values = compiled.values
        columns = SlotColumns.of(compiled.plan.slots)
        dims: dict[Dim, int] = {}
        nbytes_of = [
            NOWHERE
            if value.kind == "pointer" or found_in(value.nbytes)
            else dims.setdefault(value.nbytes, len(dims))
            for value in values
        ]
        outside = [k for k, value in enumerate(values) if value.kind in _OUTSIDE]
        io: dict[ValueId, int] = {number: k for k, number in enumerate(outside)}
        pointers = compiled.pointers
        skeleton = Layout(
            compiled.launches, io, compiled.steps, compiled.cells, pointers, compiled.late
        ).skeleton()
        targets = {value: pointer.targets for value, pointer in pointers.items()}
        known: tuple[Waits, ...] = ()
        if compiled.plan.objective == CONCURRENCY:
            # Data alone is waited for, wherever values lie.
            known = (found_waits(skeleton, data_hazards(compiled.launches, targets)),)
            moving = NOTHING_MOVES
        else:
            # Packed values and states keep their bytes, and so does what lies outside.
            moving = moving_values(
                skeleton,
                [
                    [int(k) for k in pointed_to(values_of, lambda v: targets.get(v, ()))]
                    for values_of in ((*one.reads, *one.writes) for one in compiled.launches)
                ],
                [value.kind == "work" for value in values],
            )
        rows = [NOWHERE if v.kind == "pointer" else columns.rows[v.name] for v in values]
        parts = _parts(compiled, columns)
        steps: list[Step] = []
        given_back: dict[int, int] = {}  # constants by the last part that reads them
        for number, part in enumerate(parts):
            first = sum(map(len, parts[:number]))
            steps += [Step(StepKind.LAUNCH, first + k) for k in range(len(part))]
            steps.append(Step(StepKind.HOST, number))
            read = {int(one) for k in part for one in compiled.load[k].reads}
            given_back |= {one: number for one in read if values[one].kind == "constant"}
        load_order = [k for part in parts for k in part]
        return cls(
            np.array([KINDS.index(value.kind) for value in values], np.uint8),
            np.array([value.source for value in values], np.int64),
            np.array(rows, np.int64),
            np.array(nbytes_of, np.int64),
            tuple(dims),
            skeleton,
            moving,
            known,
            None,
            Layout([compiled.load[k] for k in load_order], io, steps).skeleton(),
            (),
            np.array(load_order, np.int64),
            np.array(list(given_back.values()), np.int64),
            np.array(list(given_back), np.int64),
        )

    def data(self) -> dict[str, Any]:
        """What is no array, as JSON can have it."""
        return {
            "dims": [dim_to_json(dim) for dim in self.dims],
            "run": self.skeleton.data(),
            "n_blocks": len(self.moving),
            "load": self.load.data(),
            "n_known": len(self.known),
            "n_load_known": len(self.load_known),
            "below": None if self.below is None else [list(some) for some in self.below],
        }

    def arrays(self) -> Arrays:
        return {
            **{name: getattr(self, name) for name in _COLUMNS},
            "moving": self.moving.reshape(-1),
            **self.skeleton.arrays("run."),
            **self.load.arrays("load."),
            **waits_to_arrays(self.known, "waits."),
            **waits_to_arrays(self.load_known, "load_waits."),
        }

    def is_same(self, other: Frame) -> bool:
        """Whether the two differ in no more than what `prepared` finds out."""
        bare, others = (one._replace(known=(), load_known=(), below=None) for one in (self, other))
        mine, theirs = bare.arrays(), others.arrays()
        return bare.data() == others.data() and all(
            array.tobytes() == theirs[name].tobytes() for name, array in mine.items()
        )

    @classmethod
    def saved(cls, data: Mapping[str, Any], arrays: Arrays, plan: MemoryPlan) -> Frame:
        """Read back; ValueError where a number leads out of what there is."""
        columns = {name: arrays[name] for name in _COLUMNS}
        skeleton, n_blocks = Skeleton.saved(data["run"], arrays, "run."), int(data["n_blocks"])
        load = Skeleton.saved(data["load"], arrays, "load.")
        made = cls(
            **columns,
            dims=tuple(map(dim_from_json, data["dims"])),
            skeleton=skeleton,
            moving=arrays["moving"].reshape(n_blocks, len(arrays["moving"]) // max(n_blocks, 1)),
            known=(),
            below=data["below"],
            load=load,
            load_known=(),
        )
        made._check(plan)
        n_pairs = made.moving.size * made.moving.shape[1]
        known = waits_from_arrays(arrays, "waits.", data["n_known"], skeleton, n_pairs)
        load_known = waits_from_arrays(arrays, "load_waits.", data["n_load_known"], load, 0)
        return made._replace(known=tuple(known), load_known=tuple(load_known))

    def _check(self, plan: MemoryPlan) -> None:
        n = len(self.kinds)
        if not n == len(self.sources) == len(self.rows) == len(self.nbytes_of):
            raise ValueError("columns of values differ in length")
        columns = SlotColumns.of(plan.slots)
        for what, numbers, low, limit in (
            ("kind", self.kinds, 0, len(KINDS)),
            ("row", self.rows, NOWHERE, len(columns)),
            ("size", self.nbytes_of, NOWHERE, len(self.dims)),
            ("value", self.skeleton.arena_values, 0, n),
            ("moving value", self.moving.reshape(-1), NOWHERE, n),
            ("value of the load step", self.load.arena_values, 0, n),
            ("launch of the load step", self.load_order, 0, len(self.load.ticks)),
            ("constant", self.given_back, 0, n),
        ):
            if len(numbers) and not (low <= int(numbers.min()) and int(numbers.max()) < limit):
                raise ValueError(f"a {what} is not below {limit}")
        is_placed = self.rows != NOWHERE
        if not bool((is_placed == (self.kinds != KINDS.index("pointer"))).all()):
            raise ValueError("a value has no place, or a pointer has one")
        wanted = np.array([PLAN_REGIONS.index(region) for region in REGIONS.values()], np.uint8)
        region = columns.region[self.rows[is_placed]]
        is_source = (region == PLAN_REGIONS.index("source")) & (
            self.kinds[is_placed] == KINDS.index("constant")
        )
        if not bool(((region == wanted[self.kinds[is_placed]]) | is_source).all()):
            raise ValueError("a value is in another region than its kind")
        behind = columns.offset + columns.capacity
        if bool((columns.region < len(ARENA_REGIONS)).any()) and (
            int(behind[columns.region < len(ARENA_REGIONS)].max()) > plan.peak_nbytes
        ):
            raise ValueError("a value lies behind the end of the arena")
        in_arena = self.in_arena
        for skeleton in (self.skeleton, self.load):
            if not bool(in_arena[skeleton.arena_values].all()):
                raise ValueError("an address in the arena of a value that is not there")
            if int(in_arena.sum()) == n and skeleton.first_cell < 2:
                raise ValueError("no room for addresses")


_COLUMNS = "kinds sources rows nbytes_of load_order part_of given_back".split()


def _is_one_of(*kinds: str) -> NDArray[np.bool_]:
    """By number of the kind."""
    return np.array([kind in kinds for kind in KINDS])


def _parts(compiled: Compiled, columns: SlotColumns) -> list[list[int]]:
    """Numbers of launches that read so much that it pays to give it back before more is read.

    What is read at once is in memory twice, so the largest comes first, while little of the arena
    is filled.
    """
    load, values = compiled.load, compiled.values

    def nbytes_of(number: ValueId) -> int:
        value = values[int(number)]
        return int(columns.nbytes[columns.rows[value.name]]) if value.kind == "constant" else 0

    nbytes = [sum(map(nbytes_of, one.reads)) for one in load]
    is_large = [
        size >= PART_NBYTES and all(values[int(n)].kind == "constant" for n in launch.reads)
        for size, launch in zip(nbytes, load, strict=True)
    ]
    large = sorted((k for k in range(len(load)) if is_large[k]), key=lambda k: -nbytes[k])
    parts: list[list[int]] = [[k] for k in large]
    filled = PART_NBYTES
    for k in range(len(load)):
        if is_large[k]:
            continue
        if filled >= PART_NBYTES:
            parts.append([])
            filled = 0
        parts[-1].append(k)
        filled += nbytes[k]
    return parts


def prepared(compiled: Compiled) -> Frame:
    """The frame with what a bind would find out: who stands on whom, and waits for many sizes."""
    from arenite.memory.replay import Replay

    frame, plan = compiled.frame, compiled.plan
    resizer = Resizer(frame, plan, compiled.pointers)
    places = resizer.places(plan)
    load = Assembly(
        [compiled.load[int(k)] for k in frame.load_order], frame.load, frame.load_wait_book()
    )
    load.table(places)
    book = frame.wait_book(MAX_SAVED)
    run = Assembly(compiled.launches, frame.skeleton, book)
    samples = _samples(frame)
    if not samples:
        run.table(places)
    for sizes in samples:
        if len(book.known) >= MAX_SAVED:
            break
        run.table(resizer.places(resizer.plan_for(sizes)))
    below = Replay(plan).below_of("work") if samples and "work" in plan.regions else None
    return frame._replace(known=tuple(book.known), load_known=tuple(load.waits.known), below=below)


def _samples(frame: Frame) -> list[dict[str, int]]:
    """Values of the variables: the least, the largest, small ones, and some between."""
    dims: Sequence[Dim] = (*frame.dims, *frame.skeleton.dims)
    found = {var for dim in dims for var in variables(dim) if not isinstance(var, Found)}
    some = sorted(found, key=lambda var: var.name)
    if not some:
        return []
    a_var = max(2, int(MAX_SAMPLES ** (1 / len(some))))
    values = []
    for var in some:
        small = range(var.low, min(var.high, var.low + a_var // 2) + 1)
        n_large = max(1, a_var - len(small))
        large = (var.high - (var.high - var.low) * k // n_large for k in range(n_large))
        values.append(list(dict.fromkeys((var.low, var.high, *small, *large))))
    names = [var.name for var in some]
    return [dict(zip(names, one, strict=True)) for one in product(*values)][:MAX_SAMPLES]
