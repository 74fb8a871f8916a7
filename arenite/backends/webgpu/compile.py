"""Loops become shaders, and shaders pipelines of a device.

In: built kernels. Out: an image, which is the shaders as JSON, and which of them each kernel is.
WGSL is compiled where it runs: pipelines are made when a program is loaded, and the latest are kept
by their text for the programs that come.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from arenite.backends.webgpu.shader import FIRST_REGION, Shader
from arenite.device.webgpu import WebGpuAllocator
from arenite.errors import DamagedCache
from arenite.program.backend import Code, KernelCode, OnCompiled
from arenite.program.cached_kernel import ModuleText

if TYPE_CHECKING:
    from arenite.codegen.kernels.built import Built

#: Pipelines that are kept on a device when no program has them any more: some hundred take as much
#: memory as a driver has code for them, 0.5 to 2 MB each on lavapipe. And their texts.
MAX_PIPELINES, MAX_TEXTS = 128, 512
#: That make them at the same time.
MAX_THREADS = 8

#: What stands for a module until it is there.
_EMPTY = "@compute @workgroup_size(1) fn main() {}"

_pipelines: WeakKeyDictionary[WebGpuAllocator, OrderedDict[str, Any]] = WeakKeyDictionary()


def compiled(built: Mapping[int, Built], on_progress: OnCompiled | None = None) -> Code:
    """The shaders of kernels, each once however many kernels have it."""
    from arenite.backends.webgpu.lower import lower
    from arenite.codegen import loop_ir as ir
    from arenite.codegen.printer import kernel_text

    shaders: dict[Shader, int] = {}
    kernels: dict[int, KernelCode] = {}
    for number, one in built.items():
        loops = one.loops
        assert isinstance(loops, ir.GroupKernel)
        shader = lower(loops).nameless()
        kernels[number] = KernelCode(
            "main",
            shaders.setdefault(shader, len(shaders)),
            kernel_text(loops),
            ModuleText.of("\n".join(one.text for one in shader.every())),
            global_size=(one.tiles, 1, 1),
            local_size=(loops.threads, 1, 1),
        )
        if on_progress is not None:
            on_progress(len(kernels), len(built))
    image = json.dumps([shader.to_json() for shader in shaders]).encode()
    return Code(image, kernels)


def shaders_of(image: bytes) -> list[Shader]:
    """The shaders of an image."""
    try:
        return [Shader.from_json(one) for one in json.loads(image)] if image else []
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedCache(f"shaders that cannot be read: {error!r}") from None


class BoundShader(NamedTuple):
    """A shader whose arrays each lie in one of its regions, or in some one after another; `name` is
    the kernel's, for errors."""

    name: str
    shader: Shader
    bindings: tuple[tuple[int, ...], ...]
    read_only: tuple[bool, ...]


def pipelines_of(device: WebGpuAllocator, bound: Sequence[BoundShader]) -> list[Any]:
    """The pipelines of shaders; those that are not there yet are made in threads, each once."""
    texts = [_text(one.shader, one.bindings, one.read_only, device.subgroup) for one in bound]
    known = _pipelines.setdefault(device, OrderedDict())
    found = {text: known.get(text) for text in texts}
    missing = {text: one for text, one in zip(texts, bound, strict=True) if found[text] is None}
    if len(missing) > 1:
        with ThreadPoolExecutor(MAX_THREADS, "arenite pipelines") as pool:
            made = pool.map(_pipeline, repeat(device), missing, missing.values())
            found |= zip(missing, made, strict=True)
    else:
        found |= {text: _pipeline(device, text, one) for text, one in missing.items()}
    for text, pipeline in found.items():
        known.pop(text, None)
        known[text] = pipeline  # the latest, and here for whoever comes
    while len(known) > MAX_PIPELINES:
        known.popitem(last=False)
    return [found[text] for text in texts]


@lru_cache(MAX_TEXTS)
def _text(
    shader: Shader,
    bindings: tuple[tuple[int, ...], ...],
    read_only: tuple[bool, ...],
    subgroup: int,
) -> str:
    return shader.module(bindings, read_only, subgroup)


def _pipeline(device: WebGpuAllocator, text: str, bound: BoundShader) -> Any:
    with device.failures(f"compile {bound.name}"):
        is_proven = bound.shader.is_proven
        module = device.device.create_shader_module(code=_EMPTY if is_proven else text)
        if is_proven:
            _make_unchecked(device, module, text)
        kinds = ["read-only-storage" if is_only else "storage" for is_only in bound.read_only]
        regions = [_entry(FIRST_REGION + number, kind) for number, kind in enumerate(kinds)]
        errors = [_entry(1, "storage")] if bound.shader.requires else []
        layout = device.device.create_bind_group_layout(
            entries=[_entry(0, "uniform"), *errors, *regions]
        )
        return device.device.create_compute_pipeline(
            layout=device.device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": module, "entry_point": "main"},
        )


def _make_unchecked(device: WebGpuAllocator, module: Any, text: str) -> None:
    """Have wgpu-py's module stand for one of wgpu-native, which wgpu-py has no call for, whose
    accesses are not looked at; the one it stood for is let go of."""
    from wgpu.backends.wgpu_native import ffi, lib

    code = text.encode()
    kept = ffi.new("char[]", code)
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
    source.code.data, source.code.length = kept, len(code)
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    checks = lib.WGPUShaderRuntimeChecks_None
    empty = module._internal
    module._internal = lib.wgpuDeviceCreateShaderModuleTrusted(
        device.device._internal, descriptor, checks
    )
    lib.wgpuShaderModuleRelease(empty)


def _entry(binding: int, kind: str) -> dict[str, Any]:
    # 4 is the compute stage.
    return {"binding": binding, "visibility": 4, "buffer": {"type": kind}}
