"""The segments of a program as they are compiled: for sizes, within the budget, a few at a time.

A segment is compiled when it is entered first with sizes that no program of it has room for. Its
arena stays until a budget needs the room, or many others were entered since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from arenite.errors import DoesNotFit, NotCompiled
from arenite.memory.plan import HOST
from arenite.pipeline.growth import Growth, GrowthSizes
from arenite.pipeline.memory_use import MemoryUse
from arenite.pipeline.segment import SegmentSizes
from arenite.pipeline.segmented_plan import PlannedSegment
from arenite.pipeline.sizes import Sized
from arenite.pipeline.stages import AnySegment, Segment
from arenite.program.backend import backend_of
from arenite.program.options import Options
from arenite.runtime.executable import Executable

#: Programs of segments that are kept open.
MAX_OPEN = 32


@dataclass(eq=False, slots=True)
class OpenSegment:
    """A segment for some capacities."""

    segment: AnySegment
    sized: Sized
    capacities: dict[str, int]
    executable: Executable
    #: Why it runs on the CPU, where that was not known before it was compiled.
    refusal: str = ""
    n_entered: int = 0
    #: Those of its arena, and of weights that it reads in place.
    planned_nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        plan = self.executable.plan
        mapped = plan.regions.get("mapped")
        self.planned_nbytes = plan.peak_nbytes + (0 if mapped is None else mapped.nbytes)

    @property
    def device(self) -> str:
        """What it runs on."""
        return self.executable.device

    @property
    def nbytes(self) -> int:
        """What is planned, and what it keeps for the next results."""
        return self.planned_nbytes + self.executable.kept_nbytes

    def planned(self) -> PlannedSegment:
        return PlannedSegment(
            self.segment.number,
            self.capacities,
            len(self.executable.kernels),
            self.n_entered,
            self.executable.plan,
            self.device,
        )


class SegmentCache:
    """Programs by segment and capacities, the one entered last at the end."""

    def __init__(self, threads: int | None, options: Options) -> None:
        self._threads = threads
        #: The budget is that of all together.
        self._options = options._replace(memory=None)
        self._sizes: dict[AnySegment, SegmentSizes | GrowthSizes] = {}
        self._open: OrderedDict[tuple[AnySegment, tuple[int, ...]], OpenSegment] = OrderedDict()
        self.n_compiled = 0

    @property
    def nbytes(self) -> int:
        """Of all that are open."""
        return sum(one.nbytes for one in self._open.values())

    def sizes_of(self, segment: AnySegment) -> SegmentSizes | GrowthSizes:
        sizes = self._sizes.get(segment)
        if sizes is None:
            sizes = GrowthSizes(segment) if isinstance(segment, Growth) else SegmentSizes(segment)
            self._sizes[segment] = sizes
        return sizes

    def obtain(
        self, segment: AnySegment, sizes: Mapping[str, int], memory: MemoryUse, lent_nbytes: int = 0
    ) -> OpenSegment:
        """The segment with room for these sizes, open and within the budget. Of its outputs
        `lent_nbytes` go into arrays that are there."""
        about = self.sizes_of(segment)
        refusal: DoesNotFit | None = None
        widest = about.capacities(sizes)
        tighter = (tuple(map(min, widest, about.tight(sizes, slack))) for slack in (8, 0))
        for capacities in dict.fromkeys((widest, *tighter)):
            try:
                return self._with_room(about, capacities, sizes, memory, lent_nbytes)
            except DoesNotFit as problem:
                refusal = problem
        assert refusal is not None
        raise refusal

    def compile_first(self, segment: AnySegment, memory: MemoryUse) -> None:
        """Compile a segment that needs no size to be found before."""
        about = self.sizes_of(segment)
        if not about.outside and not about.unbounded and isinstance(segment, Segment):
            program = self._compiled(about, ())
            memory.need(program.nbytes, f"segment {segment.number}")
            program.executable.keep_results(memory.budget is None)
            self._open[segment, ()] = program

    def _with_room(
        self,
        about: SegmentSizes | GrowthSizes,
        capacities: tuple[int, ...],
        sizes: Mapping[str, int],
        memory: MemoryUse,
        lent_nbytes: int,
    ) -> OpenSegment:
        key = (about.segment, capacities)
        program = self._open.pop(key, None)
        if program is None:
            program = self._compiled(about, capacities)
        if memory.budget is not None:
            program.executable.keep_results(False)  # all of it is for what lives
        outputs = program.sized.outputs_nbytes(sizes) - lent_nbytes
        room = program.nbytes + outputs
        while self._open and not memory.fits(room):
            self._close(next(iter(self._open)))
        named = [f"{name} up to {size}" for name, size in program.capacities.items()]
        what = f"segment {about.segment.number}{' with ' * bool(named)}{', '.join(named)}"
        try:
            memory.need(room, what)
        except DoesNotFit:
            program.executable.close()
            raise
        self._open[key] = program
        while len(self._open) > MAX_OPEN:
            self._close(next(iter(self._open)))
        return program

    def _compiled(
        self, about: SegmentSizes | GrowthSizes, capacities: tuple[int, ...]
    ) -> OpenSegment:
        from arenite.pipeline import compile_graph

        sized = about.sized(capacities)
        named = about.named(capacities)
        self.n_compiled += 1
        segment, options, refusal = about.segment, self._options, ""
        on_host = options._replace(device=HOST)
        if isinstance(segment, Segment) and segment.on_host:
            options = on_host
        try:
            executable = compile_graph(sized.graph, options, threads=self._threads)
        except NotCompiled as problem:
            if backend_of(options.device).memory == HOST:
                raise
            # Each op alone is done there, but not all of them as they were fused.
            refusal = str(problem)
            executable = compile_graph(sized.graph, on_host, threads=self._threads)
        return OpenSegment(segment, sized, named, executable, refusal)

    def forget(self, segments: Iterable[AnySegment]) -> None:
        """Close all programs of segments that are entered no more."""
        gone = set(segments)
        for key in [key for key in self._open if key[0] in gone]:
            self._close(key)
        for segment in gone:
            self._sizes.pop(segment, None)

    def _close(self, key: tuple[AnySegment, tuple[int, ...]]) -> None:
        self._open.pop(key).executable.close()

    def close(self) -> None:
        for key in list(self._open):
            self._close(key)

    def __iter__(self) -> Iterator[OpenSegment]:
        """In the order of the program."""
        by_number = sorted(self._open.items(), key=lambda item: (item[0][0].number, item[0][1]))
        return iter([one for _, one in by_number])
