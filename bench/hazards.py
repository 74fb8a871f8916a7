"""How the cost of ordering and of verifying launches grows with their number.

    python bench/hazards.py

Prints one row for each pattern and size: CPU seconds of `order` and of `verify` (the best of
three), the number of edges, and each time divided by that of the row before, which has half as
many launches. Twice the launches for twice the time is linear.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arenite.hazards import BufferRange, Launch, Order, Role, order, verify

KIB, MIB = 1 << 10, 1 << 20
SIZES = (5_000, 10_000, 20_000)
REPEATS = 3
READ, WRITE = Role.READ, Role.WRITE


def random_ranges(arena_nbytes: int) -> Callable[[int], list[Launch]]:
    """Three reads and one write of 1 to 64 KiB anywhere in an arena."""

    def make(n: int) -> list[Launch]:
        rng = random.Random(n)
        launches = []
        for i in range(n):
            ranges = []
            for role in (READ, READ, READ, WRITE):
                nbytes = rng.randint(1, 64) * KIB
                start = rng.randrange(0, arena_nbytes - nbytes + 1, 64)
                ranges.append(BufferRange(0, start, start + nbytes, role))
            launches.append(Launch(f"kernel{i}", tuple(ranges)))
        return launches

    return make


def graph_like(n: int) -> list[Launch]:
    """Reads what three of the last sixteen launches wrote, writes a slot freed long ago."""
    rng = random.Random(n)
    n_slots, slot_nbytes = 256, 64 * KIB
    written = [BufferRange(0, 0, slot_nbytes, WRITE)]
    launches = []
    for i in range(n):
        start = i % n_slots * slot_nbytes
        write = BufferRange(0, start, start + rng.randint(1, slot_nbytes), WRITE)
        reads = [
            BufferRange(0, source.start, source.end, READ)
            for source in (rng.choice(written[-16:]) for _ in range(3))
        ]
        launches.append(Launch(f"kernel{i}", (*reads, write)))
        written.append(write)
    return launches


def one_range_read_by_all(n: int) -> list[Launch]:
    """All read the same bytes and write their own; the last one writes what all read."""
    readers = [
        Launch(f"kernel{i}", (BufferRange(0, 0, KIB, READ), BufferRange(1, i, i + 1, WRITE)))
        for i in range(n - 1)
    ]
    return [*readers, Launch("last", (BufferRange(0, 0, KIB, WRITE),))]


def whole_arena_read_by_all(n: int) -> list[Launch]:
    """Each reads everything and writes a little piece, so that every piece has another writer."""
    return [
        Launch(f"kernel{i}", (BufferRange(0, 0, n, READ), BufferRange(0, i, i + 1, WRITE)))
        for i in range(n)
    ]


def two_arenas_read_by_all(n: int) -> list[Launch]:
    """The same in two arenas in turn: half of all launches are never ordered with the others."""
    return [
        Launch(f"kernel{i}", (BufferRange(i % 2, 0, n, READ), BufferRange(i % 2, i, i + 1, WRITE)))
        for i in range(n)
    ]


def two_chains(n: int) -> list[Launch]:
    """Each reads what the last but one wrote, and no byte is ever reused."""
    return [
        Launch(f"kernel{i}", (BufferRange(0, i, i + 1, READ), BufferRange(0, i + 2, i + 3, WRITE)))
        for i in range(n)
    ]


PATTERNS: dict[str, Callable[[int], list[Launch]]] = {
    "random ranges, 64 MiB arena": random_ranges(64 * MIB),
    "random ranges, 1 MiB arena": random_ranges(1 * MIB),
    "graph-like, recycled slots": graph_like,
    "one range read by all, then written": one_range_read_by_all,
    "whole arena read, a piece written": whole_arena_read_by_all,
    "two whole arenas in turn": two_arenas_read_by_all,
    "two chains without reuse": two_chains,
}


@dataclass(frozen=True)
class Measured:
    n_launches: int
    n_edges: int
    order_seconds: float
    verify_seconds: float


def measure(launches: list[Launch]) -> Measured:
    edges = order(launches)
    kept = Order(tuple(edge.pair for edge in edges))
    return Measured(
        len(launches),
        len(edges),
        seconds(lambda: order(launches)),
        seconds(lambda: verify(launches, kept)),
    )


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds, so that other programs on the machine do not count; the best of a few."""
    best = float("inf")
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruler = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for row in (rows[0], ruler, *rows[1:]):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells[0] = row[0].ljust(widths[0])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    rows = [("pattern", "launches", "order s", "ratio", "edges", "verify s", "ratio")]
    for name, make in PATTERNS.items():
        before: Measured | None = None
        for n in SIZES:
            now = measure(make(n))
            rows.append(
                (
                    name,
                    f"{n:,}",
                    f"{now.order_seconds:.3f}",
                    f"{now.order_seconds / before.order_seconds:.2f}" if before else "",
                    f"{now.n_edges:,}",
                    f"{now.verify_seconds:.3f}",
                    f"{now.verify_seconds / before.verify_seconds:.2f}" if before else "",
                )
            )
            before = now
    print(table(rows))


if __name__ == "__main__":
    main()
