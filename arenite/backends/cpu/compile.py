"""Loops become machine code: one function for all kernels that read the same, linked as one image.

The name of a function follows from its code and so is the same in every program; what was compiled
for one serves the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from arenite.backends.cpu.compiling.kept_kernels import linked_kernels
from arenite.backends.cpu.compiling.link import CodeImage
from arenite.backends.cpu.lowering.lower import lower
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.chosen import nameless_texts
from arenite.codegen.kernels.built import Built
from arenite.errors import CompileFailed
from arenite.program.backend import Code, KernelCode, OnCompiled
from arenite.program.cached_kernel import ModuleText

#: Stands for the name of a kernel where that does not count.
_NAMELESS = "this_kernel"


def compiled(
    built: Mapping[int, Built], target: Target, on_progress: OnCompiled | None = None
) -> Code:
    """The code of these kernels. `on_progress(done, total)` hears how many are compiled."""
    # Layers repeat: kernels that read the same, but for the name, are compiled once.
    texts = nameless_texts(built, _NAMELESS)
    distinct = {text: built[number].loops for number, text in texts.items()}
    functions: dict[str, tuple[str, str]] = {}
    if not distinct:
        return Code(b"", {})
    code = _linked(distinct, functions, target, on_progress)
    modules = {name: ModuleText.of(module) for name, module in functions.values()}
    kernels: dict[int, KernelCode] = {}
    for number, text in texts.items():
        name = functions[text][0]
        shown = text.replace(_NAMELESS, built[number].loops.name)
        kernels[number] = KernelCode(
            name, code.entries[name], shown, modules[name], (built[number].tiles, 1, 1)
        )
    return Code(code.image, kernels)


def _function(loops: ir.LoopKernel, target: Target) -> tuple[str, str]:
    """The name of a kernel's function, and the module it is in, with nothing else."""
    module = lower(replace(loops, name=_NAMELESS), target)
    name = f"kernel_{hashlib.sha256(module.encode()).hexdigest()[:24]}"
    return name, module.replace(f"@{_NAMELESS}", f"@{name}")


def _linked(
    distinct: Mapping[str, ir.LoopKernel],
    functions: dict[str, tuple[str, str]],
    target: Target,
    on_progress: OnCompiled | None,
) -> CodeImage:
    """The code of all kernels, whose functions are made on the way: the first are compiled while
    others are still written. A failure names kernels as people know them."""
    n_twins = n_told = 0  # other loops, the same function

    def tell(n_done: int) -> None:
        nonlocal n_told
        if on_progress is not None and n_done > n_told:
            n_told = n_done
            on_progress(n_done, len(distinct))

    def modules() -> Iterator[str]:
        nonlocal n_twins
        names: set[str] = set()
        # The longest first, so that it is not the one all others wait for at the end.
        for text, loops in sorted(distinct.items(), key=lambda item: -len(item[0])):
            name, module = functions[text] = _function(loops, target)
            if name in names:
                n_twins += 1
            else:
                names.add(name)
                yield module

    if on_progress is not None:
        on_progress(0, len(distinct))
    try:
        image = linked_kernels(modules(), target, lambda done, _: tell(done + n_twins))
    except CompileFailed as failure:
        named = {functions[text][0]: distinct[text].name for text in functions}
        known = [f"{name} is {kernel}" for name, kernel in named.items() if name in str(failure)]
        raise type(failure)("; ".join([str(failure), *known])) from None
    tell(len(distinct))
    return image
