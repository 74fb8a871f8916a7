"""A program that native code must leave: segments, and what is done between them.

Native code runs a segment and returns; a size is read, a loop goes on with values of other sizes,
or structure is known now; the next segment is planned inside the budget, or refused, and entered.
To its caller it is an Executable.

On a device other than the CPU it is a mixed program too: ops that the device refuses are segments
of the CPU, and what they read and make is copied by launches of the device's segments; branches
and loops are run by the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite import locks, passes
from arenite.ir.dim import bounds
from arenite.ir.graph import Graph
from arenite.ir.interface import Port
from arenite.ir.ops.control import regions_of
from arenite.memory.plan import HOST
from arenite.pipeline.memory_use import MemoryUse
from arenite.pipeline.segment_cache import OpenSegment, SegmentCache
from arenite.pipeline.segmented_plan import SegmentedPlan
from arenite.pipeline.segmented_profile import joined
from arenite.pipeline.segmented_run import SegmentedRun, Specializations
from arenite.pipeline.stages import Staging
from arenite.program.arguments import Arguments, check_room, check_targets
from arenite.program.backend import backend_of
from arenite.program.cached_kernel import Kernels
from arenite.program.options import USUAL, Options
from arenite.runtime.compiled_program import CompiledProgram
from arenite.runtime.executable import Executable
from arenite.runtime.profile import Profile
from arenite.runtime.state import HeldState, States

if TYPE_CHECKING:
    from arenite.passes import Record

Array = NDArray[Any]


class SegmentedExecutable(CompiledProgram):
    """Call it with arrays, in the order of the graph's inputs. The budget of `options` is
    for everything: arguments, states, arenas, and what is held between segments."""

    def __init__(
        self,
        graph: Graph,
        options: Options = USUAL,
        threads: int | None = None,
    ) -> None:
        ports = tuple(Port(node.attr("name"), node.shape, node.dtype) for node in graph.inputs)
        super().__init__(Arguments(ports, graph.vars), threads)
        self._graph = graph
        self._options = options
        self._fallback = None
        if backend_of(options.device).memory == HOST:
            self._staging = Staging()
            self._frame = self._staging.frame(graph)
        else:
            from arenite.pipeline.fallback import Fallback

            neutral, _ = passes.run(graph, passes.NEUTRAL)
            self._fallback = Fallback(options, neutral.origins)
            self._staging = Staging(self._fallback.is_needed)
            self._frame = self._staging.frame(neutral)
        self._open = SegmentCache(self.threads, options)
        self._special = Specializations(self._staging, self._open)
        self._states = {
            node: np.zeros(tuple(map(int, map(str, node.shape))), node.dtype.to_numpy())
            for node in graph.states
        }
        self._peak_nbytes = 0
        self._running: SegmentedRun | None = None
        self._compile_bounded()

    def _compile_bounded(self) -> None:
        """Compile what needs no size to be found: what does not fit is refused before a run."""
        given = sum(bounds(node.nbytes)[1] for node in self.graph.inputs)
        states = sum(array.nbytes for array in self._states.values())
        memory = MemoryUse(self._options.memory, lambda: 0, given + states)
        for segment in self._frame.segments:
            self._open.compile_first(segment, memory)

    # Calling.

    def __call__(self, *arrays: Any, out: Sequence[Array] | None = None) -> list[Array]:
        """Run; the outputs as new arrays, or written into `out`, as by an Executable. What does not
        go into it ends the run as soon as its size is found, and states are as they were."""
        if out is not None:
            check_targets(out)

        def enter(program: OpenSegment, given: list[Array], out: list[Array | None]) -> list[Array]:
            program.executable.resets_itself = self.resets_itself
            if all(array is None for array in out):
                return program.executable(*given)
            return program.executable.run_into(given, out)

        return self._run(arrays, enter, out=out)

    def fast_path(self, arrays: Sequence[Any], out: Sequence[Any] | None = None) -> None:
        """What an Executable does without any check is never done here."""

    def run_checked(self, *arrays: Any) -> list[Array]:
        """Run launch by launch, every byte watched: see Executable.run_checked. States are read,
        and stay as they are."""
        return self._run(
            arrays,
            lambda program, given, _: program.executable.run_checked(*given),
            keep_states=True,
        )

    def profile(self, *arrays: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times, over all segments, and
        the limits of what the longest ran on. Each segment runs twice, of which one run is
        timed."""
        profiles: list[tuple[str, Profile]] = []

        def timed(program: OpenSegment, given: list[Array], _: list[Array | None]) -> list[Array]:
            where = f" on {program.device}" if program.device != self.device else ""
            name = f"segment {program.segment.number}{where}"
            profiles.append((name, program.executable.profile(*given)))
            return program.executable(*given)

        self._run(arrays, timed)
        if not profiles:
            return joined([], backend_of(self.device).limits(self.device))
        _, longest = max(profiles, key=lambda one: one[1].wall_seconds)
        return joined(profiles, longest.limits)

    def _run(
        self,
        arrays: Sequence[Any],
        enter: Any,
        keep_states: bool = False,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """The results, in `out` where that is given: what can't fit it is refused before."""
        with self._turn():
            given, sizes = self._fitting([np.asarray(array) for array in arrays])
            if out is not None:
                outputs = [(node.shape, node.dtype) for node in self.graph.outputs]
                check_room(out, outputs, sizes)
            memory = MemoryUse(self._options.memory, lambda: self._open.nbytes)
            lent = [*given, *(self._states[node] for node in self.graph.states)]
            self._running = SegmentedRun(self._open, self._special, memory, enter)
            try:
                results = self._running.whole(self._frame, lent, sizes, out)
            finally:
                self._running = None
                self._peak_nbytes = max(self._peak_nbytes, memory.peak_nbytes)
            n = len(self.graph.outputs)
            if not keep_states:
                for (state, _), array in zip(self.graph.updates, results[n:], strict=True):
                    self._states[state][...] = array
            return results[:n]

    def cancel(self) -> None:
        """End the run in progress, from another thread."""
        running = self._running
        if running is not None:
            running.cancel()

    # State.

    @property
    def state(self) -> States:
        """What lives from run to run, by name."""
        states = []
        for node, array in self._states.items():
            port = Port(node.attr("name"), node.shape, node.dtype)
            states.append(HeldState(port, self._opener(array)))
        return States(states)

    def _opener(self, array: Array) -> Any:
        @contextmanager
        def open_bytes() -> Iterator[NDArray[np.uint8]]:
            with self._turn():
                yield array.reshape(-1).view(np.uint8)

        return open_bytes

    # What it shows.

    @property
    def graph(self) -> Graph:
        """What was compiled."""
        return self._graph

    @property
    def device(self) -> str:
        """What it runs on."""
        return self._options.device

    @property
    def on_cpu(self) -> dict[str, str]:
        """Ops that run on the CPU since the device refuses them, and why."""
        reasons = {} if self._fallback is None else self._fallback.reasons
        found = {node.op: why for node, why in reasons.items() if not regions_of(node)}
        return found | {f"segment {s.segment.number}": s.refusal for s in self._open if s.refusal}

    @property
    def segments(self) -> tuple[OpenSegment, ...]:
        """Those that are compiled now."""
        return tuple(self._open)

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The programs of these segments."""
        return tuple(one.executable for one in self._open)

    @property
    def n_segments(self) -> int:
        """Segments that are known so far: in bodies, and for the values of structure that came."""
        return len(self._frame.segments) + self._special.n_segments

    @property
    def plan(self) -> SegmentedPlan:
        planned = tuple(one.planned() for one in self._open)
        most = max((one.plan.peak_nbytes for one in planned), default=0)
        return SegmentedPlan(
            planned, self.n_segments, max(self._peak_nbytes, most), self._options.memory
        )

    @property
    def kernels(self) -> Kernels:
        """Those of the segments that are compiled now."""
        return _joined([one.kernels for one in self.executables])

    @property
    def load_kernels(self) -> Kernels:
        """Of those, the ones that read constants alone."""
        return _joined([one.load_kernels for one in self.executables])

    @property
    def passes(self) -> tuple[Record, ...]:
        """The graphs of these segments after each pass."""
        return tuple(record for one in self.executables for record in one.passes)

    def save_html(
        self, path: str | PathLike[str], title: str = "", profile: Profile | None = None
    ) -> None:
        """Write a page that shows each of these segments: see Executable.save_html."""
        from arenite.runtime.view import save_page

        programs = {
            f"segment {one.number}{', ' * bool(one.sizes)}{one.planned_for}": segment.executable
            for segment, one in ((segment, segment.planned()) for segment in self._open)
        }
        save_page(path, programs, title, profile)

    def verify(self) -> None:
        """Check the plans and prove the orders of all segments; RaceFound or InvalidPlan."""
        for one in self.executables:
            one.verify()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else self.runs_on
        return (
            f"<SegmentedExecutable: {self.n_segments} segments, {len(self.kernels)} kernels, "
            f"{self.plan.peak_nbytes} bytes at most so far, {state}>"
        )

    # Ending.

    def reset(self) -> None:
        """Make what failed usable again; states stay as they are."""
        with self._turn():
            for one in self.executables:
                one.reset()

    def close(self) -> None:
        """Give every byte back to the system. Returned arrays are the caller's and stay."""
        with self._lock:
            self._check_idle()
            self._is_closed = True
            self._open.close()

    def forget_after_fork(self) -> None:
        """In a forked process: a run of another thread is another process's now."""
        if not locks.is_mine(self._lock):
            self._is_running, self._running = False, None


def _joined(kernels: Sequence[Kernels]) -> Kernels:
    reads = {id(kernel): some.named_reads(kernel) for some in kernels for kernel in some}
    return Kernels(chain(*kernels), lambda kernel: reads[id(kernel)])
