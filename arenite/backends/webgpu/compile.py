"""Loops become shaders, and shaders pipelines of a device.

In: built kernels. Out: an image, which is the shaders as JSON, and which of them each kernel is.
WGSL is compiled where it runs: pipelines are made when a program is loaded, and kept by their text
for as long as the device is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from arenite.backends.webgpu.lower import lower
from arenite.backends.webgpu.shader import FIRST_REGION, Shader
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.device.webgpu import WebGpuAllocator
from arenite.errors import DamagedCache

_NAMELESS = "kernel"

_pipelines: WeakKeyDictionary[WebGpuAllocator, dict[str, Any]] = WeakKeyDictionary()


def compile_shaders(built: Mapping[int, Built]) -> tuple[bytes, dict[int, int]]:
    """The shaders of kernels, each once however many kernels have it, and the place of each."""
    shaders: dict[Shader, int] = {}
    places: dict[int, int] = {}
    for number, one in built.items():
        assert isinstance(one.loops, ir.GroupKernel)
        shader = replace(lower(one.loops), name=_NAMELESS)
        places[number] = shaders.setdefault(shader, len(shaders))
    image = json.dumps([shader.to_json() for shader in shaders]).encode()
    return image, places


def shaders_of(image: bytes) -> list[Shader]:
    """The shaders of an image."""
    try:
        return [Shader.from_json(one) for one in json.loads(image)] if image else []
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedCache(f"shaders that cannot be read: {error!r}") from None


def pipeline_of(
    device: WebGpuAllocator, shader: Shader, bindings: Sequence[int], read_only: Sequence[bool]
) -> Any:
    """The pipeline of a shader whose arrays lie in these of its regions."""
    text = shader.module(bindings, read_only)
    known = _pipelines.setdefault(device, {})
    if text not in known:
        with device.failures(f"compile {shader.name}"):
            module = device.device.create_shader_module(code=text)
            layout = device.device.create_bind_group_layout(
                entries=[_entry(0, "uniform"), *_storage_entries(shader, read_only)]
            )
            known[text] = device.device.create_compute_pipeline(
                layout=device.device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": "main"},
            )
    return known[text]


def _storage_entries(shader: Shader, read_only: Sequence[bool]) -> list[dict[str, Any]]:
    errors = [_entry(1, "storage")] if shader.requires else []
    return errors + [
        _entry(FIRST_REGION + number, "read-only-storage" if is_read_only else "storage")
        for number, is_read_only in enumerate(read_only)
    ]


def _entry(binding: int, kind: str) -> dict[str, Any]:
    # 4 is the compute stage.
    return {"binding": binding, "visibility": 4, "buffer": {"type": kind}}
