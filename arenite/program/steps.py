"""Steps: what a program does, one after another, before it is known where anything lies.

    launch 0                     eval c2 = load8(c0)           if c2
    loop c3 < c1 while c2          launch 1                      launch 3
      launch 1                   next                          else
    next                                                         launch 4
                                                               end

Cells are registers by what is in them: a size or the address of a value, both known when a program
is bound, or whatever instructions put there while it runs. Every launch stands in one step, and
launches are numbered in the order of the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from arenite.ir.dim import Dim
from arenite.memory import ValueId
from arenite.records import NamedTuple

#: (what to do, dst, a, b): `Ins` and cells; ZERO stands for the register that holds 0.
Instruction: TypeAlias = tuple[int, int, int, int]

ZERO = -1
NO_CONDITION = -1


class StepKind(Enum):
    LAUNCH = "launch"  # launch `a`
    EVAL = "eval"  # the instructions
    IF = "if"  # cell `a` is not zero
    ELSE = "else"
    END = "end"  # of an if
    LOOP = "loop"  # cell `a` counts up to cell `b` while cell `c`, if there is one
    NEXT = "next"
    HOST = "host"  # call `a` of the host


class Step(NamedTuple):
    kind: StepKind
    a: int = 0
    b: int = 0
    c: int = NO_CONDITION
    instructions: tuple[Instruction, ...] = ()


class HostSpec(NamedTuple):
    """A call of the host: its function by number in the graph, the values it gets and makes, and
    the cells with their addresses, that of what it makes last."""

    function: int
    reads: tuple[int, ...]
    write: int
    addresses: tuple[int, ...]


class Cell(NamedTuple):
    """`size` or `address` where a bind fills it; neither: instructions do."""

    size: Dim | None = None
    address: ValueId | None = None


class Pointer(NamedTuple):
    """A value whose bytes are those of others in turn: the address is in `cell`."""

    cell: int
    targets: tuple[ValueId, ...]  # what it may point into; pointers among them


def straight(n_launches: int) -> tuple[Step, ...]:
    """The steps of a program without control flow."""
    return tuple(Step(StepKind.LAUNCH, k) for k in range(n_launches))


def written(steps: Sequence[Step], names: Sequence[str]) -> str:
    """As text: one line a step, indented by its regions."""
    lines = []
    depth = 0
    for step in steps:
        if step.kind in (StepKind.ELSE, StepKind.END, StepKind.NEXT):
            depth -= 1
        if step.kind is StepKind.LAUNCH:
            text = names[step.a]
        elif step.kind is StepKind.LOOP:
            while_ = "" if step.c == NO_CONDITION else f" while c{step.c}"
            text = f"loop c{step.a} < c{step.b}{while_}"
        elif step.kind is StepKind.IF:
            text = f"if c{step.a}"
        elif step.kind is StepKind.EVAL:
            text = f"eval {len(step.instructions)} instructions"
        else:
            text = step.kind.value
        lines.append("  " * depth + text)
        if step.kind in (StepKind.IF, StepKind.ELSE, StepKind.LOOP):
            depth += 1
    return "\n".join(lines)
