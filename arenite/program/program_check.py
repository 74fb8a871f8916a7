"""Whether the objects of a saved program name only what is there.

In: objects as they were read, and the rest of their program. Out: nothing, or DamagedCache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenite.errors import DamagedCache
from arenite.ir.dim import bounds
from arenite.memory.values import ARENA_REGIONS
from arenite.program.frame import REGIONS
from arenite.program.launch import Launch
from arenite.program.program_json import Objects
from arenite.program.steps import StepKind

if TYPE_CHECKING:
    from arenite.program.compiled import Compiled

_CLOSED_BY: dict[StepKind, tuple[StepKind, ...]] = {
    StepKind.ELSE: (StepKind.IF,),
    StepKind.END: (StepKind.IF, StepKind.ELSE),
    StepKind.NEXT: (StepKind.LOOP,),
}


def check_objects(found: Objects, program: Compiled) -> None:
    """That every number names something."""
    n = len(program.values)
    lengths = (len(program.load), len(program.launches), len(program.steps), len(program.cells), n)
    parts = (found.load, found.launches, found.steps, found.cells, found.values)
    if tuple(map(len, parts)) != lengths:
        raise DamagedCache("launches, steps, cells or values are not those of the frame")
    for launch in (*found.load, *found.launches):
        if not 0 <= launch.entry < len(program.image):
            raise DamagedCache(f"launch {launch.name} begins behind the code")
        if any(not 0 <= int(k) < n for k in (*launch.arrays, *launch.reads, *launch.writes)):
            raise DamagedCache(f"launch {launch.name} names a value there is not")
        if not all(_is_part_of_state(found, launch, part) for part in launch.parts):
            raise DamagedCache(f"launch {launch.name} touches a part of a state there is not")
    _check_values(found, program)
    _check_nesting(found)
    _check_steps(found, program)


def _is_part_of_state(found: Objects, launch: Launch, part: tuple[int, int, int]) -> bool:
    k, start, end = part
    touched = (*launch.reads, *launch.writes)
    if not 0 <= k < len(touched):
        return False
    value = found.values[int(touched[k])]
    return value.kind == "state" and 0 <= start <= end <= bounds(value.nbytes)[0]


def _check_values(found: Objects, program: Compiled) -> None:
    n = len(found.values)
    for value in found.values:
        if value.kind == "pointer":
            if not 0 <= value.source < len(found.cells) or not value.targets:
                raise DamagedCache(f"value {value.name!r} points nowhere")
            if any(not 0 <= k < n for k in value.targets):
                raise DamagedCache(f"value {value.name!r} points to a value there is not")
            continue
        slot = program.plan.slots.get(value.name)
        if slot is None:
            raise DamagedCache(f"value {value.name!r} is not in the plan")
        if slot.region in ARENA_REGIONS and slot.end > program.plan.peak_nbytes:
            raise DamagedCache(f"value {value.name!r} lies behind the end of the arena")
        is_source = slot.region == "source" and value.kind == "constant"
        if slot.region != REGIONS.get(value.kind) and not is_source:
            raise DamagedCache(f"value {value.name!r} is no {value.kind} of the plan")


def _check_nesting(found: Objects) -> None:
    around: list[StepKind] = []
    for step in found.steps:
        if step.kind in _CLOSED_BY and (not around or around.pop() not in _CLOSED_BY[step.kind]):
            raise DamagedCache(f"a step {step.kind.value} closes nothing")
        if step.kind in (StepKind.IF, StepKind.ELSE, StepKind.LOOP):
            around.append(step.kind)
    if around:
        raise DamagedCache(f"a step {around[-1].value} is not closed")


def _check_steps(found: Objects, program: Compiled) -> None:
    steps, hosts = found.steps, program.hosts
    numbers = [step.a for step in steps if step.kind is StepKind.LAUNCH]
    if numbers != list(range(len(found.launches))):
        raise DamagedCache("the steps are not those of the launches")
    used = [k for step in steps for one in step.instructions for k in one[1:]]
    for step in steps:
        if step.kind is StepKind.IF:
            used.append(step.a)
        elif step.kind is StepKind.LOOP:
            used += [step.a, step.b, step.c]
    used += [*program.found.values(), *found.late.values()]
    used += [cell for host in hosts for cell in host.addresses]
    calls = [step.a for step in steps if step.kind is StepKind.HOST]
    if calls != list(range(len(hosts))):
        raise DamagedCache("the steps are not those of the calls of the host")
    named = [int(k) for host in hosts for k in (*host.reads, host.write)]
    named += [int(cell.address) for cell in found.cells if cell.address is not None]
    if any(not 0 <= k < len(found.values) for k in named) or any(
        len(host.addresses) != len(host.reads) + 1 for host in hosts
    ):
        raise DamagedCache("a cell or a call of the host names a value there is not")
    if any(not -1 <= k < len(found.cells) for k in used):
        raise DamagedCache("a step names a cell there is not")
