"""What a program computes once, when it is loaded: kernels that read nothing but constants.

Weights laid out for a kernel are the main case. Their results stay in the packed region of the
arena; every run reads them there.
"""

from __future__ import annotations

from collections.abc import Mapping

from arenite.codegen.kernels.built import Built
from arenite.ir import OPS, Node
from arenite.schedule import Kernel, Loop, Schedule


def load_kernels(schedule: Schedule, built: Mapping[int, Built]) -> frozenset[int]:
    """The numbers of the kernels that run at load.

    Sizes must be known then, and an output of the graph is made in every run. A graph without
    inputs runs once anyway, and would only keep more.
    """
    if not schedule.inputs:
        return frozenset()
    fixed: set[Node] = set()
    numbers: set[int] = set()
    outputs = set(schedule.results)
    # What a run writes over is made in every run.
    outputs |= {old for kernel in schedule.kernels for _, old in kernel.overwrites}
    outputs |= {old for s in schedule.steps if isinstance(s, Loop) for old in s.overwritten}
    for step in schedule.steps:
        if (
            isinstance(step, Kernel)
            and step.inputs
            and not built[step.number].loops.sizes
            and all(OPS[node.op].storage == "constant" or node in fixed for node in step.inputs)
            and outputs.isdisjoint(step.outputs)
        ):
            numbers.add(step.number)
            fixed.update(step.outputs)
    return frozenset(numbers)
