"""The plan of a program, for little memory or for launches side by side, with its price.

In: a program before it is known where anything lies. Out: a MemoryPlan that says what it was made
for, how many launches wait for another only because values share bytes, and, where it was made for
concurrency, what the plan for memory would have taken. A budget counts everything that is in memory
while the program runs: its arena may have what inputs, outputs and mapped weights leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath

from arenite.errors import DoesNotFit, InvalidArgument
from arenite.memory import MemoryPlan, Price, Slot, Tick, ValueId
from arenite.memory import plan as plan_memory
from arenite.memory.fit import NAMED_VALUES, within_capacity
from arenite.memory.plan import CONCURRENCY, HOST, OBJECTIVES
from arenite.memory.values import ARENA_REGIONS, RESIDENT_REGIONS
from arenite.pipeline.steps import Lowered
from arenite.pipeline.windows import Windows
from arenite.program.backend import Backend, DeviceNeeds
from arenite.program.launch import Launch
from arenite.program.options import Options
from arenite.program.steps import StepKind
from arenite.program.table import Ins
from arenite.schedule import Kernel

#: Instructions that read a value, at the address in their third part.
_LOADS = (Ins.LOAD8, Ins.LOAD64)
_OUTSIDE = frozenset(RESIDENT_REGIONS) - frozenset(ARENA_REGIONS)


def planned(
    program: Lowered, is_shared: Sequence[bool], options: Options, backend: Backend
) -> MemoryPlan:
    """`is_shared` says of each launch whether workers share it; the budget of `options` is for
    memory of the device that weights and the arena are on."""
    device = backend.memory
    needs = DeviceNeeds(program.values, program.load, program.launches, program.book.n_state_sets)
    own = backend.device_memory(needs, options.device)
    while True:
        budget = Budget.of(program, options.memory, device, own.device)
        refusal, plan = None, object()
        try:
            plan = _planned(program, is_shared, options.plan, budget)
        except DoesNotFit as error:
            refusal, plan = error, error.plan  # the smallest that is known
        assert isinstance(plan, MemoryPlan)
        before, own = own, backend.device_memory(needs, options.device, plan)
        # What follows from the plan leaves less for it.
        if options.memory is None or sum(own.device.values()) <= sum(before.device.values()):
            break
    if refusal is not None:
        raise refusal
    regions = {
        name: region._replace(device=HOST if name == "io" else device)
        for name, region in plan.regions.items()
    }
    plan = plan._replace(regions=regions).with_more("device", own.device, device)
    return plan.with_more("io", own.host, HOST)


def _planned(
    program: Lowered, is_shared: Sequence[bool], objective: str, budget: Budget
) -> MemoryPlan:
    if objective not in OBJECTIVES:
        raise InvalidArgument(
            f"a plan is made for {' or '.join(OBJECTIVES)}, not for {objective!r}"
        )
    windows = Windows(program, is_shared)
    with budget.refusals():
        small = budget.checked(plan_memory(program.lifetimes(), budget.arena_nbytes))
    details, ticks = _details(program), _ticks(program)
    edges = windows.added_edges(small)
    small = small._replace(reuse_edges=edges, details=details, ticks=ticks)
    if objective != CONCURRENCY:
        return small
    both = [plan_memory(program.lifetimes(one)) for one in (windows, windows.begun_early())]
    wide = min(both, key=lambda plan: plan.peak_nbytes)
    wide = wide._replace(capacity=budget.arena_nbytes)
    least = small.peak_nbytes + budget.outside_nbytes
    instead = f". Planned for memory it takes {least} bytes: compile with plan='memory'"
    with budget.refusals("planned for concurrency: ", instead):
        within_capacity(wide)
    price = Price(small.peak_nbytes, small.reuse_edges)
    return wide._replace(objective=CONCURRENCY, instead=price, details=details, ticks=ticks)


def _details(program: Lowered) -> dict[ValueId, str]:
    """Dtype and shape of each value, and the place in a model or a source that it comes from."""
    places: dict[int, str] = {}
    launches = (*program.load, *program.launches)
    kernels = (*program.load_kernels, *program.kernels)
    for launch, kernel in zip(launches, kernels, strict=True):
        place = _place(kernel)
        for number in launch.writes if place else ():
            places.setdefault(int(number), f", from {place}")
    return {
        spec.name: f"{spec.dtype.name} [{', '.join(map(str, spec.shape))}]{places.get(number, '')}"
        for number, spec in enumerate(program.values)
    }


def _place(kernel: Kernel) -> str:
    """The place in a model or a source that a kernel comes from."""
    for origin in kernel.origins[:1]:
        file = PurePath(origin.file).name
        return origin.name or (f"{file}:{origin.line}" if origin.line else file)
    return ""


def _ticks(program: Lowered) -> list[Tick]:
    """What runs at each tick: kernels at load, then the steps of a run."""

    def names(numbers: Iterable[ValueId]) -> tuple[str, ...]:
        """Of values; a pointer has no bytes, but what it may point to has."""
        found: dict[str, None] = {}
        pending = [*map(int, numbers)]
        while pending:
            value = program.values[pending.pop(0)]
            pending += value.targets
            if value.kind != "pointer":
                found[value.name] = None
        return tuple(found)

    def launched(launch: Launch, kernel: Kernel, at_load: bool) -> Tick:
        reads, writes = names(launch.reads), names(launch.writes)
        return Tick(launch.name, reads, writes, _place(kernel), at_load)

    # By the cell with its address.
    cells = enumerate(program.book.cells)
    pointed = {k: cell.address for k, cell in cells if cell.address is not None}
    pointed |= {one.source: k for k, one in enumerate(program.values) if one.kind == "pointer"}
    loads = zip(program.load, program.load_kernels, strict=True)
    ticks = [launched(launch, kernel, True) for launch, kernel in loads]
    for step in program.steps:
        if step.kind is StepKind.LAUNCH:
            ticks.append(launched(program.launches[step.a], program.kernels[step.a], False))
        elif step.kind is StepKind.HOST:
            host = program.hosts[step.a]
            ticks.append(Tick("host", names(host.reads), names([host.write])))
        else:
            reads = [pointed[one[2]] for one in step.instructions if one[0] in _LOADS]
            writes = [pointed[one[2]] for one in step.instructions if one[0] is Ins.STORE64]
            ticks.append(Tick(step.kind.value, names(reads), names(writes)))
    return ticks


@dataclass(frozen=True, slots=True)
class Budget:
    """The most bytes a program may take, and what of them lies outside of its arena."""

    nbytes: int | None
    outside: tuple[Slot, ...]
    outside_nbytes: int
    what: str  # lies outside

    @staticmethod
    def of(program: Lowered, nbytes: int | None, device: str, own: Mapping[str, int]) -> Budget:
        """`own`: what the device takes beside all values."""
        if nbytes is None:
            return Budget(None, (), 0, "")
        what = "inputs, outputs and weights that are read in place"
        if device != HOST:
            what = "weights as the file has them and the device's own"
        resident = [
            value
            for value in program.lifetimes()
            if value.region in _OUTSIDE and (device == HOST or value.region != "io")
        ]
        plan = plan_memory(resident).with_more("device", own, device)
        slots = sorted(plan.slots.values(), key=lambda slot: -slot.capacity)
        return Budget(nbytes, tuple(slots), plan.total_nbytes, what)

    @property
    def arena_nbytes(self) -> int | None:
        """What is left for the arena."""
        return None if self.nbytes is None else max(0, self.nbytes - self.outside_nbytes)

    def checked(self, plan: MemoryPlan) -> MemoryPlan:
        """The plan, unless what is outside of its arena is too much already."""
        if self.nbytes is not None and plan.peak_nbytes + self.outside_nbytes > self.nbytes:
            raise DoesNotFit(
                f"it takes {plan.peak_nbytes} bytes",
                capacity=0,
                lower_bound=plan.lower_bound,
                smallest_known=plan.peak_nbytes,
                peak_tick=plan.peak_tick,
                live=(),
                plan=plan,
            )
        return plan

    @contextmanager
    def refusals(self, before: str = "", behind: str = "") -> Iterator[None]:
        """A refusal of the planner becomes one that counts all bytes."""
        try:
            yield
        except DoesNotFit as refusal:
            assert self.nbytes is not None
            smallest = refusal.smallest_known + self.outside_nbytes
            named = ", ".join(f"{one.id} ({one.capacity})" for one in self.outside[:NAMED_VALUES])
            if len(self.outside) > NAMED_VALUES:
                named += f" and {len(self.outside) - NAMED_VALUES} more"
            outside = (
                f"Of {self.nbytes} bytes of memory, {self.what} take {self.outside_nbytes}: {named}"
            )
            if self.outside_nbytes > self.nbytes:
                reason = outside
            elif self.outside_nbytes:
                reason = f"{outside}. For the arena, {refusal}"
            else:
                reason = str(refusal)
            raise DoesNotFit(
                f"{before}{reason}. The least memory known to work is {smallest} bytes in all"
                f"{behind}",
                capacity=self.nbytes,
                lower_bound=refusal.lower_bound + self.outside_nbytes,
                smallest_known=smallest,
                peak_tick=refusal.peak_tick,
                live=(*refusal.live, *((one.id, one.capacity) for one in self.outside)),
                plan=refusal.plan,
            ) from None
