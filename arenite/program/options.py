"""Options: all that decides about a program beside its graph."""

from __future__ import annotations

from dataclasses import dataclass

from arenite.memory.plan import MEMORY


@dataclass(frozen=True, slots=True)
class Options:
    """`memory` is the most bytes a program may take in all, inputs and outputs among them; `plan`
    what its plan is made for, "memory" or "concurrency"; `winograd` whether convolutions may be
    done by that method; `device` what it runs on."""

    memory: int | None = None
    plan: str = MEMORY
    winograd: bool = True
    device: str = "cpu"


#: Nothing was asked for.
USUAL = Options()
