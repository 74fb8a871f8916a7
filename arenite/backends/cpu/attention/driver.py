"""The function a launch of an AttentionKernel calls."""

from __future__ import annotations

from arenite.backends.cpu.attention.decode import Decode
from arenite.backends.cpu.attention.form import ROOM, Call, Either, Element
from arenite.backends.cpu.attention.kernel import (
    FIRST_TILE,
    LAST_TILE,
    TILE,
    Attention,
    AttentionKernel,
    in_blocks,
    in_decode_blocks,
)
from arenite.backends.cpu.attention.panels import Panels
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES
from arenite.backends.cpu.gemm.kernel import SCRATCH
from arenite.backends.cpu.gemm.tile import moved
from arenite.backends.cpu.lowering.loops import Lowering
from arenite.backends.cpu.lowering.scope import SCALAR
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec
from arenite.codegen import loop_ir as ir


class AttentionDriver:
    """Emits the program of a kernel; `texts` are the functions it calls."""

    def __init__(self, builder: Builder, kernel: AttentionKernel) -> None:
        self.builder = builder
        self.kernel = kernel
        self.lowering = Lowering(builder, kernel, self._call)
        self.texts: dict[str, str] = {}
        # The body says what is computed and knows nothing of scratch.
        self.lowering.scope.stored |= {SCRATCH}

    def run(self) -> None:
        b, lowering = self.builder, self.lowering
        lowering.bind(FIRST_TILE.name, Vec(b, "%tile_begin", I64))
        lowering.bind(LAST_TILE.name, Vec(b, "%tile_end", I64))
        lowering.block(_program(self.kernel.attention))
        b.block.end = "ret void"

    def _call(self, call: ir.Stmt) -> None:
        assert isinstance(call, Call)
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
        numbers = [self.lowering.value(number, SCALAR) for number in call.numbers]
        arguments = [
            *(f"ptr {self._address(place)}" for place in call.places),
            *(f"i64 {number.text}" for number in numbers),
        ]
        b.emit_void(f"call fastcc void @{name}({', '.join(arguments)})")

    def _address(self, place: Element | Either) -> str:
        if isinstance(place, Either):
            condition = self.lowering.value(place.condition, SCALAR)
            first, second = map(self._address, (place.first, place.second))
            choice = f"select i1 {condition.text}, ptr {first}, ptr {second}"
            return self.builder.emit_pointer(choice)
        at = self.lowering.value(place.at, SCALAR)
        size = self.kernel.array(place.array).dtype.bits // 8
        return moved(self.builder, self.lowering.pointers[place.array], at * size)


def _program(spec: Attention) -> ir.Block:
    """What a call runs: the form that fits the number of queries."""
    if not spec.decode_up_to:
        return _panels(spec)
    if not spec.has_panels:
        return _decode(spec)
    is_decode = ir.Binary("le", spec.n_queries, ir.index(spec.decode_up_to))
    return (ir.If(is_decode, _decode(spec), _panels(spec)),)


def _decode(spec: Attention) -> ir.Block:
    room = ir.Let(ROOM.name, FIRST_TILE * spec.decode_rooms.length)
    return (room, *in_decode_blocks(spec, Decode(spec).block()))


def _panels(spec: Attention) -> ir.Block:
    room = ir.Let(ROOM.name, TILE * spec.rooms.length)
    body = (room, *in_blocks(spec, Panels(spec).block()))
    return (ir.For(TILE.name, FIRST_TILE, LAST_TILE, body),)
