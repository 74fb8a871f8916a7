"""A checked run: launch by launch, with every byte of the arena watched. Slow; for tests and for
debugging.

In: a program and the arrays it gets. Out: what it returns; or UndeclaredAccess, which names the
first kernel that writes a byte it did not declare. States are as they were before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.exchange import in_words
from arenite.errors import UndeclaredAccess
from arenite.program.launch import Launch

if TYPE_CHECKING:
    from arenite.backends.webgpu.load import WebGpuProgram

Array = NDArray[Any]


def run_checked(
    program: WebGpuProgram, arrays: list[Array], sizes: Mapping[str, int]
) -> list[Array]:
    """The results of a run in which each launch is alone."""
    states = {}
    for number in program.state_numbers:
        with program.state(number) as content:
            states[number] = content.copy()
    with program.failing():
        program.pack(None)
        table, exchange = program.bound_table(sizes), program.exchange(arrays, sizes)
        table.write()
    table.join(False)
    for k in program.order.every:
        before = program.regions.contents()
        program.run_alone(program.order.single_steps[k], table, exchange)
        after = program.regions.contents()
        _check_bytes(program, program.compiled.launches[k], before, after)
    table.join(True)
    with program.failing():
        encoder = program.device.device.create_command_encoder()
        results = program.submit(program.finished(encoder, exchange)).result()
    for number, content in states.items():
        with program.state(number) as now:
            now[:] = content
    return results


def _check_bytes(
    program: WebGpuProgram, launch: Launch, before: NDArray[np.uint8], after: NDArray[np.uint8]
) -> None:
    """UndeclaredAccess unless all that differs is what the launch writes."""
    differs, places = before != after, program.places
    for number in map(int, launch.writes):
        if number not in program.order.on_host:
            at = program.regions.position(int(places.offset[number]))
            differs[at : at + in_words(int(places.nbytes[number]))] = False
    if differs.any():
        raise UndeclaredAccess(
            f"kernel {launch.name} wrote byte {int(np.flatnonzero(differs)[0])} of the arena, "
            "which it does not declare"
        )
