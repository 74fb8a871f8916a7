"""A compiled program as one C file: kernels, memory, and the functions a caller sees.

    int NAME_init(...)     once: memory, weights, what depends on weights alone
    int NAME_run(...)      inputs, outputs, sizes; 0, or an error of the header
    int NAME_reset(...)    all states zero again, and what failed forgotten

Values lie where the plan has them at the largest sizes.
"""

from __future__ import annotations

from arenite.backends.c.c_types import ELEMENT_TYPES, commented
from arenite.backends.c.expressions import Expressions
from arenite.backends.c.helpers import Helpers
from arenite.backends.c.kernel import wrapped
from arenite.backends.c.layout import ALIGNMENT, Layout
from arenite.backends.c.steps import Body, Context
from arenite.codegen.kernels.values import index_expr
from arenite.ir.dim import Dim, Found, found_in
from arenite.memory.values import ARENA_REGIONS
from arenite.program.compiled import Compiled
from arenite.program.steps import Step, StepKind


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
        "/* Loops whose iterations depend on no other, and sums that may be added up in any order:",
        "   in vectors, where the compiler is asked for it (-fopenmp, or -fopenmp-simd -DSIMD). */",
        "#if defined(_OPENMP) || defined(SIMD)",
        "#define PRAGMA(text) _Pragma(#text)",
        "#define SIDE_BY_SIDE(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))",
        "#define INDEPENDENT PRAGMA(omp simd)",
        "#ifdef __clang__ /* which minds loops that it can't vectorise */",
        '#pragma clang diagnostic ignored "-Wpass-failed"',
        "#endif",
        "#else",
        "#define SIDE_BY_SIDE(...)",
        "#define INDEPENDENT",
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
        self.status = "status" if self.is_static else "self->status"
        self.context = Context(layout, self.helpers, self.dim, self.status)

    def text(self) -> str:
        functions = [self._init(), self._reset(), self._run()]  # which may need more helpers
        kernels = [kernel.text for kernel in self.layout.image.kernels.values()]
        helpers = self.helpers.text_for(*kernels, *functions)
        parts = [
            f'#include "{self.options.name}.h"\n',
            head(self.options.freestanding),
            *((helpers,) if helpers else ()),
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

    def _init(self) -> str:
        layout, macro = self.layout, self.layout.macro
        lines = [f"    {self.status} = {macro}_NOT_INITIALISED;"]
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
        run = Body(self.context, self.compiled.load, self.compiled.load_kernels)
        steps = tuple(Step(StepKind.LAUNCH, k) for k in range(len(self.compiled.load)))
        body = run.lines(steps)
        lines += [*self._locals(run.uses_arena, run.uses_weights), *run.pointers(), *body]
        lines.append(f"    {self.status} = 0;")
        self_text = "" if self.is_static else "self"
        lines.append(f"    return {self.prefix}_reset({self_text});")
        return self._function("init", layout.init_signature(), lines)

    def _reset(self) -> str:
        macro = self.layout.macro
        lines = [
            f"    if ({self.status} == {macro}_NOT_INITIALISED) return {macro}_NOT_INITIALISED;"
        ]
        states = [value for value in self.compiled.values if value.kind == "state"]
        lines += self._locals(bool(states), False)
        for state in states:
            slot = self.compiled.plan.slots[state.name]
            lines.append(f"    {self.zeros(f'arena + {slot.offset}', slot.nbytes)}")
        lines += [f"    {self.status} = 0;", "    return 0;"]
        return self._function("reset", self.layout.with_self([]), lines)

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
        lines = [f"    if ({self.status} != 0) return {self.status};"]
        for var, name in layout.sizes.items():
            low = f"{name} < {var.low} || " if var.low > -(2**62) else ""
            lines += [f"    if ({low}{name} > {var.high}) return {macro}_SIZE_OUT_OF_BOUNDS;"]
        run = Body(self.context, self.compiled.launches, self.compiled.kernels)
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

    def _handed_through(self, run: Body) -> list[str]:
        """Outputs that no kernel writes: inputs, constants, states, and those that stand twice."""
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
        lines.append(commented(f"{row}  {about}".rstrip()))
    return [*lines, "*/"]
