"""Graphs on WebGPU: from passes to results, or a clear refusal."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import device
from arenite.backends.webgpu.dispatch import Bound, dispatches_of, new_buffer, record
from arenite.backends.webgpu.failure import check_errors
from arenite.backends.webgpu.load import WebGpuProgram
from arenite.backends.webgpu.lower import lower
from arenite.backends.webgpu.memory import Region
from arenite.codegen import loop_ir as ir
from arenite.codegen.check import check
from arenite.device import Buffer
from arenite.device.webgpu import WebGpuAllocator
from arenite.errors import DeviceUnavailable
from arenite.ir import reference
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_anew, compile_graph
from arenite.pipeline.segmented import SegmentedExecutable
from arenite.program.compiled import Compiled
from arenite.program.options import Options
from arenite.runtime.compiled_program import CompiledProgram
from arenite.runtime.executable import Executable
from tests import adapters

Array = NDArray[Any]

ON_WEBGPU = Options(device="webgpu")


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
    """The device; where there is none the test is skipped, and says what to install. It is counted
    in both cases."""
    found = opened()
    if isinstance(found, str):
        adapters.asked.add(adapters.NONE)
        pytest.skip(found)
    adapters.asked.add(found.adapter_name)
    return found


def compiled(outputs: Sequence[Node]) -> Compiled:
    """A program for WebGPU, that is not loaded."""
    return compile_anew(Graph.of(outputs), ON_WEBGPU)


def executable(outputs: Sequence[Node], memory: int | None = None) -> Executable:
    webgpu()
    return compile_graph(Graph.of(outputs), ON_WEBGPU._replace(memory=memory))


def loaded(program: Executable) -> WebGpuProgram:
    """What a program is on the device."""
    found = program._loaded
    assert isinstance(found, WebGpuProgram)
    return found


def run(outputs: Sequence[Node], *arrays: Array) -> list[Array]:
    with executable(outputs) as program:
        return program(*arrays)


def devices_of(program: CompiledProgram) -> set[str]:
    """The devices that the parts of a program, all of which have run, are on."""
    if isinstance(program, SegmentedExecutable):
        return {one.device for one in program.segments if one.n_entered}
    return {program.device}


def expected(graph: Graph, arrays: Sequence[Array], found: Sequence[Array]) -> list[Array]:
    """What the reference says. A device may take denormals of float32 for 0, in operands and in
    results: where it does, of all that it may say the nearest to what was found."""
    wanted = reference.evaluate(graph, [*arrays])
    if webgpu().keeps_denormals:
        return wanted
    of_zeros = reference.evaluate(graph, [flushed(array) for array in arrays])
    return [
        nearest(one, [exact, flushed(exact), other, flushed(other)])
        for one, exact, other in zip(found, wanted, of_zeros, strict=True)
    ]


def flushed(array: Array) -> Array:
    """Zeros instead of what is a denormal once it is a float32."""
    if array.dtype.kind in "biu":
        return array
    with np.errstate(invalid="ignore", over="ignore"):  # of float64 all is infinite that is more
        wide = array.astype(np.float32)
    is_denormal = (np.abs(wide) < np.finfo(np.float32).tiny) & (wide != 0)
    return np.where(is_denormal, np.copysign(0, wide).astype(array.dtype), array)


def nearest(found: Array, candidates: Sequence[Array]) -> Array:
    """The nearest of them to each element."""
    chosen, least = candidates[0], _distance(found, candidates[0])
    for candidate in candidates[1:]:
        distance = _distance(found, candidate)
        chosen = np.where(distance < least, candidate, chosen)
        least = np.minimum(distance, least)
    return chosen


def _distance(a: Array, b: Array) -> NDArray[np.float64]:
    one, other = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.where(one == other, 0, np.abs(one - other))
    return np.where(np.isnan(one) & np.isnan(other), 0, np.nan_to_num(distance, nan=np.inf))


def launch(
    kernel: ir.GroupKernel, arrays: dict[str, Array], sizes: Sequence[int], tiles: int
) -> None:
    """Run loops that were written by hand; what they write is in the arrays afterwards."""
    gpu = webgpu()
    check(kernel)
    buffers = {
        name: Buffer.allocate(gpu, array.dtype, array.shape) for name, array in arrays.items()
    }
    for name, array in arrays.items():
        buffers[name].copyin(array)
    places = [(Region.of(array.name, buffers[array.name]), 0) for array in kernel.arrays]
    errors = new_buffer(gpu, 4, "STORAGE COPY_SRC COPY_DST")
    bound = Bound(kernel.name, lower(kernel), places, sizes, tiles, 0)
    encoder = gpu.device.create_command_encoder()
    record(encoder, dispatches_of(gpu, [bound], errors))
    gpu.device.queue.submit([encoder.finish()])
    check_errors(gpu.words(errors, 0, 4), [kernel.name])
    for name, array in arrays.items():
        buffers[name].copyout(array)
