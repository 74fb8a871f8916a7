"""What a program is in the CPU's memory, for tests that look inside."""

from __future__ import annotations

from arenite.backends.cpu.load import CpuProgram
from arenite.runtime.executable import Executable


def loaded(program: Executable) -> CpuProgram:
    found = program._loaded
    assert isinstance(found, CpuProgram)
    return found
