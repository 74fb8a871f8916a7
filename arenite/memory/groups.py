"""Values by name, for pictures: which belong to one layer, and which are the same in each.

blk.0.attn_q.weight   layer blk.0    kind blk.attn_q.weight
blk.1.attn_q.weight   layer blk.1    kind blk.attn_q.weight
matmul_5.0                           kind matmul
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from arenite.memory.plan import Slot

#: A name up to the first of its parts that is a number: blk.12 of blk.12.ffn_up.weight.
_LAYER = re.compile(r"(?:.*?[./: ])?[0-9]+(?=[./: ])")
_NUMBER = re.compile(r"[._]?[0-9]+")
#: What a value is called that the planner's user gave a number or no letters.
_NAMELESS = "values"


@dataclass(frozen=True, slots=True)
class Group:
    """Values of one layer, or one value that is of none."""

    name: str
    slots: list[Slot]

    @property
    def nbytes(self) -> int:
        return sum(slot.capacity for slot in self.slots)


@dataclass(frozen=True, slots=True)
class Run:
    """Groups whose names differ in numbers alone: the layers of a model."""

    groups: list[Group]

    @property
    def nbytes(self) -> int:
        return sum(group.nbytes for group in self.groups)

    @property
    def label(self) -> str:
        """The first and the last name."""
        names = [group.name for group in self.groups]
        return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"

    def joined(self) -> Group:
        """All of it as one group."""
        return Group(self.label, [slot for layer in self.groups for slot in layer.slots])


def layer_of(name: str) -> str:
    """The layer that a name begins with, or the name itself."""
    found = _LAYER.match(name)
    return found[0] if found is not None else name


def kind_of(name: str) -> str:
    """The name without numbers: the same for the same part of each layer."""
    return _NUMBER.sub("", name).strip(". _") or _NAMELESS


def runs_of(slots: Iterable[Slot], suffix: str = "") -> list[Run]:
    """Slots by layer, and layers by kind, in the order they come; `suffix` is left off names."""
    layers: dict[str, list[Slot]] = {}
    for slot in slots:
        layers.setdefault(layer_of(str(slot.id).removesuffix(suffix)), []).append(slot)
    runs: dict[str, list[Group]] = {}
    for name, members in layers.items():
        runs.setdefault(_NUMBER.sub("*", name), []).append(Group(name, members))
    return [Run(sorted(groups, key=lambda one: _by_numbers(one.name))) for groups in runs.values()]


def few_runs(runs: list[Run], most: int) -> list[Run]:
    """The largest runs, and all others as one of one group."""
    if len(runs) <= most:
        return runs
    large = {id(run) for run in sorted(runs, key=lambda run: -run.nbytes)[: most - 1]}
    others = [slot for run in runs if id(run) not in large for slot in run.joined().slots]
    kept = [run for run in runs if id(run) in large]
    return [*kept, Run([Group(f"{len(others):,} others", others)])]


def kinds_of(slots: Iterable[Slot]) -> dict[str, list[Slot]]:
    """Slots by kind; what takes the most bytes for the longest comes first."""
    kinds: dict[str, list[Slot]] = {}
    for slot in slots:
        kinds.setdefault(kind_of(str(slot.id)), []).append(slot)

    def weight(some: list[Slot]) -> int:
        return sum(slot.capacity * (slot.lifetime.end - slot.lifetime.start) for slot in some)

    return dict(sorted(kinds.items(), key=lambda one: -weight(one[1])))


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """Names in an order in which 2 comes before 10; numbers of any length."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [part.lstrip("0") for part in parts[1::2]]
    texts = [(0, part) for part in parts[::2]]
    return [one for pair in zip(texts, map(_sized, [*numbers, ""]), strict=True) for one in pair]


def _sized(digits: str) -> tuple[int, str]:
    return len(digits), digits
