"""The objects of a program as JSON, and back: launches, values, steps, cells, kernels.

What reads them takes any numbers; `program_check` says whether they name something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arenite.ir.dim import Dim
from arenite.program.cached_kernel import CachedKernel, KernelArray, ModuleText, Program
from arenite.program.launch import Launch
from arenite.program.record_json import dim_from_json, fields_from_json, record_from_json, to_json
from arenite.program.steps import Cell, Step
from arenite.program.value_spec import ValueSpec

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


#: Of each part that is a row of records, what these are.
_RECORDS = {"load": Launch, "launches": Launch, "values": ValueSpec, "steps": Step, "cells": Cell}


def objects_to_json(program: Compiled) -> dict[str, Any]:
    found = {part: to_json(tuple(getattr(program, part))) for part in _RECORDS}
    return found | {"late": to_json(tuple(program.late.items()))}


def objects_from_json(data: Mapping[str, Any]) -> Objects:
    rows: dict[str, Any] = {
        part: tuple(record_from_json(kind, one) for one in data[part])
        for part, kind in _RECORDS.items()
    }
    return Objects(**rows, late={dim_from_json(size): int(cell) for size, cell in data["late"]})


def kernels_to_json(kernels: Sequence[CachedKernel]) -> dict[str, Any]:
    codes = {code: k for k, code in enumerate(dict.fromkeys(map(nameless, kernels)))}
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


def nameless(kernel: CachedKernel) -> str:
    """Its code; layers repeat, and so do texts that differ in the name alone."""
    return kernel.code.replace(kernel.entry_point, NAME)


#: What is kept of a kernel as it is.
_KERNEL_FIELDS = (
    *("outs", "ins", "global_size", "local_size", "host_parallel_safe", "reads_nbytes"),
    *("writes_nbytes", "arithmetic", "border", "origins"),
)


def _kernel_to_json(kernel: CachedKernel, codes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "function": kernel.program.entry_point,
        "code": codes[nameless(kernel)],
        "roles": [array.role for array in kernel.arrays],
        "fields": {name: to_json(getattr(kernel, name)) for name in _KERNEL_FIELDS},
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
        arrays=tuple(
            KernelArray(str(role), value.dtype, value.nbytes)
            for role, value in zip(data["roles"], values, strict=True)
        ),
        module=module,
        **fields_from_json(CachedKernel, data["fields"]),
    )
