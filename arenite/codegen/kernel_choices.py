"""Kernels built as tuning has chosen: a choice for each, found by what the kernel does.

Layers repeat, and so do their kernels: those that are alike in all but their values are built, and
printed, once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.printer import kernel_text
from arenite.ir import OPS, Node
from arenite.schedule.kernel import Kernel
from arenite.schedule.roots import is_in_memory


def content_of(loops: ir.LoopKernel) -> str:
    """What a kernel does and how it is cut, hashed; its name does not count."""
    text = kernel_text(replace(loops, name="kernel"))
    return hashlib.sha256(text.encode()).hexdigest()


#: The loops of a kernel, cut as usual ("") or as one of its choices says.
Build: TypeAlias = Callable[[Kernel, str], Built]


def build_chosen(kernel: Kernel, build: Build, choices: Mapping[str, str]) -> Built:
    """The kernel in its usual form, or as `choices` has it under the content of that form.

    A choice that is none of the kernel's own has no effect.
    """
    usual = build(kernel, "")
    if not choices or not usual.choices:
        return usual
    choice = choices.get(content_of(usual.loops), "")
    return build(kernel, choice) if choice in usual.choices[1:] else usual


def build_each(
    kernels: Iterable[Kernel], build: Build, choices: Mapping[str, str]
) -> Iterator[tuple[int, Built]]:
    """`build_chosen` of each kernel, with its number."""
    known: dict[Hashable, Built] = {}
    for kernel in kernels:
        key = form_of(kernel)
        one = known.get(key)
        if one is None:
            one = known[key] = build_chosen(kernel, build, choices)
        elif one.loops.name != kernel.name:
            one = replace(one, loops=replace(one.loops, name=kernel.name))
        yield kernel.number, one


def nameless_texts(built: Mapping[int, Built], name: str) -> dict[int, str]:
    """The text of each kernel as if it had this name."""
    texts: dict[Hashable, str] = {}
    found: dict[int, str] = {}
    for number, one in built.items():
        key = parts_of(one.loops)
        if key not in texts:
            texts[key] = kernel_text(replace(one.loops, name=name))
        found[number] = texts[key]
    return found


def parts_of(loops: ir.LoopKernel) -> Hashable:
    """The same for kernels that have the same objects in all their fields but the name, as those
    have that were built once; while who has one of them keeps it."""
    others = [getattr(loops, field.name) for field in fields(loops) if field.name != "name"]
    return (type(loops), *map(id, others))


def form_of(kernel: Kernel) -> Hashable:
    """All of a kernel that its loops follow from: equal for kernels that differ in what they are
    called, where they come from and which values they read."""
    numbers: dict[Node, int] = {}
    nodes: list[Hashable] = []
    inputs = set(kernel.inputs)
    pending = [*reversed(kernel.inputs), *(stage.node for stage in reversed(kernel.stages))]
    while pending:
        node = pending[-1]
        parts = () if node in inputs else node.inputs
        missing = [part for part in parts if part not in numbers]
        if missing and node not in numbers:
            pending += missing
            continue
        pending.pop()
        if node in numbers:
            continue
        numbers[node] = len(numbers)
        below = tuple(map(_type_of, node.inputs)) if node in inputs else ()
        nodes.append((_type_of(node), below, tuple(numbers[part] for part in parts)))
    pairs = [
        tuple((numbers[a], numbers[b]) for a, b in some)
        for some in (kernel.in_place, kernel.overwrites)
    ]
    return (
        tuple(nodes),
        tuple((numbers[stage.node], stage.role) for stage in kernel.stages),
        *(tuple(numbers[node] for node in side) for side in (kernel.inputs, kernel.outputs)),
        *pairs,
        kernel.space,
        kernel.axes,
        (kernel.n_ops, kernel.n_outer_ops, kernel.map_cost, kernel.given_nbytes),
    )


def _type_of(node: Node) -> Hashable:
    """The op with its attributes; of values that are given, their type alone."""
    own = () if is_in_memory(node) or OPS[node.op].is_construct else node.attr_keys
    return node.op, own, node.shape, node.dtype
