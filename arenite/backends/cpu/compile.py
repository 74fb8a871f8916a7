"""Loops become machine code: one function for all kernels that read the same, linked as one image.

The name of a function follows from its code and so is the same in every program; what was compiled
for one serves the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from arenite.backends.cpu.compiling.kernel_cache import linked_kernels
from arenite.backends.cpu.compiling.link import CodeImage
from arenite.backends.cpu.lowering.lower import lower
from arenite.backends.cpu.target import Target
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernel_choices import nameless_texts, parts_of
from arenite.codegen.kernels.built import Built
from arenite.codegen.numbers import stays
from arenite.errors import CompileFailed
from arenite.program.backend import BuiltKernels, Code, KernelCode, OnCompiled
from arenite.program.cached_kernel import ModuleText

#: Stands for the name of a kernel where that does not count.
_NAMELESS = "this_kernel"


def compiled(kernels: BuiltKernels, target: Target, on_progress: OnCompiled | None = None) -> Code:
    """The code of these kernels. `on_progress(done, total)` hears how many are compiled."""
    functions = _Functions(kernels, target, on_progress or (lambda done, total: None))
    image = functions.linked()
    if image is None:
        return Code(b"", {})
    built, texts = functions.built, functions.texts
    made: dict[int, KernelCode] = {}
    for number, text in texts.items():
        name = functions.of_text[text]
        shown = text.replace(_NAMELESS, built[number].loops.name)
        module = functions.modules[name]
        made[number] = KernelCode(
            name, image.entries[name], shown, module, (built[number].tiles, 1, 1)
        )
    return Code(image.image, made)


class _Functions:
    """The functions of kernels, with the modules that they are in, as they are made."""

    def __init__(self, kernels: BuiltKernels, target: Target, on_progress: OnCompiled) -> None:
        self._kernels = kernels
        self._target = target
        self._on_progress = on_progress
        self._early: dict[Hashable, tuple[ir.LoopKernel, str]] = {}
        self._n_twins = 0  # other loops, the same function
        self._n_told = -1
        #: Once all kernels are built: these, their texts but for their names, and what is compiled.
        self.built: Mapping[int, Built] = {}
        self.texts: dict[int, str] = {}
        self.distinct: dict[str, ir.LoopKernel] = {}
        self.of_text: dict[str, str] = {}  # names of functions
        self.modules: dict[str, ModuleText] = {}  # by these

    def texts_of_modules(self) -> Iterator[str]:
        """The modules to compile, each once: first of kernels that stay as they are, while others
        are still built."""
        looked_at: set[Hashable] = set()
        for one in self._kernels:
            key = parts_of(one.loops)
            if key in looked_at:
                continue
            looked_at.add(key)
            if stays(one.loops):
                name, new = self._function(one.loops)
                self._early[key] = one.loops, name
                yield from new
        self.built = self._kernels.by_number()
        # Layers repeat: kernels that read the same, but for the name, are compiled once.
        self.texts = nameless_texts(self.built, _NAMELESS)
        self.distinct = {text: self.built[number].loops for number, text in self.texts.items()}
        self.tell(0)
        seen: set[str] = set()
        # The longest first, so that it is not the one all others wait for at the end.
        for text, loops in sorted(self.distinct.items(), key=lambda item: -len(item[0])):
            early = self._early.get(parts_of(loops))
            name, new = (early[1], ()) if early is not None else self._function(loops)
            self.of_text[text] = name
            self._n_twins += name in seen
            seen.add(name)
            yield from new

    def _function(self, loops: ir.LoopKernel) -> tuple[str, Sequence[str]]:
        """The name of a kernel's function, and the module it is in, with nothing else, unless
        another kernel had the same."""
        module = lower(replace(loops, name=_NAMELESS), self._target)
        name = f"kernel_{hashlib.sha256(module.encode()).hexdigest()[:24]}"
        if name in self.modules:
            return name, ()
        text = module.replace(f"@{_NAMELESS}", f"@{name}")
        self.modules[name] = ModuleText.of(text)
        return name, (text,)

    def tell(self, n_done: int) -> None:
        """So many modules are compiled; who listens hears of kernels, once it is known of how
        many."""
        n_done = min(n_done + self._n_twins, len(self.distinct))
        if self.distinct and n_done > self._n_told:
            self._n_told = n_done
            self._on_progress(n_done, len(self.distinct))

    def linked(self) -> CodeImage | None:
        """The code of all; None where there are none. A failure names kernels as people know
        them."""
        modules = self.texts_of_modules()
        first = [*islice(modules, 1)]
        if not first:
            return None
        coming = chain(first, modules)
        try:
            image = linked_kernels(coming, self._target, lambda done, _: self.tell(done))
        except CompileFailed as failure:
            named = {name: loops.name for loops, name in self._early.values()}
            named |= {name: self.distinct[text].name for text, name in self.of_text.items()}
            known = [f"{name} is {one}" for name, one in named.items() if name in str(failure)]
            raise type(failure)("; ".join([str(failure), *known])) from None
        self.tell(len(self.distinct))
        return image
