"""Tuning: what `tune` has tried, kernel by kernel, and what it has chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from statistics import geometric_mean

from arenite.memory.html import html_table
from arenite.memory.tables import aligned


@dataclass(frozen=True, slots=True)
class KernelTuning:
    """One way to cut one kernel; seconds are those of one launch, one for each condition that
    makes a difference to the kernel."""

    kernel: str
    n_uses: int  # launches in the program that do the same
    choice: str
    seconds: tuple[float, ...]
    limit_share: float  # of what a core can do, under the first condition
    bound: str  # of which limit: as in a profile
    is_usual: bool
    is_chosen: bool
    is_same: bool  # gives the bits that the usual way gives; what does not is never chosen

    @property
    def note(self) -> str:
        words = {"usual": self.is_usual, "chosen": self.is_chosen, "other bits": not self.is_same}
        return ", ".join(word for word, holds in words.items() if holds)

    @property
    def share(self) -> str:
        return f"{self.limit_share:.0%} {self.bound}"

    def micros(self, n_conditions: int) -> list[str]:
        """The times as people read them, one for each condition or nothing."""
        times = [_micros(seconds) for seconds in self.seconds]
        return times + [""] * (n_conditions - len(times))


@dataclass(frozen=True)
class Tuning:
    """The table. `choices` are those that differ from the usual, by content of the kernel."""

    tried: tuple[KernelTuning, ...]
    choices: Mapping[str, str]
    conditions: tuple[str, ...]  # the first is always on one thread
    n_left_out: int  # kernels that there was no time for
    spent_seconds: float

    @property
    def speedups(self) -> dict[str, float]:
        """For each kernel the usual time over that of its choice, all conditions alike."""
        usual = {one.kernel: one for one in self.tried if one.is_usual}
        return {
            one.kernel: geometric_mean(usual[one.kernel].seconds) / geometric_mean(one.seconds)
            for one in self.tried
            if one.is_chosen
        }

    def _rows(self) -> list[list[str]]:
        head = ["kernel", "uses", "choice", *(f"µs, {name}" for name in self.conditions)]
        rows = [[*head, "of limit", ""]]
        for one in self.tried:
            times = one.micros(len(self.conditions))
            rows.append([one.kernel, str(one.n_uses), one.choice, *times, one.share, one.note])
        return rows

    def __str__(self) -> str:
        if not self.tried and not self.n_left_out:
            return "no kernel here can be cut in several ways: there is nothing to tune"
        kernels = len({one.kernel for one in self.tried})
        left = f"; there was no time for {self.n_left_out} more" if self.n_left_out else ""
        return (
            aligned(self._rows(), {1, *range(3, 4 + len(self.conditions))})
            + f"\n\nkernels tried: {kernels}, in {self.spent_seconds:.1f} s{left}; "
            f"cut in another way now: {len(self.choices)}"
        )

    def _repr_html_(self) -> str:
        return html_table(self._rows())

    def fields(self) -> dict[str, object]:
        """Everything, as plain data."""
        return {
            "conditions": list(self.conditions),
            "spent_seconds": self.spent_seconds,
            "left_out": self.n_left_out,
            "tried": [asdict(one) for one in self.tried],
            "speedups": self.speedups,
            "choices": dict(self.choices),
        }

    def to_json(self) -> str:
        return json.dumps(self.fields())


def _micros(seconds: float) -> str:
    micros = seconds * 1e6
    return f"{micros:.1f}" if micros >= 10 else f"{micros:.3f}"


def joined(by_segment: Mapping[int, Tuning]) -> Tuning:
    """One table of those of segments of a program, by their numbers."""
    tried = [
        replace(one, kernel=f"segment {number} {one.kernel}")
        for number, tuning in by_segment.items()
        for one in tuning.tried
    ]
    tunings = by_segment.values()
    columns = zip_longest(*(tuning.conditions for tuning in tunings))
    conditions = [" or ".join(dict.fromkeys(filter(None, names))) for names in columns]
    return Tuning(
        tuple(tried),
        {content: choice for tuning in tunings for content, choice in tuning.choices.items()},
        tuple(conditions),
        sum(tuning.n_left_out for tuning in tunings),
        sum(tuning.spent_seconds for tuning in tunings),
    )
