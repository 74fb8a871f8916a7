"""Kernels become functions of C; those that are alike but for their names become one."""

from __future__ import annotations

from collections.abc import Mapping

from arenite.backends.c.c_types import Names
from arenite.backends.c.kernel import CKernel, kernel_source
from arenite.backends.c.layout import Image
from arenite.codegen.kernel_choices import nameless_texts
from arenite.codegen.kernels.built import Built
from arenite.program.backend import Code, KernelCode, OnCompiled
from arenite.program.cached_kernel import CachedKernel, ModuleText

_NAMELESS = "this_kernel"


def compiled(built: Mapping[int, Built], on_progress: OnCompiled | None = None) -> Code:
    """The functions of kernels; `entry` counts them."""
    taken = Names()
    texts = nameless_texts(built, _NAMELESS)
    known: dict[str, tuple[int, CKernel, ModuleText]] = {}
    kernels: dict[int, KernelCode] = {}
    for k, (number, one) in enumerate(built.items()):
        if on_progress is not None:
            on_progress(k, len(built))
        text, name = texts[number], one.loops.name
        if text not in known:
            function = kernel_source(one.loops, taken.take(name))
            known[text] = len(known), function, ModuleText.of(function.text)
        entry, function, module = known[text]
        code, size = text.replace(_NAMELESS, name), (one.tiles, 1, 1)
        kernels[number] = KernelCode(function.name, entry, code, module, size)
    if on_progress is not None:
        on_progress(len(built), len(built))
    image = Image({function.name: function for _, function, _ in known.values()})
    return Code(image.to_bytes(), kernels)


def assembly(kernel: CachedKernel) -> str:
    """What the system's compiler makes of a kernel."""
    from arenite.backends.c.launch import kernel_file
    from arenite.backends.c.shared_object import FLAGS, compiled_files

    flags = [flag for flag in FLAGS if flag != "-shared"]
    return compiled_files({"kernel.c": kernel_file(kernel)}, [*flags, "-S"], "kernel.s").decode()
