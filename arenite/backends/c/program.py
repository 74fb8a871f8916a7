"""A compiled program as one C file: kernels, memory, and the functions a caller sees.

    int NAME_init(...)     once: memory, weights, what depends on weights alone
    int NAME_run(...)      inputs, outputs, sizes; 0, or an error of the header
    int NAME_reset(...)    all states zero again, and what failed forgotten

In: a Compiled of this back end, whose image holds the functions of its kernels, and the outline of
its graph. Out: texts. Values lie where the plan has them at the largest sizes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from arenite.backends.c.c_types import ELEMENT_TYPES, Names, argument_type, identifier
from arenite.backends.c.expressions import Expressions
from arenite.backends.c.helpers import Helpers
from arenite.backends.c.kernel import CKernel, wrapped
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import Kind
from arenite.errors import IndexOutOfRange, NotCompiled
from arenite.ir.dim import Dim, Found, Var, bounds, found_in, product, variables
from arenite.ir.outline import Outline
from arenite.memory.values import ARENA_REGIONS, align_up
from arenite.program.cached_kernel import CachedKernel
from arenite.program.compiled import Compiled
from arenite.program.launch import Launch
from arenite.program.steps import NO_CONDITION, ZERO, Instruction, Step, StepKind
from arenite.program.table import Ins

#: Arena and weights begin at a multiple of this, and so do values inside.
ALIGNMENT = 64

Memory = Literal["static", "caller"]
#: Where weights are: bytes that the caller has read, an array of C, or an address for each.
Weights = Literal["file", "array", "table"]

#: Errors of a program, beside those of its kernels.
ERRORS = {
    "INDEX_OUT_OF_RANGE": (IndexOutOfRange.code, "an index of the input is outside its axis"),
    "SIZE_OUT_OF_BOUNDS": (2, "a size is outside its bounds"),
    "NOT_INITIALISED": (3, "init was not called, or failed"),
    "MEMORY_TOO_SMALL": (4, "the memory given has too few bytes"),
    "MISALIGNED": (5, f"memory or weights do not begin at a multiple of {ALIGNMENT}"),
    "CANCELLED": (6, "the run was cancelled"),
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What can be chosen of a program's text."""

    name: str = "program"
    memory: Memory = "static"
    weights: Weights = "file"
    openmp: bool = False
    freestanding: bool = False
    cancellable: bool = False  # by another thread, in process


