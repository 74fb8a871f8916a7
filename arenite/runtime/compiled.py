"""Compiled: what a compiler leaves behind, as plain data that saves to a file and reads back.

Everything an Executable needs to run, and nothing that only compiling needs: code, launches,
values, plan, and texts to show. Constants that belong to the graph are not saved with it: the graph
has them, in a fixed order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite import dtype as dtypes
from arenite.dtype import DType
from arenite.errors import AreniteError, DamagedCache
from arenite.ir.dim import Dim, Floordiv, Found, Positive, Var, maximum, product
from arenite.ir.node import Origin
from arenite.memory import MemoryPlan, ValueId
from arenite.memory.values import ARENA_REGIONS
from arenite.runtime.assemble import LaunchSpec
from arenite.runtime.kernel import CachedKernel, ModuleText, Program
from arenite.runtime.steps import Cell, HostSpec, Pointer, Step, StepKind, written

if TYPE_CHECKING:
    from arenite.ir.graph import Graph
    from arenite.ir.ops.host import HostFunction

SCHEMA = 5
#: Stands for the name of a kernel in saved texts.
NAME = "\0"

#: Where values of each kind are; but for those of `work` they live as long as the program.
REGIONS = {
    "constant": "mapped",
    "input": "io",
    "output": "io",
    "packed": "packed",
    "state": "state",
    "work": "work",
}


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """A value in memory: an `input`, an `output`, a `constant`, `work` between kernels, `packed`,
    which is made once, at load, or a `state`, which lives from run to run; or a `pointer`, whose
    bytes are those of its targets in turn.

    `source` is the number of the input, constant or state, or the cell of the pointer. Constants
    of the graph count from 0 on, those of the program (made while compiling) below: -1 is the first
    of these.
    """

    kind: str
    name: str
    shape: tuple[Dim, ...]
    dtype: DType
    nbytes: Dim
    source: int = 0
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Compiled:
    """One program: `outputs` are numbers of values."""

    image: bytes
    load_kernels: tuple[CachedKernel, ...]
    load: tuple[LaunchSpec, ...]  # run once, in this order, before the first run
    kernels: tuple[CachedKernel, ...]
    launches: tuple[LaunchSpec, ...]
    values: tuple[ValueSpec, ...]
    outputs: tuple[int, ...]
    constants: tuple[NDArray[Any], ...]
    plan: MemoryPlan
    steps: tuple[Step, ...]
    cells: tuple[Cell, ...]
    found: Mapping[str, int]  # cells of the sizes that are found while running
    late: Mapping[Dim, int]  # cells of the sizes that depend on these
    hosts: tuple[HostSpec, ...]

    def __str__(self) -> str:
        """The steps, one a line."""
        return written(self.steps, [launch.name for launch in self.launches])

    @property
    def pointers(self) -> dict[ValueId, Pointer]:
        return {
            number: Pointer(value.source, value.targets)
            for number, value in enumerate(self.values)
            if value.kind == "pointer"
        }

    def sections(self) -> dict[str, bytes]:
        """As sections of a model file."""
        kernels = (*self.load_kernels, *self.kernels)
        codes = {code: k for k, code in enumerate(dict.fromkeys(map(_nameless, kernels)))}
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "kernels": [_kernel_to_json(kernel, codes) for kernel in kernels],
            "codes": list(codes),
            "launches": [_launch_to_json(launch) for launch in (*self.load, *self.launches)],
            "n_load": len(self.load),
            "values": [_value_to_json(value) for value in self.values],
            "outputs": self.outputs,
            "steps": [[s.kind.value, s.a, s.b, s.c, s.instructions] for s in self.steps],
            "cells": [_cell_to_json(cell) for cell in self.cells],
            "found": self.found,
            "hosts": [[h.function, h.reads, h.write, h.addresses] for h in self.hosts],
            "late": [[dim_to_json(size), cell] for size, cell in self.late.items()],
            "constants": [[str(array.dtype), array.shape] for array in self.constants],
        }
        joined = b"".join(array.tobytes() for array in self.constants)
        modules = list(dict.fromkeys(kernel.module for kernel in kernels))
        data["module_of"] = [modules.index(kernel.module) for kernel in kernels]
        data["modules"] = [len(module.packed) for module in modules]
        return {
            "code": self.image,
            "program": json.dumps(data).encode(),
            "plan": self.plan.to_json().encode(),
            "data": joined,
            "llvm": b"".join(module.packed for module in modules),
        }

    @classmethod
    def from_sections(cls, sections: Mapping[str, memoryview]) -> Compiled:
        """Read a program back; DamagedCache when it is not one."""
        try:
            data = json.loads(bytes(sections["program"]))
            if data["schema"] != SCHEMA:
                raise DamagedCache(f"a program of schema {data['schema']}, not {SCHEMA}")
            modules = _modules(data["modules"], sections["llvm"])
            kernels = tuple(
                _kernel_from_json(kernel, modules[module], data["codes"])
                for kernel, module in zip(data["kernels"], data["module_of"], strict=True)
            )
            launches = tuple(map(_launch_from_json, data["launches"]))
            n_load = int(data["n_load"])
            program = cls(
                image=bytes(sections["code"]),
                load_kernels=kernels[:n_load],
                load=launches[:n_load],
                kernels=kernels[n_load:],
                launches=launches[n_load:],
                values=tuple(map(_value_from_json, data["values"])),
                outputs=tuple(map(int, data["outputs"])),
                constants=_constants(data["constants"], sections["data"]),
                plan=MemoryPlan.from_json(bytes(sections["plan"]).decode(), is_proven=True),
                steps=tuple(map(_step_from_json, data["steps"])),
                cells=tuple(map(_cell_from_json, data["cells"])),
                found={str(name): int(cell) for name, cell in data["found"].items()},
                late={dim_from_json(size): int(cell) for size, cell in data["late"]},
                hosts=tuple(map(_host_from_json, data["hosts"])),
            )
            program.check()
        except DamagedCache:
            raise
        except (AreniteError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise DamagedCache(f"a program that cannot be read: {error!r}") from None
        return program

    def check(self) -> None:
        """That every number names something; kernels trust the addresses made from them."""
        n = len(self.values)
        for launch in (*self.load, *self.launches):
            if not 0 <= launch.entry < len(self.image):
                raise DamagedCache(f"launch {launch.name} begins behind the code")
            if any(not 0 <= int(k) < n for k in (*launch.arrays, *launch.reads, *launch.writes)):
                raise DamagedCache(f"launch {launch.name} names a value there is not")
        for value in self.values:
            if value.kind == "pointer":
                if not 0 <= value.source < len(self.cells) or not value.targets:
                    raise DamagedCache(f"value {value.name!r} points nowhere")
                if any(not 0 <= k < n for k in value.targets):
                    raise DamagedCache(f"value {value.name!r} points to a value there is not")
                continue
            slot = self.plan.slots.get(value.name)
            if slot is None or slot.nbytes < 0:
                raise DamagedCache(f"value {value.name!r} is not in the plan")
            if slot.region in ARENA_REGIONS and slot.end > self.plan.peak_nbytes:
                raise DamagedCache(f"value {value.name!r} lies behind the end of the arena")
            is_source = slot.region == "source" and value.kind == "constant"
            if slot.region != REGIONS.get(value.kind) and not is_source:
                raise DamagedCache(f"value {value.name!r} is no {value.kind} of the plan")
        if any(not 0 <= k < n for k in self.outputs) or len(self.kernels) != len(self.launches):
            raise DamagedCache("outputs or kernels do not fit the values")
        self._check_steps()

    def _check_nesting(self) -> None:
        around: list[StepKind] = []
        closed_by: dict[StepKind, tuple[StepKind, ...]] = {
            StepKind.ELSE: (StepKind.IF,),
            StepKind.END: (StepKind.IF, StepKind.ELSE),
            StepKind.NEXT: (StepKind.LOOP,),
        }
        for step in self.steps:
            if step.kind in closed_by and (not around or around.pop() not in closed_by[step.kind]):
                raise DamagedCache(f"a step {step.kind.value} closes nothing")
            if step.kind in (StepKind.IF, StepKind.ELSE, StepKind.LOOP):
                around.append(step.kind)
        if around:
            raise DamagedCache(f"a step {around[-1].value} is not closed")

    def _check_steps(self) -> None:
        numbers = [step.a for step in self.steps if step.kind is StepKind.LAUNCH]
        if numbers != list(range(len(self.launches))):
            raise DamagedCache("the steps are not those of the launches")
        self._check_nesting()
        used = [k for step in self.steps for one in step.instructions for k in one[1:]]
        for step in self.steps:
            if step.kind is StepKind.IF:
                used.append(step.a)
            elif step.kind is StepKind.LOOP:
                used += [step.a, step.b, step.c]
        used += [*self.found.values(), *self.late.values()]
        used += [cell for host in self.hosts for cell in host.addresses]
        calls = [step.a for step in self.steps if step.kind is StepKind.HOST]
        if calls != list(range(len(self.hosts))):
            raise DamagedCache("the steps are not those of the calls of the host")
        named = [int(k) for host in self.hosts for k in (*host.reads, host.write)]
        if any(not 0 <= k < len(self.values) for k in named) or any(
            len(host.addresses) != len(host.reads) + 1 for host in self.hosts
        ):
            raise DamagedCache("a call of the host names a value there is not")
        if any(not -1 <= k < len(self.cells) for k in used):
            raise DamagedCache("a step names a cell there is not")
        if any(
            cell.address is not None and not 0 <= int(cell.address) < len(self.values)
            for cell in self.cells
        ):
            raise DamagedCache("a cell has the address of a value there is not")


def functions_of(graph: Graph) -> list[HostFunction]:
    """The functions of the host that a graph calls, in the order saved programs count them by."""
    calls = (node for node in graph.everything if node.op == "host")
    return list(dict.fromkeys(node.attr("function") for node in calls))


def dim_to_json(dim: Dim) -> int | str:
    """A number, or a text: of the many sizes of a program few are different, and each text is read
    once."""
    return dim if isinstance(dim, int) else json.dumps(_dim_to_tree(dim))


def dim_from_json(data: Any) -> Dim:
    return data if type(data) is int else _dim_of(str(data))


@lru_cache(maxsize=4096)
def _dim_of(text: str) -> Dim:
    return _dim_from_tree(json.loads(text))


def _dim_to_tree(dim: Dim) -> Any:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Var):
        kind = "found" if isinstance(dim, Found) else "var"
        return {kind: [dim.name, dim.low, dim.high]}
    if isinstance(dim, Floordiv):
        return {"div": [_dim_to_tree(dim.numerator), _dim_to_tree(dim.divisor)]}
    if isinstance(dim, Positive):
        return {"positive": _dim_to_tree(dim.inner)}
    return {"sum": [[number, [_dim_to_tree(a) for a in atoms]] for atoms, number in dim.terms]}


def _dim_from_tree(data: Any) -> Dim:
    if type(data) is int:
        return data
    [(kind, content)] = data.items()
    if kind in ("var", "found"):
        name, low, high = content
        return (Found if kind == "found" else Var)(name, low, high)
    if kind == "div":
        return _dim_from_tree(content[0]) // _dim_from_tree(content[1])
    if kind == "positive":
        return maximum(_dim_from_tree(content), 0)
    total: Dim = 0
    for number, atoms in content:
        total = total + product([int(number), *map(_dim_from_tree, atoms)])
    return total


def _host_from_json(data: list[Any]) -> HostSpec:
    function, reads, write, addresses = data
    return HostSpec(int(function), tuple(map(int, reads)), int(write), tuple(map(int, addresses)))


def _dims_to_json(dims: tuple[Dim, ...]) -> list[Any]:
    return [dim_to_json(dim) for dim in dims]


def _dims_from_json(data: list[Any]) -> tuple[Dim, ...]:
    return tuple(map(dim_from_json, data))


def _value_to_json(value: ValueSpec) -> list[Any]:
    shape = _dims_to_json(value.shape)
    dtype = value.dtype.name
    nbytes = dim_to_json(value.nbytes)
    return [value.kind, value.name, shape, dtype, nbytes, value.source, value.targets]


def _value_from_json(data: list[Any]) -> ValueSpec:
    kind, name, shape, dtype, nbytes, source, targets = data
    return ValueSpec(
        str(kind),
        str(name),
        _dims_from_json(shape),
        dtypes.of(str(dtype)),
        dim_from_json(nbytes),
        int(source),
        tuple(map(int, targets)),
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


def _launch_to_json(launch: LaunchSpec) -> list[Any]:
    return [
        launch.name,
        launch.entry,
        launch.arrays,
        launch.reads,
        launch.writes,
        _dims_to_json(launch.sizes),
        dim_to_json(launch.tiles),
        launch.cost_ns,
    ]


def _launch_from_json(data: list[Any]) -> LaunchSpec:
    name, entry, arrays, reads, writes, sizes, tiles, cost_ns = data
    return LaunchSpec(
        str(name),
        int(entry),
        tuple(map(int, arrays)),
        tuple(map(int, reads)),
        tuple(map(int, writes)),
        _dims_from_json(sizes),
        dim_from_json(tiles),
        int(cost_ns),
    )


def _nameless(kernel: CachedKernel) -> str:
    """Its code; layers repeat, and so do texts that differ in the name alone."""
    return kernel.code.replace(kernel.entry_point, NAME)


def _kernel_to_json(kernel: CachedKernel, codes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": kernel.entry_point,
        "function": kernel.program.entry_point,
        "offset": kernel.program.offset,
        "code": codes[_nameless(kernel)],
        "vars": kernel.var_names,
        "globals": kernel.globals,
        "outs": kernel.outs,
        "ins": kernel.ins,
        "tiles": dim_to_json(kernel.global_size[0]),
        "reads": dim_to_json(kernel.reads_nbytes),
        "writes": dim_to_json(kernel.writes_nbytes),
        "operations": dim_to_json(kernel.operations),
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
    data: dict[str, Any], module: ModuleText, codes: Sequence[str]
) -> CachedKernel:
    return CachedKernel(
        program=Program(str(data["function"]), int(data["offset"])),
        device="cpu",
        code=str(codes[data["code"]]).replace(NAME, str(data["name"])),
        entry_point=str(data["name"]),
        var_names=tuple(map(str, data["vars"])),
        globals=tuple(map(int, data["globals"])),
        outs=tuple(map(int, data["outs"])),
        ins=tuple(map(int, data["ins"])),
        host_parallel_safe=True,
        global_size=(dim_from_json(data["tiles"]), 1, 1),
        local_size=None,
        module=module,
        reads_nbytes=dim_from_json(data["reads"]),
        writes_nbytes=dim_from_json(data["writes"]),
        operations=dim_from_json(data["operations"]),
        border=str(data["border"]),
        origins=tuple(Origin(str(f), int(line), str(n)) for f, line, n in data["origins"]),
    )


def _constants(kinds: list[Any], joined: memoryview) -> tuple[NDArray[Any], ...]:
    arrays = []
    at = 0
    for name, shape in kinds:
        numpy_dtype = dtypes.of(str(name)).to_numpy()
        count = int(np.prod(shape, dtype=np.int64))
        nbytes = count * numpy_dtype.itemsize
        if count < 0 or at + nbytes > len(joined):
            raise DamagedCache("a constant lies behind the end of the data")
        raw = np.frombuffer(bytes(joined[at : at + nbytes]), numpy_dtype)
        arrays.append(raw.reshape(tuple(map(int, shape))))
        at += nbytes
    return tuple(arrays)
