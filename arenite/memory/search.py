"""Better placements by ejection: what stands above a target goes below it, whatever is in the way
is thrown out and placed again.

    bytes   ┌──┐                     the highest block goes where it throws out
    target ─│x │──────────           the least weight; the thrown-out go the same
            └──┘┌─────┐              way, the largest first, until all of them
            ┌───┤  b  │              lie below the target (then the next target is
            │ a └─────┤              lower) or the chain grows too long (then the
            └─────────┘              old placement comes back).

A block that throws others out grows heavier, so chains do not run in circles. Effort is counted in
neighbours looked at and randomness comes from a fixed seed: the result is the same on any machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from arenite.memory.placement import Problem

#: Blocks placed in one chain before it is given up.
MAX_CHAIN = 5000
#: The next target takes this share of what lies between the peak and the goal.
STEP = 0.05
#: A block that throws others out grows heavier by up to this share.
GROWTH = 0.4
#: A move costs about as much as looking at this many neighbours, before it looks at any.
WORK_A_MOVE = 50
#: Moves between two looks at the clock or the person.
MOVES_A_LOOK = 256


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known while a placement is searched."""

    peak_nbytes: int
    lower_bound: int
    work: int  # neighbours looked at so far
    effort: int | None  # neighbours that may be looked at, None for no limit


#: Called now and then; answering False ends the search with the best placement so far.
OnProgress = Callable[[Progress], bool]


class EjectionSearch:
    """Lowers the peak of a complete placement until a goal, an effort or the caller ends it."""

    def __init__(
        self,
        problem: Problem,
        offsets: list[int],
        goal: int,
        effort: int | None,
        keep_on: Callable[[int, int], bool],
    ) -> None:
        assert problem.neighbours is not None
        self.problem = problem
        self.near = [np.array(near, dtype=np.int64) for near in problem.neighbours]
        self.sizes = np.array(problem.sizes, dtype=np.int64)
        self.lows = np.array(offsets, dtype=np.int64)
        self.tops = self.lows + self.sizes  # 0 for a block that is thrown out
        self.weights = self.sizes + 1.0
        self.goal = goal
        self.effort = effort
        self.keep_on = keep_on  # gets the peak and the work so far
        self.work = 0
        self.stopped = False
        self.random = Random(0).random
        self.pinned = np.array([pin is not None for pin in problem.pins], dtype=bool)
        self.highest = [(-int(self.tops[i]), i) for i in np.flatnonzero(~self.pinned).tolist()]
        heapq.heapify(self.highest)

    def run(self) -> list[int]:
        """The offsets with the lowest peak found."""
        while not self._out_of_effort():
            peak = self._peak()
            if peak <= self.goal:
                break
            self._lower_to(max(self.goal, peak - max(1, int((peak - self.goal) * STEP))))
        return [int(low) for low in self.lows]

    def _out_of_effort(self) -> bool:
        return self.stopped or (self.effort is not None and self.work >= self.effort)

    def _peak(self) -> int:
        """The highest top of an unpinned block; stale entries of the heap are dropped."""
        while self.highest:
            top, i = self.highest[0]
            if self.tops[i] == -top:
                return -top
            heapq.heappop(self.highest)
        return 0

    def _lower_to(self, target: int) -> None:
        """One chain, after which every block lies below `target`, or as before when it fails."""
        peak = self._peak()
        before: dict[int, tuple[int, int]] = {}
        waiting: list[int] = []
        while self._peak() > target:
            self._throw_out(heapq.heappop(self.highest)[1], before, waiting)
        heavier: set[int] = set()
        done = self._run_chain(waiting, target, peak, before, heavier)
        for i, (low, top) in before.items():
            if not done:
                self.lows[i], self.tops[i] = low, top
            heapq.heappush(self.highest, (-int(self.tops[i]), i))
        for i in sorted(heavier):  # after a failure the next chain starts from other weights
            extra = 0.0 if done else 2.0 * self.random()
            self.weights[i] = self.sizes[i] * (1.0 + extra) + 1.0

    def _throw_out(self, i: int, before: dict[int, tuple[int, int]], waiting: list[int]) -> None:
        before.setdefault(i, (int(self.lows[i]), int(self.tops[i])))
        self.tops[i] = 0
        waiting.append(i)

    def _run_chain(
        self,
        waiting: list[int],
        target: int,
        peak: int,
        before: dict[int, tuple[int, int]],
        heavier: set[int],
    ) -> bool:
        sizes = self.problem.sizes
        moves = 0
        while waiting:
            moves += 1
            if moves % MOVES_A_LOOK == 0 and not self.keep_on(peak, self.work):
                self.stopped = True
            if moves > MAX_CHAIN or self._out_of_effort():
                return False
            largest = max(range(len(waiting)), key=lambda k: sizes[waiting[k]])
            i, waiting[largest] = waiting[largest], waiting[-1]
            waiting.pop()
            place = self._cheapest_place(i, target)
            if place is None:
                return False
            base, hit = place
            for j in hit:
                self._throw_out(j, before, waiting)
            self.lows[i], self.tops[i] = base, base + sizes[i]
            if hit:
                heavier.add(i)
                self.weights[i] *= 1.0 + GROWTH * self.random()
        return True

    def _cheapest_place(self, i: int, target: int) -> tuple[int, list[int]] | None:
        """The lowest offset below `target` that throws out the least weight, and whom.

        A neighbour [low, top) is hit by every base in (low - size, top): its weight is added
        behind the one end and taken off at the other, in one pass over both ends of all.
        """
        near = self.near[i]
        self.work += len(near) + WORK_A_MOVE
        size, alignment = self.problem.sizes[i], self.problem.alignments[i]
        highest = (target - size) // alignment * alignment
        if highest < 0:
            return None
        tops = self.tops[near]
        near, tops = near[tops > 0], tops[tops > 0]
        lows, weights = self.lows[near], self.weights[near]
        leaves = -(-tops // alignment) * alignment
        enters = (lows - size) // alignment * alignment
        bases = np.concatenate((leaves, enters, (0, highest)))
        changes = np.concatenate((-weights, weights, (0.0, 0.0)))
        # At one base what leaves comes before what enters: twice the base, plus one to enter.
        order = (2 * bases + (changes > 0)).argsort(kind="stable")
        bases, changes = bases[order], changes[order]
        costs = np.cumsum(changes) - np.maximum(changes, 0.0)
        costs[(bases < 0) | (bases > highest)] = np.inf
        cheap = costs <= costs.min() + 1e-9 * weights.sum()  # sums of floats are not exact
        base = int(bases[int(cheap.argmax())])
        hit = near[(lows < base + size) & (tops > base)]
        if self.pinned[hit].any():
            return None
        return base, hit.tolist()