@dataclass(frozen=True, slots=True)
class Image:
    """Functions of kernels by name."""

    kernels: dict[str, CKernel]

    def to_bytes(self) -> bytes:
        return json.dumps([asdict(one) for one in self.kernels.values()]).encode()

    @staticmethod
    def from_bytes(raw: bytes) -> Image:
        kernels = {}
        for one in json.loads(raw or b"[]"):
            lists = {name: tuple(one[name]) for name in ("sizes", "helpers")}
            kernels[one["name"]] = CKernel(**{**one, **lists})
        return Image(kernels)

    @property
    def helpers(self) -> tuple[str, ...]:
        """Functions that kernels call."""
        return tuple(dict.fromkeys(name for one in self.kernels.values() for name in one.helpers))


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of `run`: an array of an input or an output, or a size."""

    name: str
    type: str
    about: str


class Layout:
    """Names of C for all that a program has, and where its weights lie."""

    def __init__(self, compiled: Compiled, outline: Outline, options: SourceOptions) -> None:
        self.compiled, self.outline, self.options = compiled, outline, options
        self.prefix = identifier(options.name)
        self.image = Image.from_bytes(compiled.image)
        self.names = Names(
            self.prefix, "status", "self", *self.image.kernels, *self.image.helpers
        )
        self.inputs = [self.names.take(port.name) for port in outline.inputs]
        self.outputs = [self._output_name(k) for k in range(len(compiled.outputs))]
        self.sizes = {var: self.names.take(self._free(var.name)) for var in outline.vars}
        found = {size for n in compiled.outputs for d in compiled.values[n].shape for size in found_in(d)}
        self.found = {
            size: self.names.take(f"n_{size.name}") for size in sorted(found, key=lambda s: s.name)
        }
        self.values = self._value_names()
        self.offsets, self.weights_nbytes = self._weight_offsets()
        self.arena_nbytes = compiled.plan.peak_nbytes
        if compiled.hosts:
            raise NotCompiled(
                "a program that calls functions of the host can't be written in C: they are Python"
            )

    def _free(self, name: str) -> str:
        """The name of a size, which an array may have too."""
        return f"n_{name}" if identifier(name) in {*self.inputs, *self.outputs} else name

    def _output_name(self, k: int) -> str:
        number = self.compiled.outputs[k]
        value = self.compiled.values[number]
        return self.names.take(value.name if value.kind == "output" else f"out{k}")

    def _value_names(self) -> list[str]:
        """What pointers to values are called."""
        outputs = dict(zip(reversed(self.compiled.outputs), reversed(self.outputs), strict=True))
        names = []
        for number, value in enumerate(self.compiled.values):
            if value.kind == "input":
                names.append(self.inputs[value.source])
            elif value.kind == "output":
                names.append(outputs[number])
            else:
                names.append(self.names.take(value.name))
        return names

    def _weight_offsets(self) -> tuple[dict[int, int], int]:
        """Where constants lie in the weights; in a table their places in it."""
        numbers = [k for k, v in enumerate(self.compiled.values) if v.kind == "constant"]
        if self.options.weights == "table":
            return {number: k for k, number in enumerate(numbers)}, len(numbers)
        offsets: dict[int, int] = {}
        end = 0
        for number in numbers:
            offsets[number] = end
            end = align_up(end + bounds(self.compiled.values[number].nbytes)[1], ALIGNMENT)
        return offsets, end

    @property
    def macro(self) -> str:
        return self.prefix.upper()

    def arguments(self) -> list[Argument]:
        """Those of `run`, in order."""
        made = []
        for name, port in zip(self.inputs, self.outline.inputs, strict=True):
            shape = ", ".join(map(str, port.shape))
            made.append(
                Argument(name, f"const {argument_type(port.dtype)} *", f"{port.dtype} [{shape}]")
            )
        for name, number in zip(self.outputs, self.compiled.outputs, strict=True):
            value = self.compiled.values[number]
            shape = ", ".join(map(str, value.shape))
            made.append(Argument(name, f"{argument_type(value.dtype)} *", f"{value.dtype} [{shape}]"))
        for var, name in self.sizes.items():
            made.append(Argument(name, "int64_t ", f"{var.name}, {var.low} to {var.high}"))
        for size, name in self.found.items():
            made.append(Argument(name, "int64_t *", f"{size.name}, which the run finds"))
        return made

    def run_signature(self) -> list[str]:
        parts = [f"{one.type}{one.name}" for one in self.arguments()]
        return self._with_self(parts)

    def init_signature(self) -> list[str]:
        parts = []
        if self.options.memory == "caller":
            parts += ["void *memory", "size_t memory_nbytes"]
        if self.offsets and self.options.weights == "file":
            parts.append("const void *weights_bytes")
        if self.offsets and self.options.weights == "table":
            parts.append("const void *const *weights_table")
        return self._with_self(parts)

    def _with_self(self, parts: list[str]) -> list[str]:
        if self.options.memory == "caller":
            return [f"{self.prefix}_program *self", *parts]
        return parts or ["void"]


def head(freestanding: bool = False) -> str:
    """What stands before all functions."""
    headers = ["stdbool.h", "stddef.h", "stdint.h"]
    if not freestanding:
        headers = ["math.h", *headers, "string.h"]
    lines = [
        *(f"#include <{name}>" for name in headers),
        "",
        "/* What is computed is what is written: no products fused with sums behind it. */",
        "#ifdef __clang__",
        "#pragma STDC FP_CONTRACT OFF",
        "#endif",
        "",
        "/* Values of all types share the bytes of one arena. */",
        ELEMENT_TYPES,
        "",
    ]
    return "\n".join(lines)


def source(layout: Layout) -> str:
    """NAME.c."""
    return _Source(layout).text()


class _Source:
    def __init__(self, layout: Layout) -> None:
        self.layout, self.compiled = layout, layout.compiled
        self.options, self.prefix = layout.options, layout.prefix
        self.is_static = self.options.memory == "static"
        self.helpers = Helpers(self.options.freestanding)
        for name in layout.image.helpers:
            self.helpers.use(name)
        self.dims = Expressions(self.helpers)
        for var, name in layout.sizes.items():
            self.dims.bind_size(var.symbol)
            self.dims.names[var.symbol] = name
        for size_name, cell in self.compiled.found.items():
            symbol = Found(size_name, 0, 0).symbol
            self.dims.bind_size(symbol)
            self.dims.names[symbol] = f"c{cell}"

    def text(self) -> str:
        functions = [self._init(), self._reset(), self._run()]  # which may need more helpers
        kernels = [kernel.text for kernel in self.layout.image.kernels.values()]
        parts = [
            f'#include "{self.options.name}.h"\n',
            head(self.options.freestanding),
            *((self.helpers.text,) if self.helpers.text else ()),
            *kernels,
            self._memory(),
            *functions,
        ]
        return "\n".join(parts)

    def _memory(self) -> str:
        lines = [*_plan_lines(self.compiled), ""]
        if self.is_static:
            if self.layout.arena_nbytes:
                lines.append(
                    f"_Alignas({ALIGNMENT}) static unsigned char "
                    f"arena[{self.layout.macro}_ARENA_BYTES];"
                )
            if self.layout.offsets and self.options.weights != "array":
                lines.append(f"static const {self._weights_type()}weights;")
            lines.append(f"static int status = {self.layout.macro}_NOT_INITIALISED;")
            lines.append("")
        return "\n".join(lines)

    def _weights_type(self) -> str:
        return "void *const *" if self.options.weights == "table" else "unsigned char *"

    # Functions.

    def _function(self, name: str, parameters: list[str], body: list[str]) -> str:
        head = wrapped(f"int {self.prefix}_{name}(", parameters, ") {")
        return "\n".join([*head, *body, "}", ""])

    def _locals(self, uses_arena: bool, uses_weights: bool) -> list[str]:
        """Memory and weights under the names that bodies use."""
        if self.is_static:
            return []
        lines = []
        if uses_arena:
            lines.append("    unsigned char *const arena = self->arena;")
        if uses_weights and self.options.weights != "array":
            lines.append(f"    const {self._weights_type()}const weights = self->weights;")
        return lines

    @property
    def _status(self) -> str:
        return "status" if self.is_static else "self->status"

    def _init(self) -> str:
        layout, macro = self.layout, self.layout.macro
        lines = [f"    {self._status} = {macro}_NOT_INITIALISED;"]
        misaligned = f"% {macro}_ALIGNMENT != 0) return {macro}_MISALIGNED;"
        if not self.is_static:
            if layout.arena_nbytes:
                too_small = f"return {macro}_MEMORY_TOO_SMALL;"
                lines.append(f"    if (memory_nbytes < {macro}_ARENA_BYTES) {too_small}")
            else:
                lines.append("    (void)memory_nbytes;")
            lines += [f"    if ((uintptr_t)memory {misaligned}", "    self->arena = memory;"]
        target = "weights" if self.is_static else "self->weights"
        if layout.offsets and self.options.weights == "file":
            lines += [
                f"    if ((uintptr_t)weights_bytes {misaligned}",
                f"    {target} = weights_bytes;",
            ]
        if layout.offsets and self.options.weights == "table":
            lines.append(f"    {target} = weights_table;")
        run = _Body(self, self.compiled.load, self.compiled.load_kernels)
        steps = tuple(Step(StepKind.LAUNCH, k) for k in range(len(self.compiled.load)))
        body = run.lines(steps)
        lines += [*self._locals(run.uses_arena, run.uses_weights), *run.pointers(), *body]
        lines.append(f"    {self._status} = 0;")
        self_text = "" if self.is_static else "self"
        lines.append(f"    return {self.prefix}_reset({self_text});")
        return self._function("init", layout.init_signature(), lines)

    def _reset(self) -> str:
        macro = self.layout.macro
        lines = [
            f"    if ({self._status} == {macro}_NOT_INITIALISED) return {macro}_NOT_INITIALISED;"
        ]
        states = [value for value in self.compiled.values if value.kind == "state"]
        lines += self._locals(bool(states), False)
        for state in states:
            slot = self.compiled.plan.slots[state.name]
            lines.append(f"    {self.zeros(f'arena + {slot.offset}', slot.nbytes)}")
        lines += [f"    {self._status} = 0;", "    return 0;"]
        return self._function("reset", self.layout._with_self([]), lines)

    def zeros(self, place: str, nbytes: int) -> str:
        if not self.options.freestanding:
            return f"memset({place}, 0, {nbytes});"
        return f"for (size_t k = 0; k < {nbytes}; k++) ({place})[k] = 0;"

    def copy(self, target: str, place: str, nbytes: str) -> str:
        if not self.options.freestanding:
            return f"memcpy({target}, {place}, (size_t)({nbytes}));"
        return (
            f"for (size_t k = 0; k < (size_t)({nbytes}); k++) "
            f"((unsigned char *){target})[k] = ((const unsigned char *){place})[k];"
        )

    def _run(self) -> str:
        layout, macro = self.layout, self.layout.macro
        lines = [f"    if ({self._status} != 0) return {self._status};"]
        for var, name in layout.sizes.items():
            low = f"{name} < {var.low} || " if var.low > -(2**62) else ""
            lines += [f"    if ({low}{name} > {var.high}) return {macro}_SIZE_OUT_OF_BOUNDS;"]
        run = _Body(self, self.compiled.launches, self.compiled.kernels)
        body = run.lines(self.compiled.steps)
        body += self._handed_through(run)
        for size, name in layout.found.items():
            body.append(f"    *{name} = c{self.compiled.found[size.name]};")
        for name in (*layout.inputs, *layout.outputs, *layout.sizes.values()):
            if name not in run.named:
                lines.append(f"    (void){name};")
        lines += [*self._locals(run.uses_arena, run.uses_weights), *run.pointers(), *run.cells()]
        lines += [*body, "    return 0;"]
        return self._function("run", layout.run_signature(), lines)

    def _handed_through(self, run: _Body) -> list[str]:
        """Outputs that no kernel writes: inputs, constants, states, and outputs that stand twice."""
        lines = []
        seen: set[int] = set()
        for name, number in zip(self.layout.outputs, self.compiled.outputs, strict=True):
            value = self.compiled.values[number]
            if value.kind == "output" and number not in seen:
                seen.add(number)
                continue
            place, nbytes = run.pointer(number), self.dim(value.nbytes)
            run.named.add(name)
            lines.append("    " + self.copy(name, place, nbytes))
        return lines

    def dim(self, dim: Dim) -> str:
        """A size, over the arguments of `run` and what it has found."""
        cell = self.compiled.late.get(dim) if found_in(dim) else None
        return f"c{cell}" if cell is not None else self.dims.text(index_expr(dim))


class _Body:
    """The steps of one function."""

    def __init__(
        self, source: _Source, launches: Sequence[Launch], kernels: Sequence[CachedKernel]
    ) -> None:
        self.source, self.layout = source, source.layout
        self.compiled = source.compiled
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
        text = self.source.dim(dim)
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
        if self.source.options.weights == "table":
            return f"weights[{at}]"
        if self.source.options.weights == "array":
            return f"{self.layout.prefix}_weights + {at}"
        return f"weights + {at}"

    def cells(self) -> list[str]:
        """Registers, with what is in them before the first step."""
        lines = []
        for number in sorted(self.used_cells):
            cell = self.compiled.cells[number]
            start = "0"
            if cell.size is not None:
                start = self.source.dim(cell.size)
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
        given = {
            (size.symbol if isinstance(size, Var) else ""): size for size in spec.sizes
        }
        arguments += [self.size(given[name]) for name in kernel.sizes]
        origins = ", ".join(str(origin) for origin in cached.origins[:2])
        about = f"/* {cached.entry_point}{': ' + origins if origins else ''} */"
        lines = [about.replace("*/ ", "* / ")]
        error = ["&error"] if kernel.has_error else []
        if not kernel.has_tiles:
            lines += wrapped(f"{kernel.name}(", [*arguments, *error], ");")
        elif self.source.options.openmp and spec.tiles != 1:
            tiles = self.size(spec.tiles)
            lines += [
                "#pragma omp parallel for schedule(dynamic)",
                f"for (int64_t tile = 0; tile < {tiles}; tile++)",
            ]
            call = wrapped(f"    {kernel.name}(", [*arguments, "tile", "tile + 1", *error], ");")
            lines += call
        else:
            tiles = self.size(spec.tiles)
            lines += wrapped(f"{kernel.name}(", [*arguments, "0", tiles, *error], ");")
        if kernel.has_error:
            self.has_error = True
            lines.append(f"if (error != 0) return {self.source._status} = error;")
        if self.source.options.cancellable:
            cancelled = f"{self.layout.macro}_CANCELLED"
            lines.append(f"if (self->cancelled) return {self.source._status} = {cancelled};")
        return lines

    def _instruction(self, instruction: Instruction) -> str:
        op, target, a, b = instruction
        x, y = self.cell(a), self.cell(b)
        helpers = self.source.helpers
        match Ins(op):
            case Ins.STORE64:
                return f"*(i64 *)(uintptr_t){x} = {y};"
            case Ins.CHECK:
                return f"if ({x} == 0) return {self.source._status} = {y} != 0 ? (int){y} : 1;"
            case Ins.LOAD8 | Ins.LOAD32 | Ins.LOAD64 as load:
                kind = {Ins.LOAD8: "u8", Ins.LOAD32: "i32", Ins.LOAD64: "i64"}[load]
                place = x if b == ZERO else f"({x} + {y})"
                value = f"*(const {kind} *)(uintptr_t){place}"
            case Ins.MOV:
                value = x
            case Ins.ADD | Ins.SUB | Ins.MUL as sum_:
                value = f"{x} {_SIGNS[sum_]} {y}"
            case Ins.LT | Ins.LE | Ins.EQ | Ins.NE as compared:
                value = f"{x} {_SIGNS[compared]} {y}"
            case Ins.AND | Ins.OR as both:
                value = f"{x} != 0 {_SIGNS[both]} {y} != 0"
            case Ins.NOT:
                value = f"{x} == 0"
            case Ins.SELECT:
                value = f"{x} != 0 ? {y} : {self.cell(target)}"
            case Ins.MIN | Ins.MAX as one:
                value = f"{helpers.use(f'{one.name.lower()}_i64')}({x}, {y})"
            case Ins.DIV | Ins.MOD as one:
                name = helpers.use("floordiv_i64" if one is Ins.DIV else "mod_i64")
                value = f"{y} > 0 ? {name}({x}, {y}) : 0"
            case Ins.CEILDIV:
                value = f"{y} > 0 ? -{helpers.use('floordiv_i64')}(-{x}, {y}) : 0"
        return f"{self.cell(target)} = {value};"


_SIGNS = {
    Ins.ADD: "+",
    Ins.SUB: "-",
    Ins.MUL: "*",
    Ins.LT: "<",
    Ins.LE: "<=",
    Ins.EQ: "==",
    Ins.NE: "!=",
    Ins.AND: "&&",
    Ins.OR: "||",
}
#: Dtypes whose elements are for a caller what they are for a kernel.
_PLAIN = frozenset("float32 float64 int32 int64".split())


def _plan_lines(compiled: Compiled) -> list[str]:
    """The plan of the arena, as a comment."""
    plan = compiled.plan
    slots = [slot for slot in plan.slots.values() if slot.region in ARENA_REGIONS]
    lines = [
        "/* Where values lie: offset in the arena, bytes, steps from the first to the last.",
        "",
    ]
    for slot in sorted(slots, key=lambda slot: (slot.offset, slot.lifetime)):
        about = plan.details.get(slot.id, "")
        span = f"{slot.lifetime.start}..{max(slot.lifetime.start, slot.lifetime.end - 1)}"
        row = f"   {slot.offset:>10} {slot.nbytes:>10}  {slot.region:<6} {span:<11} {slot.id}"
        lines.append(f"{row}  {about}".rstrip().replace("*/", "* /"))
    return [*lines, "*/"]


def elements(value_shape: Sequence[Dim], kind: Kind) -> int:
    """Elements of an array at its largest, of a caller's type: two of a complex number."""
    return bounds(product(value_shape))[1] * (2 if kind is Kind.COMPLEX else 1)
