"""Tuning: what `tune` has tried, kernel by kernel, and what it has chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from arenite.memory.html import html_table
from arenite.memory.tables import aligned


@dataclass(frozen=True, slots=True)
class Tried:
    """One way to cut one kernel; seconds are those of one launch."""

    kernel: str
    n_uses: int  # launches in the program that do the same
    choice: str
    seconds: float  # on one thread
    seconds_together: float  # on all of them
    limit_share: float  # of what a core can do, on one thread
    bound: str  # arithmetic or memory
    note: str


@dataclass(frozen=True)
class Tuning:
    """The table. `choices` are those that differ from the usual, by content of the kernel."""

    tried: tuple[Tried, ...]
    choices: Mapping[str, str]
    n_threads: int
    n_left_out: int  # kernels that there was no time for
    seconds: float  # that tuning took

    @property
    def speedups(self) -> dict[str, float]:
        """For each kernel the usual time over that of its choice, both numbers of threads alike."""
        usual, chosen = (
            {one.kernel: one for one in self.tried if word in one.note.split()}
            for word in ("usual", "chosen")
        )
        return {
            name: (
                (usual[name].seconds / one.seconds)
                * (usual[name].seconds_together / one.seconds_together)
            )
            ** 0.5
            for name, one in chosen.items()
        }

    def _rows(self) -> list[list[str]]:
        head = ["kernel", "uses", "choice", "µs, 1 thread", f"µs, {self.n_threads}", "of limit", ""]
        return [head] + [
            [
                one.kernel,
                str(one.n_uses),
                one.choice,
                f"{one.seconds * 1e6:.1f}",
                f"{one.seconds_together * 1e6:.1f}",
                f"{one.limit_share:.0%} {one.bound}",
                one.note,
            ]
            for one in self.tried
        ]

    def __str__(self) -> str:
        n_changed = len(self.choices)
        kernels = len({one.kernel for one in self.tried})
        left = f"; no time for {self.n_left_out} more" if self.n_left_out else ""
        return (
            aligned(self._rows(), {1, 3, 4, 5})
            + f"\n\n{kernels} kernels tried in {self.seconds:.1f} s{left}; {n_changed} of them are "
            "now cut in another way"
        )

    def _repr_html_(self) -> str:
        return html_table(self._rows())

    def to_json(self) -> str:
        return json.dumps(
            {
                "threads": self.n_threads,
                "seconds": self.seconds,
                "left_out": self.n_left_out,
                "tried": [asdict(one) for one in self.tried],
                "speedups": self.speedups,
                "choices": dict(self.choices),
            }
        )
