"""Graphs on WebGPU: from passes to results, or a clear refusal."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import pytest
from numpy.typing import NDArray

from arenite import device, passes
from arenite.backends.webgpu.build import build
from arenite.backends.webgpu.compile import compile_shaders
from arenite.backends.webgpu.load import Loaded
from arenite.codegen.kernels.built import Built
from arenite.device.webgpu import WebGpuAllocator
from arenite.errors import DeviceUnavailable
from arenite.ir.dim import Dim
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.outline import Outline
from arenite.memory.plan import MEMORY
from arenite.passes import Pass
from arenite.pipeline.build import _launch, _sizes
from arenite.pipeline.load import load_kernels
from arenite.pipeline.planning import planned
from arenite.pipeline.steps import lowered
from arenite.program.compiled import Compiled
from arenite.program.skeleton import shared_of
from arenite.schedule import fuse

Array = NDArray[Any]

NEUTRAL = "narrow transposed expand fold split simplify".split()


@functools.cache
def opened() -> WebGpuAllocator | str:
    """The device, or why there is none."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp())  # or the driver complains
    try:
        found = device.get("webgpu")
    except DeviceUnavailable as reason:
        return str(reason)
    assert isinstance(found, WebGpuAllocator)
    return found


def webgpu() -> WebGpuAllocator:
    """The device; where there is none the test is skipped, and says what to install."""
    found = opened()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def neutral_passes() -> tuple[Pass, ...]:
    return tuple(one for one in passes.PASSES if one.name in NEUTRAL)


def compiled(outputs: Sequence[Node]) -> tuple[Outline, Compiled]:
    """A program for WebGPU."""
    graph = Graph.of(outputs)
    simplified, _ = passes.run(graph, neutral_passes())
    schedule = fuse(simplified)
    built: dict[int, Built] = {kernel.number: build(kernel) for kernel in schedule.kernels}
    sizes = {var.symbol: var for var in (*graph.vars, *graph.found)}
    given: list[Dim] = [size for one in built.values() for size in _sizes(one, sizes)]
    scratch = {number: one.scratch for number, one in built.items()}
    program = lowered(graph, schedule, scratch, load_kernels(schedule, built), given)
    image, places = compile_shaders(built)

    def launches(some: Any) -> tuple[Any, ...]:
        return tuple(
            _launch(one, built[one.kernel.number], places[one.kernel.number], sizes) for one in some
        )

    plan = planned(program, shared_of(launches(program.launches)), None, MEMORY)
    plan.verify()
    made = Compiled(
        image=image,
        load_kernels=(),
        load=launches(program.load),
        kernels=(),
        launches=launches(program.launches),
        values=tuple(program.values),
        outputs=tuple(program.outputs),
        constants=tuple(program.constants),
        plan=plan,
        steps=tuple(program.steps),
        cells=tuple(program.cells),
        found=program.found,
        late=program.late,
        hosts=tuple(program.hosts),
    )
    return Outline.of(graph), made


def loaded(outputs: Sequence[Node]) -> Loaded:
    return Loaded(*compiled(outputs), webgpu())


def run(outputs: Sequence[Node], *arrays: Array) -> list[Array]:
    return loaded(outputs).run(arrays)
