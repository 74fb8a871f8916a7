"""The lists of passes that a graph goes through on its way to the CPU."""

from __future__ import annotations

from arenite.backends.cpu import passes as cpu
from arenite.passes import NEUTRAL

PASSES = (*NEUTRAL, *cpu.PASSES)
WITHOUT_WINOGRAD = (*NEUTRAL, *cpu.WITHOUT_WINOGRAD)
IN_PLACE = (*NEUTRAL, *cpu.IN_PLACE)
