"""The steps of a program as statements of C: launches, branches, loops, and what is computed with
registers, which are variables `c0`, `c1`, ..."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arenite.backends.c.c_types import commented
from arenite.backends.c.helpers import Helpers
from arenite.backends.c.kernel import wrapped
from arenite.backends.c.layout import Layout
from arenite.errors import NotCompiled
from arenite.ir.dim import Dim, Found, Var, found_in, variables
from arenite.memory.values import ARENA_REGIONS
from arenite.program.cached_kernel import CachedKernel
from arenite.program.launch import Launch
from arenite.program.steps import NO_CONDITION, ZERO, Instruction, Step, StepKind
from arenite.program.table import Ins


@dataclass(frozen=True, slots=True)
class Context:
    """What the functions of a program have in common."""

    layout: Layout
    helpers: Helpers
    dim: Callable[[Dim], str]  # a size, over the arguments of `run` and what it has found
    status: str  # the variable with the error that ended a run


class Body:
    """The steps of one function."""

    def __init__(
        self, context: Context, launches: Sequence[Launch], kernels: Sequence[CachedKernel]
    ) -> None:
        self.context, self.layout = context, context.layout
        self.compiled = context.layout.compiled
        self.launches, self.kernels = launches, kernels
        self.used: dict[int, None] = {}  # values
        self.used_cells: dict[int, None] = {}
        self.named: set[str] = set()  # parameters that something reads
        self.depth = 1
        self.has_error = False

    # What a body refers to.

    def pointer(self, number: int) -> str:
        value = self.compiled.values[number]
        if value.kind == "pointer":
            return f"(void *)(uintptr_t){self.cell(value.source)}"
        self.used[number] = None
        name = self.layout.values[number]
        self.named.add(name)
        is_plain = value.kind not in ("input", "output") or value.dtype.name in _PLAIN
        if is_plain:
            return name
        return f"({'const ' if value.kind == 'input' else ''}void *){name}"

    def cell(self, number: int) -> str:
        if number == ZERO:
            return "0"
        if number not in self.used_cells:
            self.used_cells[number] = None
            cell = self.compiled.cells[number]
            if cell.address is not None:
                self.pointer(int(cell.address))
            if cell.size is not None:
                self.size(cell.size)
        return f"c{number}"

    def size(self, dim: Dim) -> str:
        for var in variables(dim):
            if isinstance(var, Found):
                self.cell(self.compiled.found[var.name])
            else:
                self.named.add(self.layout.sizes[var])
        text = self.context.dim(dim)
        if found_in(dim) and dim in self.compiled.late:
            self.cell(self.compiled.late[dim])
        return text

    @property
    def uses_arena(self) -> bool:
        return any(self.compiled.values[k].kind in ARENA_REGIONS for k in self.used)

    @property
    def uses_weights(self) -> bool:
        return any(self.compiled.values[k].kind == "constant" for k in self.used)

    def pointers(self) -> list[str]:
        """Where values lie."""
        lines = []
        for number in sorted(self.used):
            value, name = self.compiled.values[number], self.layout.values[number]
            if value.kind == "constant":
                lines.append(f"    const void *const {name} = {self._weight(number)};")
            elif value.kind in ARENA_REGIONS:
                slot = self.compiled.plan.slots.get(value.name)
                offset = 0 if slot is None else slot.offset
                lines.append(f"    void *const {name} = arena + {offset};")
        return lines

    def _weight(self, number: int) -> str:
        at = self.layout.offsets[number]
        if self.layout.options.weights == "table":
            return f"weights[{at}]"
        if self.layout.options.weights == "array":
            return f"{self.layout.prefix}_weights + {at}"
        return f"weights + {at}"

    def cells(self) -> list[str]:
        """Registers, with what is in them before the first step."""
        lines = []
        for number in sorted(self.used_cells):
            cell = self.compiled.cells[number]
            start = "0"
            if cell.size is not None:
                start = self.context.dim(cell.size)
            elif cell.address is not None:
                start = f"(int64_t)(uintptr_t){self.pointer(int(cell.address))}"
            lines.append(f"    int64_t c{number} = {start};")
            lines.append(f"    (void)c{number};")
        return lines

    # Steps.

    def lines(self, steps: Sequence[Step]) -> list[str]:
        made: list[str] = []
        for step in steps:
            made += self._step(step)
        if self.has_error:
            made.insert(0, "    int error = 0;")
        return made

    def _step(self, step: Step) -> list[str]:
        indent = "    " * self.depth
        match step.kind:
            case StepKind.LAUNCH:
                return [indent + line for line in self._launch(step.a)]
            case StepKind.EVAL:
                return [indent + self._instruction(one) for one in step.instructions]
            case StepKind.IF:
                self.depth += 1
                return [f"{indent}if ({self.cell(step.a)} != 0) {{"]
            case StepKind.ELSE:
                return ["    " * (self.depth - 1) + "} else {"]
            case StepKind.LOOP:
                self.depth += 1
                counter, trips = self.cell(step.a), self.cell(step.b)
                goes_on = "" if step.c == NO_CONDITION else f" && {self.cell(step.c)} != 0"
                return [
                    f"{indent}for ({counter} = 0; {counter} < {trips}{goes_on}; {counter}++) {{"
                ]
            case StepKind.END | StepKind.NEXT:
                self.depth -= 1
                return ["    " * self.depth + "}"]
        raise NotCompiled(f"a step {step.kind.value} can't be written in C")

    def _launch(self, k: int) -> list[str]:
        spec, cached = self.launches[k], self.kernels[k]
        kernel = self.layout.image.kernels[cached.program.entry_point]
        arguments = [self.pointer(int(value)) for value in spec.arrays]
        given = {(size.symbol if isinstance(size, Var) else ""): size for size in spec.sizes}
        arguments += [self.size(given[name]) for name in kernel.sizes]
        origins = ", ".join(str(origin) for origin in cached.origins[:2])
        about = f"{cached.entry_point}: {origins}" if origins else cached.entry_point
        lines = [f"/* {commented(about)} */"]
        error = ["&error"] if kernel.has_error else []
        if not kernel.has_tiles:
            lines += wrapped(f"{kernel.name}(", [*arguments, *error], ");")
        elif self.layout.options.openmp and spec.tiles != 1:
            tiles = self.size(spec.tiles)
            shared = " reduction(max : error)" if error else ""
            lines += [
                f"#pragma omp parallel for schedule(dynamic){shared}",
                f"for (int64_t tile = 0; tile < {tiles}; tile++)",
            ]
            call = wrapped(f"    {kernel.name}(", [*arguments, "tile", "tile + 1", *error], ");")
            lines += call
        else:
            tiles = self.size(spec.tiles)
            lines += wrapped(f"{kernel.name}(", [*arguments, "0", tiles, *error], ");")
        if kernel.has_error:
            self.has_error = True
            lines.append(f"if (error != 0) return {self.context.status} = error;")
        if self.layout.options.cancellable:
            cancelled = f"{self.layout.macro}_CANCELLED"
            lines.append(f"if (self->cancelled) return {self.context.status} = {cancelled};")
        return lines

    def _instruction(self, instruction: Instruction) -> str:
        op, target, a, b = instruction
        x, y, into = self.cell(a), self.cell(b), self.cell(target)
        if op == Ins.STORE64:
            return f"*(i64 *)(uintptr_t){x} = {y};"
        value = _VALUES[Ins(op)]
        for helper in re.findall(r"\w+_i64", value):
            self.context.helpers.use(helper)
        return f"{into} = {value.format(x=x, y=y, into=into)};"


#: What instructions leave in their registers.
_VALUES = {
    Ins.LOAD8: "*(const u8 *)(uintptr_t)({x} + {y})",
    Ins.LOAD64: "*(const i64 *)(uintptr_t)({x} + {y})",
    Ins.MOV: "{x}",
    Ins.ADD: "{x} + {y}",
    Ins.SUB: "{x} - {y}",
    Ins.MUL: "{x} * {y}",
    Ins.DIV: "{y} > 0 ? floordiv_i64({x}, {y}) : 0",
    Ins.MIN: "min_i64({x}, {y})",
    Ins.MAX: "max_i64({x}, {y})",
}
#: Dtypes whose elements are for a caller what they are for a kernel.
_PLAIN = frozenset("float32 float64 int32 int64".split())
