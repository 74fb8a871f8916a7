"""The objects of a program as JSON, and back: launches, values, steps, cells, kernels.

What reads them takes any numbers; `program_check` says whether they name something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arenite.ir.dim import Dim
from arenite.ir.node import Origin
from arenite.program.cached_kernel import CachedKernel, KernelArray, ModuleText, Program
from arenite.program.dim_json import dim_from_json, dim_to_json
from arenite.program.launch import Launch
from arenite.program.steps import Cell, Step, StepKind
from arenite.program.value_spec import (
    ValueSpec,
    dims_from_json,
    dims_to_json,
    value_from_json,
    value_to_json,
)

if TYPE_CHECKING:
    from arenite.program.compiled import Compiled

#: Stands for the name of a kernel in saved texts.
NAME = "\0"


@dataclass(frozen=True, slots=True)
class Objects:
    """What of a program is read when it is looked at."""

    load: tuple[Launch, ...]
    launches: tuple[Launch, ...]
    values: tuple[ValueSpec, ...]
    steps: tuple[Step, ...]
    cells: tuple[Cell, ...]
    late: Mapping[Dim, int]


def objects_to_json(program: Compiled) -> dict[str, Any]:
    return {
        "load": [_launch_to_json(launch) for launch in program.load],
        "launches": [_launch_to_json(launch) for launch in program.launches],
        "values": [value_to_json(value) for value in program.values],
        "steps": [[s.kind.value, s.a, s.b, s.c, s.instructions] for s in program.steps],
        "cells": [_cell_to_json(cell) for cell in program.cells],
        "late": [[dim_to_json(size), cell] for size, cell in program.late.items()],
    }


def objects_from_json(data: Mapping[str, Any]) -> Objects:
    return Objects(
        tuple(map(_launch_from_json, data["load"])),
        tuple(map(_launch_from_json, data["launches"])),
        tuple(map(value_from_json, data["values"])),
        tuple(map(_step_from_json, data["steps"])),
        tuple(map(_cell_from_json, data["cells"])),
        {dim_from_json(size): int(cell) for size, cell in data["late"]},
    )


def kernels_to_json(kernels: Sequence[CachedKernel]) -> dict[str, Any]:
    codes = {code: k for k, code in enumerate(dict.fromkeys(map(_nameless, kernels)))}
    modules = list(dict.fromkeys(kernel.module for kernel in kernels))
    return {
        "kernels": [_kernel_to_json(kernel, codes) for kernel in kernels],
        "codes": list(codes),
        "module_of": [modules.index(kernel.module) for kernel in kernels],
        "modules": [len(module.packed) for module in modules],
    }


def joined_modules(kernels: Sequence[CachedKernel]) -> bytes:
    """The texts of their modules, in the order that `kernels_to_json` counts them by."""
    return b"".join(module.packed for module in dict.fromkeys(one.module for one in kernels))


def kernels_from_json(
    data: Mapping[str, Any], program: Compiled, joined: memoryview
) -> tuple[CachedKernel, ...]:
    modules = _modules(data["modules"], joined)
    launches = (*program.load, *program.launches)
    return tuple(
        _kernel_from_json(kernel, launch, program, modules[module], data["codes"])
        for kernel, launch, module in zip(data["kernels"], launches, data["module_of"], strict=True)
    )


def _step_from_json(data: list[Any]) -> Step:
    kind, a, b, c, instructions = data
    program = []
    for given in instructions:
        op, dst, first, second = map(int, given)
        program.append((op, dst, first, second))
    return Step(StepKind(kind), int(a), int(b), int(c), tuple(program))


def _cell_to_json(cell: Cell) -> list[Any]:
    if cell.size is not None:
        return ["size", dim_to_json(cell.size)]
    return ["run", 0] if cell.address is None else ["address", cell.address]


def _cell_from_json(data: list[Any]) -> Cell:
    kind, content = data
    if kind == "size":
        return Cell(size=dim_from_json(content))
    return Cell(address=int(content)) if kind == "address" else Cell()


def _launch_to_json(launch: Launch) -> list[Any]:
    return [
        launch.name,
        launch.entry,
        launch.arrays,
        launch.reads,
        launch.writes,
        dims_to_json(launch.sizes),
        dim_to_json(launch.tiles),
        launch.cost_ns,
        launch.parts,
    ]


def _launch_from_json(data: list[Any]) -> Launch:
    name, entry, arrays, reads, writes, sizes, tiles, cost_ns, parts = data
    return Launch(
        str(name),
        int(entry),
        tuple(map(int, arrays)),
        tuple(map(int, reads)),
        tuple(map(int, writes)),
        dims_from_json(sizes),
        dim_from_json(tiles),
        int(cost_ns),
        tuple((int(k), int(start), int(end)) for k, start, end in parts),
    )


def _nameless(kernel: CachedKernel) -> str:
    """Its code; layers repeat, and so do texts that differ in the name alone."""
    return kernel.code.replace(kernel.entry_point, NAME)


def _kernel_to_json(kernel: CachedKernel, codes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "function": kernel.program.entry_point,
        "code": codes[_nameless(kernel)],
        "outs": kernel.outs,
        "ins": kernel.ins,
        "roles": [array.role for array in kernel.arrays],
        "global": dims_to_json(kernel.global_size),
        "local": None if kernel.local_size is None else dims_to_json(kernel.local_size),
        "parallel": kernel.host_parallel_safe,
        "reads": dim_to_json(kernel.reads_nbytes),
        "writes": dim_to_json(kernel.writes_nbytes),
        "arithmetic": {name: dim_to_json(dim) for name, dim in kernel.arithmetic.items()},
        "border": kernel.border,
        "origins": [[o.file, o.line, o.name] for o in kernel.origins],
    }


def _modules(sizes: list[int], joined: memoryview) -> list[ModuleText]:
    modules, at = [], 0
    for size in sizes:
        modules.append(ModuleText(bytes(joined[at : at + size])))
        at += size
    return modules


def _kernel_from_json(
    data: dict[str, Any],
    launch: Launch,
    program: Compiled,
    module: ModuleText,
    codes: Sequence[str],
) -> CachedKernel:
    values = [program.values[int(number)] for number in launch.arrays]
    return CachedKernel(
        launch=launch,
        program=Program(str(data["function"]), launch.entry, program.image),
        device=program.options.device,
        code=str(codes[data["code"]]).replace(NAME, launch.name),
        outs=tuple(map(int, data["outs"])),
        ins=tuple(map(int, data["ins"])),
        arrays=tuple(
            KernelArray(str(role), value.dtype, value.nbytes)
            for role, value in zip(data["roles"], values, strict=True)
        ),
        global_size=_three(data["global"]),
        local_size=None if data["local"] is None else _three(data["local"]),
        host_parallel_safe=bool(data["parallel"]),
        module=module,
        reads_nbytes=dim_from_json(data["reads"]),
        writes_nbytes=dim_from_json(data["writes"]),
        arithmetic={str(name): dim_from_json(dim) for name, dim in data["arithmetic"].items()},
        border=str(data["border"]),
        origins=tuple(Origin(str(f), int(line), str(n)) for f, line, n in data["origins"]),
    )


def _three(data: list[Any]) -> tuple[Dim, Dim, Dim]:
    x, y, z = map(dim_from_json, data)
    return x, y, z
