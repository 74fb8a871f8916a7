"""Kernels built as tuning has chosen: a choice for each, found by what the kernel does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.kernels.choose import build
from arenite.codegen.printer import kernel_text
from arenite.codegen.target import Target
from arenite.schedule.kernel import Kernel


def content_of(loops: ir.LoopKernel) -> str:
    """What a kernel does and how it is cut, hashed; its name does not count."""
    text = kernel_text(replace(loops, name="kernel"))
    return hashlib.sha256(text.encode()).hexdigest()


def build_chosen(kernel: Kernel, target: Target, choices: Mapping[str, str]) -> Built:
    """The kernel in its usual form, or as `choices` has it under the content of that form.

    A choice that is none of the kernel's own has no effect.
    """
    usual = build(kernel, target)
    if not choices or not usual.choices:
        return usual
    choice = choices.get(content_of(usual.loops), "")
    return build(kernel, target, choice) if choice in usual.choices[1:] else usual
