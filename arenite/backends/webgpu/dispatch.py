"""Launches become dispatches: a pipeline, what it binds, and how many groups.

In: shaders with the regions and words at which their arrays begin, sizes and tiles. Out: dispatches
whose parameters lie side by side in one uniform buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arenite.backends.webgpu.compile import BoundShader, pipelines_of
from arenite.backends.webgpu.memory import Region
from arenite.backends.webgpu.shader import FIRST_REGION, Shader
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.errors import NotCompiled


@dataclass(frozen=True, slots=True)
class Bound:
    """A launch with numbers for all that it is given; `number` is that of its error word."""

    name: str
    shader: Shader
    places: Sequence[tuple[Region, int]]  # and the word at which an array begins
    sizes: Sequence[int]
    tiles: int
    number: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One launch, ready to be recorded; `following` is the pipeline of what is dispatched behind
    it, bound to the same."""

    name: str
    pipeline: Any
    bind_group: Any
    groups: tuple[int, int]
    following: Any = None

    @property
    def pipelines(self) -> list[Any]:
        """Those of its dispatches."""
        return [one for one in (self.pipeline, self.following) if one is not None]


def dispatches_of(
    device: WebGpuAllocator, launches: Sequence[Bound], errors: Any
) -> list[Dispatch]:
    """What to record for these launches; nothing for those that have no tiles."""
    launches = [
        replace(one, shader=one.shader.of_sizes(one.sizes)) for one in launches if one.tiles
    ]
    if not launches:
        return []
    alignment = device.limits.uniform_alignment
    widest = max(one.shader.n_parameters for one in launches) * WORD_NBYTES
    stride = -(-widest // max(alignment, 16)) * max(alignment, 16)
    words = np.zeros((len(launches), stride // WORD_NBYTES), np.int32)
    for row, one in enumerate(launches):
        parameters = [*(at for _, at in one.places), *one.sizes, one.tiles, one.number, 0]
        words[row, : len(parameters)] = parameters
    parameters_buffer = new_buffer(device, words.nbytes, "UNIFORM COPY_DST")
    with device.failures("bind launches"):
        device.device.queue.write_buffer(parameters_buffer, 0, words)
        return [
            bind(device, one, errors, (parameters_buffer, row * stride, stride))
            for row, one in enumerate(launches)
        ]


def bind(
    device: WebGpuAllocator, one: Bound, errors: Any, parameters: tuple[Any, int, int]
) -> Dispatch:
    """The dispatch of a launch whose parameters are these bytes: a buffer, offset and length."""
    regions = _regions(one)
    if len(regions) + 1 > device.limits.storage_bindings:
        raise NotCompiled(
            f"{one.name} reads {len(regions)} buffers; {device.name} binds "
            f"{device.limits.storage_bindings} at once"
        )
    _check_alignment(one)
    pipeline, *following = pipelines_of(device, bound_shaders(one))
    entries = [
        _entry(0, *parameters),
        *([_entry(1, errors)] if one.shader.requires else []),
        *(_entry(FIRST_REGION + k, region.gpu) for k, region in enumerate(regions)),
    ]
    group = device.device.create_bind_group(
        layout=pipeline.get_bind_group_layout(0), entries=entries
    )
    return Dispatch(one.name, pipeline, group, _groups(device, one), *following)


def bound_shaders(one: Bound) -> list[BoundShader]:
    """What the pipelines of a launch are made of: its own, and of what follows."""
    regions = _regions(one)
    bindings = tuple(tuple(map(regions.index, region.every)) for region, _ in one.places)
    read_only = tuple(region.read_only for region in regions)
    following = one.shader.following
    shaders = [one.shader] if following is None else [one.shader, following]
    return [BoundShader(one.name, shader, bindings, read_only) for shader in shaders]


def _regions(one: Bound) -> list[Region]:
    """Those of a launch, each once, in the order of their bindings."""
    return list(dict.fromkeys(part for region, _ in one.places for part in region.every))


def _check_alignment(one: Bound) -> None:
    for (name, _, _), (region, word) in zip(one.shader.arrays, one.places, strict=True):
        if name in one.shader.wide and word % 4:
            raise NotCompiled(
                f"{one.name} reads {name} 16 bytes at once; it begins at byte {word * WORD_NBYTES} "
                f"of the {region.name}, and must begin at a multiple of 16"
            )


def _groups(device: WebGpuAllocator, one: Bound) -> tuple[int, int]:
    """Along two axes, since one has a limit; groups that are too many end at once."""
    check_groups(device, one.name, one.tiles)
    most = device.limits.groups
    return (one.tiles, 1) if one.tiles <= most else (most, -(-one.tiles // most))


def check_groups(device: WebGpuAllocator, name: str, tiles: int) -> None:
    """NotCompiled for more groups than a device starts."""
    most = device.limits.groups
    if tiles > most * most:
        raise NotCompiled(f"{name} takes {tiles} groups; {device.name} starts {most}^2")


def submit(device: WebGpuAllocator, dispatches: Sequence[Dispatch]) -> None:
    """Begin with dispatches that nothing is copied behind."""
    encoder = device.device.create_command_encoder()
    record(encoder, dispatches)
    device.device.queue.submit([encoder.finish()])


def record(encoder: Any, dispatches: Sequence[Dispatch]) -> None:
    """Put dispatches into a command buffer, in order: one pass."""
    if not dispatches:
        return
    compute, pipeline = encoder.begin_compute_pass(), None
    for dispatch in dispatches:
        for one in dispatch.pipelines:
            if one is not pipeline:
                pipeline = one
                compute.set_pipeline(pipeline)
            compute.set_bind_group(0, dispatch.bind_group)
            compute.dispatch_workgroups(*dispatch.groups)
    compute.end()


def new_buffer(device: WebGpuAllocator, nbytes: int, usages: str) -> Any:
    """A buffer of wgpu for other things than values."""
    import wgpu

    usage = 0
    for name in usages.split():
        usage |= getattr(wgpu.BufferUsage, name)
    nbytes = -(-max(nbytes, 1) // 16) * 16
    with device.failures(f"allocate {nbytes} bytes", nbytes):
        return device.device.create_buffer(size=nbytes, usage=usage)


def _entry(binding: int, buffer: Any, offset: int = 0, size: int | None = None) -> dict[str, Any]:
    resource = {"buffer": buffer, "offset": offset, "size": buffer.size if size is None else size}
    return {"binding": binding, "resource": resource}
