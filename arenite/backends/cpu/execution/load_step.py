"""The load step: what depends on constants alone is computed once, before the first run.

Its results stay in the packed region of the arena. Constants that are mapped files are read in
parts, and the pages of each are given back before the next is read: a segment of the table ends
with each part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from arenite.backends.cpu.driver.native import BoundTable, Outcome, OutcomeKind
from arenite.backends.cpu.execution.binding import Binder
from arenite.ir.data import BufferSource, drop_pages
from arenite.ir.interface import GraphInterface
from arenite.program.assemble import Assembly
from arenite.program.lazy_sequence import LazySequence
from arenite.program.places import Numbers
from arenite.program.table import Op

if TYPE_CHECKING:
    from arenite.program.cached_kernel import CachedKernel

#: Raises where an outcome is not the end of the launches of an assembly, of these kernels.
Check = Callable[[Outcome, Assembly, Sequence["CachedKernel"]], None]

#: Hears how many parts are done, of how many.
OnPacked = Callable[[int, int], None]


class LoadStep:
    """The launches that run once. `ns` is what they took, once they have run."""

    def __init__(self, interface: GraphInterface, binder: Binder) -> None:
        self._of_graph = interface.constants
        self._binder = binder
        compiled = binder.compiled
        self._frame = frame = compiled.frame
        order = frame.load_order.tolist()
        self._kernels: Sequence[CachedKernel] = LazySequence(
            len(order), lambda: [compiled.load_kernels[k] for k in order]
        )
        launches = LazySequence(len(order), lambda: [compiled.load[k] for k in order])
        self._assembly = Assembly(launches, frame.load, frame.load_wait_book())
        self._running: BoundTable | None = None
        self._is_cancelled = False
        self.ns: int | None = None

    def run(self, threads: int, check: Check, on_progress: OnPacked | None = None) -> None:
        """Run what has not run yet; one that is cancelled or fails begins anew next time."""
        if self.ns is not None:
            return
        began = time.perf_counter_ns()
        self._is_cancelled = False
        try:
            if len(self._kernels):
                self._run(threads, check, on_progress or (lambda done, total: None))
        finally:
            self._running = None
        self.ns = time.perf_counter_ns() - began

    def _run(self, threads: int, check: Check, tell: OnPacked) -> None:
        binder, assembly = self._binder, self._assembly
        self._running = running = binder.bound_to(assembly, binder.places(binder.load_plan), {})
        n_done, n_parts = 0, int((running.table.entries["op"] == Op.SEGMENT).sum())
        is_over = False
        while not is_over:
            outcome = running.run(threads, (0, assembly.n_bind))
            is_over = outcome.kind is OutcomeKind.END
            if self._is_cancelled and outcome.kind is not OutcomeKind.ERROR:
                outcome = Outcome(OutcomeKind.CANCELLED)
            elif outcome.kind is OutcomeKind.SEGMENT and outcome.tick is not None:
                part = int(running.table.entries[outcome.tick]["a"])
                self._give_back(self._frame.given_back[self._frame.part_of == part])
                n_done += 1
                tell(n_done, n_parts)
                continue
            check(outcome, assembly, self._kernels)
        # Together once more: at its borders each part has brought in pages of those beside it.
        self._give_back(self._frame.given_back)

    def verify(self) -> None:
        """RaceFound unless every two launches that conflict are ordered."""
        self._assembly.verify(self._binder.places(self._binder.plan))

    def cancel(self) -> None:
        """End the step, if it is running, from another thread."""
        running = self._running
        if running is not None:
            self._is_cancelled = True  # heard between two parts too
            running.cancel()

    def _give_back(self, numbers: Numbers) -> None:
        """The memory of mapped constants that no later part reads. What runs read of them, rows of
        an embedding perhaps, comes from the file again."""
        sources = self._frame.sources[numbers].tolist()
        constants = [self._of_graph[source] for source in sources if source >= 0]
        drop_pages(one for one in constants if isinstance(one, BufferSource))
