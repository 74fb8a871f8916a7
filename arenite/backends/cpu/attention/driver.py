"""The function a launch of an AttentionKernel calls."""

from __future__ import annotations

from arenite.backends.cpu.attention.form import Call, Either, Place
from arenite.backends.cpu.attention.kernel import FIRST_TILE, LAST_TILE, AttentionKernel
from arenite.backends.cpu.attention.program import program
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES
from arenite.backends.cpu.gemm.kernel import SCRATCH
from arenite.backends.cpu.gemm.tile import moved
from arenite.backends.cpu.lowering.arguments import bind_arguments
from arenite.backends.cpu.lowering.partials import Partials
from arenite.backends.cpu.lowering.scope import SCALAR, Binding
from arenite.backends.cpu.lowering.tile import Tiles
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.codegen import loop_ir as ir


class AttentionDriver(Tiles):
    """Emits the program of a kernel; `texts` are the functions it calls."""

    def __init__(self, builder: Builder, kernel: AttentionKernel) -> None:
        super().__init__(builder, kernel)
        self.made = kernel.attention
        self.texts: dict[str, str] = {}
        # The body says what is computed and knows nothing of scratch.
        self.scope.stored |= {SCRATCH}
        bind_arguments(self)

    def run(self) -> None:
        b = self.builder
        for name, value in ((FIRST_TILE, "%tile_begin"), (LAST_TILE, "%tile_end")):
            self.scope.bind(name.name, Binding(ir.INT64, 0, values={SCALAR: Vec(b, value, I64)}))
        self.block(program(self.made))
        b.block.end = "ret void"

    def simple(self, stmt: ir.Stmt, part: int) -> None:
        if isinstance(stmt, Call):
            self._call(stmt)
        else:
            super().simple(stmt, part)

    def partials_across(self, loop: ir.For) -> list[Partials]:
        """None: every accumulator of the program is declared in the vector loop that uses it."""
        return []

    def _call(self, call: Call) -> None:
        b = self.builder
        name = f"{self.kernel.name}.{call.tile.name}"
        if name not in self.texts:
            builder = Builder(b.target)
            parameters = call.tile.emit(builder)
            builder.block.end = "ret void"
            self.texts[name] = (
                f"define internal fastcc void @{name}({parameters}) noinline "
                f"{FUNCTION_ATTRIBUTES} {{\n{builder.body_text()}\n}}\n"
            )
            b.declarations |= builder.declarations
        numbers = [self.value(number, SCALAR) for number in call.numbers]
        arguments = [
            *(f"ptr {self._address(place)}" for place in call.places),
            *(f"i64 {number.text}" for number in numbers),
        ]
        b.emit_void(f"call fastcc void @{name}({', '.join(arguments)})")

    def _address(self, place: Place | Either) -> str:
        if isinstance(place, Either):
            condition = self.value(place.condition, SCALAR)
            first, second = (self._address(one) for one in (place.first, place.second))
            choice = f"select i1 {condition.text}, ptr {first}, ptr {second}"
            return self.builder.emit_pointer(choice)
        at = self.value(place.at, SCALAR)
        size = self.kernel.array(place.array).dtype.bits // 8
        return moved(self.builder, self.pointers[place.array], at * size)
