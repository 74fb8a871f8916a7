"""The load step: what depends on constants alone is computed once, before the first run.

Its results stay in the packed region of the arena. Constants that are mapped files are read in
parts, and the pages of each are given back before the next is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from arenite.ir.data import BufferSource
from arenite.ir.outline import Outline
from arenite.runtime.assemble import Assembly, LaunchSpec
from arenite.runtime.binding import Binder
from arenite.runtime.kernel import CachedKernel
from arenite.runtime.native import BoundTable, Outcome, OutcomeKind

#: Bytes of constants that are read before their pages are given back.
PART_NBYTES = 8 * 2**20

#: Raises where an outcome is not the end of the launches of an assembly, of these kernels.
Check = Callable[[Outcome, Assembly, Sequence[CachedKernel]], None]


class LoadStep:
    """The launches that run once. `ns` is what they took, once they have run."""

    def __init__(self, outline: Outline, binder: Binder) -> None:
        self._of_graph = outline.constants
        self._binder = binder
        self._running: BoundTable | None = None
        self._is_cancelled = False
        self.ns: int | None = None

    def run(self, threads: int, check: Check) -> None:
        """Run what has not run yet; one that is cancelled or fails begins anew next time."""
        if self.ns is not None:
            return
        began = time.perf_counter_ns()
        binder, compiled = self._binder, self._binder.compiled
        places = binder.places(binder.plan)
        self._is_cancelled = False
        try:
            for part in self._parts():
                launches = [compiled.load[k] for k in part]
                assembly = Assembly(launches, binder.io)
                self._running = binder.bound_to(assembly, places, {})
                outcome = self._running.run(threads, (0, assembly.n_bind))
                if self._is_cancelled and outcome.kind is OutcomeKind.END:
                    outcome = Outcome(OutcomeKind.CANCELLED)
                check(outcome, assembly, [compiled.load_kernels[k] for k in part])
                self._drop_pages(launches)
        finally:
            self._running = None
        self.ns = time.perf_counter_ns() - began

    def cancel(self) -> None:
        """End the step, if it is running, from another thread."""
        running = self._running
        if running is not None:
            self._is_cancelled = True  # heard between two parts too
            running.cancel()

    def _parts(self) -> list[list[int]]:
        """Numbers of launches that read so much that it pays to give it back before more is read.

        What is read at once is in memory twice, so the largest comes first, while little of the
        arena is filled.
        """
        load, constants = self._binder.compiled.load, self._binder.constants
        nbytes = [
            sum(constants[int(n)].nbytes for n in one.reads if n in constants) for one in load
        ]
        is_large = [
            size >= PART_NBYTES and all(n in constants for n in launch.reads)
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

    def _drop_pages(self, launches: Sequence[LaunchSpec]) -> None:
        """Give back the memory of mapped constants that these launches have read. What runs read of
        them, rows of an embedding perhaps, comes from the file again."""
        for number in {int(number) for launch in launches for number in launch.reads}:
            value = self._binder.compiled.values[number]
            if value.kind == "constant" and value.source >= 0:
                source = self._of_graph[value.source]
                if isinstance(source, BufferSource):
                    source.drop_pages()
