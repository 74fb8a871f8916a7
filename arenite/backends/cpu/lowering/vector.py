"""Vector LLVM IR as text, written through values that behave like numbers.

`Builder` holds one function: basic blocks of instruction lines. A `Vec` is a value in it, of one
scalar or of several lanes; its operators append instructions to the builder's current block.

Plain numbers become constants of the other operand's type. Integer types carry no sign; where it
matters there are two methods.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import copysign
from typing import Literal, NamedTuple

from arenite.backends.cpu.target import Target


class VType(NamedTuple):
    """`lanes` elements of a kind and width; one lane is a scalar."""

    kind: Literal["f", "i"]
    bits: int
    lanes: int

    @property
    def element(self) -> str:
        return _ELEMENT_TEXT[self.kind, self.bits]

    @property
    def mangled(self) -> str:
        """As intrinsic names spell the type."""
        return _mangled(self)

    def __str__(self) -> str:
        return _type_text(self)

    def of(self, kind: Literal["f", "i"], bits: int) -> VType:
        return VType(kind, bits, self.lanes)

    @property
    def mask(self) -> VType:
        return VType("i", 1, self.lanes)

    @property
    def as_int(self) -> VType:
        return VType("i", self.bits, self.lanes)

    @property
    def as_float(self) -> VType:
        return VType("f", self.bits, self.lanes)

    @property
    def scalar(self) -> VType:
        return VType(self.kind, self.bits, 1)


_ELEMENT_TEXT = {
    ("f", 16): "half",
    ("f", 32): "float",
    ("f", 64): "double",
    **{("i", bits): f"i{bits}" for bits in (1, 8, 16, 32, 64, 128)},
}

I64 = VType("i", 64, 1)


@cache
def _type_text(t: VType) -> str:
    return t.element if t.lanes == 1 else f"<{t.lanes} x {t.element}>"


@cache
def _mangled(t: VType) -> str:
    return f"{'' if t.lanes == 1 else f'v{t.lanes}'}{t.kind}{t.bits}"


def constant_text(value: float | int | bool, kind: str, bits: int, lanes: int) -> str:
    """A constant, in every lane the same."""
    # Python holds 0.0 and -0.0 equal, a table of constants must not.
    return _constant_text(value, kind == "f" and copysign(1.0, value) < 0, kind, bits, lanes)


@cache
def _constant_text(
    value: float | int | bool, is_negative: bool, kind: str, bits: int, lanes: int
) -> str:
    if kind == "f":
        if bits == 32:
            value = _as_float32(value)
        word = struct.unpack("<Q", struct.pack("<d", value))[0]
        text = f"0x{word:016X}"
        element = _ELEMENT_TEXT[kind, bits]
    else:
        text = str(int(value)) if bits > 1 else ("true" if value else "false")
        element = f"i{bits}"
    return text if lanes == 1 else f"splat ({element} {text})"


def _as_float32(value: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


@dataclass(slots=True)
class BasicBlock:
    name: str
    lines: list[str] = field(default_factory=list)
    phis: list[str] = field(default_factory=list)
    end: str = ""


def _operator(op: str, of_floats: str = "") -> Callable[[Vec, Vec | float], Vec]:
    return lambda a, b: a._binary(of_floats if of_floats and a.type.kind == "f" else op, b)


def _relation(name: str) -> Callable[[Vec, Vec | float], Vec]:
    return lambda a, b: a.compare(name, b)


class Vec:
    """A value of the function being built; see the operators and methods."""

    __slots__ = ("builder", "text", "type")

    def __init__(self, builder: Builder, text: str, type_: VType) -> None:
        self.builder = builder
        self.text = text
        self.type = type_

    @property
    def is_constant(self) -> bool:
        return self.text[0] != "%"

    def _binary(self, op: str, other: Vec | float) -> Vec:
        b = self.builder
        return b.emit(f"{op} {self.type} {self.text}, {b.text(other, self.type)}", self.type)

    def _operand(self, other: Vec | float) -> Vec:
        return other if isinstance(other, Vec) else self.builder.constant(other, self.type)

    __add__, __sub__ = _operator("add", "fadd"), _operator("sub", "fsub")
    __mul__, __truediv__ = _operator("mul", "fmul"), _operator("fdiv")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__ = _operator("shl")

    def __rsub__(self, other: float) -> Vec:
        return self._operand(other) - self

    def __neg__(self) -> Vec:
        if self.type.kind == "f":
            return self.builder.emit(f"fneg {self.type} {self.text}", self.type)
        return self._operand(0) - self

    def __invert__(self) -> Vec:
        return self ^ (True if self.type.bits == 1 else -1)

    def shr(self, other: Vec | int, *, signed: bool) -> Vec:
        return self._binary("ashr" if signed else "lshr", other)

    def divide(self, other: Vec, *, signed: bool) -> Vec:
        """Integers, towards zero; undefined for a divisor of 0 and for the least by -1."""
        return self._binary("sdiv" if signed else "udiv", other)

    def compare(self, relation: str, other: Vec | float, *, signed: bool = True) -> Vec:
        """`relation` is eq ne lt le gt ge; of floats, only `ne` holds for NaN."""
        b = self.builder
        if self.type.kind == "f":
            op = f"fcmp {'une' if relation == 'ne' else 'o' + relation}"
        elif relation in ("eq", "ne"):
            op = f"icmp {relation}"
        else:
            op = f"icmp {'s' if signed else 'u'}{relation}"
        line = f"{op} {self.type} {self.text}, {b.text(other, self.type)}"
        return b.emit(line, self.type.mask)

    lt, le, gt = _relation("lt"), _relation("le"), _relation("gt")
    ge, eq, ne = _relation("ge"), _relation("eq"), _relation("ne")

    def is_nan(self) -> Vec:
        b = self.builder
        return b.emit(f"fcmp uno {self.type} {self.text}, {self.text}", self.type.mask)

    def select(self, a: Vec | float, b: Vec | float) -> Vec:
        """`a` where this mask holds, else `b`; one of the two must be a Vec."""
        model = a if isinstance(a, Vec) else b
        assert isinstance(model, Vec)
        build, t = self.builder, model.type
        line = f"select {self.type} {self.text}, {t} {build.text(a, t)}, {t} {build.text(b, t)}"
        return build.emit(line, t)

    def convert(self, op: str, to: VType) -> Vec:
        """One of LLVM's casts: trunc, sext, zext, fptrunc, fpext, sitofp, uitofp, bitcast."""
        if to == self.type:
            return self
        return self.builder.emit(f"{op} {self.type} {self.text} to {to}", to)

    def bits(self) -> Vec:
        return self.convert("bitcast", self.type.as_int)

    def as_float(self) -> Vec:
        return self.convert("bitcast", self.type.as_float)

    def to_int(self) -> Vec:
        """A whole float as an integer of its width; any integer where it does not fit."""
        whole = self.convert("fptosi", self.type.as_int)
        return self.builder.emit(f"freeze {whole.type} {whole.text}", whole.type)


class Builder:
    """One function under construction: the current block, and what the module must declare."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.blocks: list[BasicBlock] = []
        self.declarations: set[str] = set()
        self.globals: dict[str, str] = {}
        self.allocas: dict[str, str] = {}
        self.n_names = 0
        self.block = self.new_block("entry")
        wide = target.vector_bits >= 256 or not target.is_x86
        self.has_rounding = wide or "+sse4.1" in target.features
        self.has_masks = target.is_x86 and target.vector_bits == 512

    def new_block(self, name: str) -> BasicBlock:
        block = BasicBlock(f"{name}{len(self.blocks)}" if self.blocks else name)
        self.blocks.append(block)
        return block

    def new_name(self) -> str:
        self.n_names += 1
        return f"%v{self.n_names}"

    def emit(self, line: str, type_: VType) -> Vec:
        return Vec(self, self.emit_pointer(line), type_)

    def emit_pointer(self, line: str) -> str:
        self.n_names += 1
        name = f"%v{self.n_names}"
        self.block.lines.append(f"{name} = {line}")
        return name

    def emit_void(self, line: str) -> None:
        self.block.lines.append(line)

    def text(self, value: Vec | float, type_: VType) -> str:
        if isinstance(value, Vec):
            return value.text
        return constant_text(value, type_.kind, type_.bits, type_.lanes)

    def constant(self, value: float | int | bool, type_: VType) -> Vec:
        return Vec(self, constant_text(value, type_.kind, type_.bits, type_.lanes), type_)

    def hidden(self, value: int, type_: VType) -> Vec:
        """A constant that the optimiser takes for any vector, and keeps in a register."""
        kept = "v" if self.target.is_x86 else "w"
        asked = constant_text(value, type_.kind, type_.bits, type_.lanes)
        return self.emit(f'call {type_} asm "", "={kept},0"({type_} {asked})', type_)

    def table(self, values: Sequence[float | int | bool], type_: VType) -> Vec:
        """A constant vector with a value for each lane."""
        scalar = type_.scalar
        parts = [f"{scalar} {constant_text(v, scalar.kind, scalar.bits, 1)}" for v in values]
        return Vec(self, f"<{', '.join(parts)}>", type_)

    def iota(self, type_: VType) -> Vec:
        if type_.lanes == 1:
            return self.constant(0, type_)
        return self.table(range(type_.lanes), type_)

    def call(self, name: str, result: VType, *args: Vec) -> Vec:
        """Calls an intrinsic by its full name."""
        types = ", ".join(str(arg.type) for arg in args)
        self.declarations.add(f"declare {result} @{name}({types})")
        operands = ", ".join(f"{arg.type} {arg.text}" for arg in args)
        return self.emit(f"call {result} @{name}({operands})", result)

    def intrinsic(self, name: str, *args: Vec) -> Vec:
        """Calls `llvm.<name>` overloaded on its one type."""
        t = args[0].type
        return self.call(f"llvm.{name}.{t.mangled}", t, *args)

    def load(self, type_: VType, pointer: str, align: int) -> Vec:
        return self.emit(f"load {type_}, ptr {pointer}, align {align}", type_)

    def store(self, value: Vec, pointer: str, align: int) -> None:
        self.emit_void(f"store {value.type} {value.text}, ptr {pointer}, align {align}")

    def broadcast(self, x: Vec, lanes: int) -> Vec:
        if lanes == x.type.lanes:
            return x
        t = x.type._replace(lanes=lanes)
        if x.is_constant:
            return Vec(self, f"splat ({x.type} {x.text})", t)
        first = self.emit(f"insertelement {t} poison, {x.type} {x.text}, i64 0", t)
        return self.shuffle(first, None, [0] * lanes)

    def shuffle(self, a: Vec, b: Vec | None, picks: Sequence[int]) -> Vec:
        t = a.type._replace(lanes=len(picks))
        mask = ", ".join(f"i32 {pick}" for pick in picks)
        other = "poison" if b is None else b.text
        line = f"shufflevector {a.type} {a.text}, {a.type} {other}, <{len(picks)} x i32> <{mask}>"
        return self.emit(line, t)

    def lane(self, x: Vec, at: int) -> Vec:
        return self.emit(f"extractelement {x.type} {x.text}, i64 {at}", x.type.scalar)

    def any(self, mask: Vec) -> Vec:
        """Whether a lane of the mask holds."""
        if mask.type.lanes == 1:
            return mask
        name = f"llvm.vector.reduce.or.{mask.type.mangled}"
        return self.call(name, VType("i", 1, 1), mask)

    def offset(self, pointer: str, nbytes: int) -> str:
        if nbytes == 0:
            return pointer
        return self.emit_pointer(f"getelementptr i8, ptr {pointer}, i64 {nbytes}")

    def stack(self, type_: VType, name: str) -> str:
        """A place on the stack, one for each name and type in a function."""
        pointer = f"%{name}_{type_.mangled}"
        self.allocas[pointer] = f"{pointer} = alloca {type_}, align 8"
        return pointer

    def if_any(
        self, mask: Vec, inside: Callable[[], Sequence[Vec]], instead: Sequence[Vec]
    ) -> list[Vec]:
        """The values `inside` makes if a lane of the mask holds, else `instead`."""
        flag = self.any(mask)
        before = self.block
        then, after = self.new_block("rare"), self.new_block("on")
        before.end = f"br i1 {flag.text}, label %{then.name}, label %{after.name}"
        self.block = then
        made = inside()
        self.block.end = f"br label %{after.name}"
        last = self.block
        self.block = after
        return [
            self.phi(after, [(new, last), (old, before)])
            for new, old in zip(made, instead, strict=True)
        ]

    def when(self, mask: Vec, inside: Callable[[], None]) -> None:
        """Runs what `inside` emits if a lane of the mask holds."""

        def nothing() -> Sequence[Vec]:
            inside()
            return []

        self.if_any(mask, nothing, [])

    def phi(self, block: BasicBlock, sources: Sequence[tuple[Vec, BasicBlock]]) -> Vec:
        name = self.new_name()
        self.set_phi(block, name, sources)
        return Vec(self, name, sources[0][0].type)

    def set_phi(
        self, block: BasicBlock, name: str, sources: Sequence[tuple[Vec, BasicBlock]]
    ) -> None:
        pairs = ", ".join(f"[ {value.text}, %{source.name} ]" for value, source in sources)
        block.phis.append(f"{name} = phi {sources[0][0].type} {pairs}")

    def body_text(self) -> str:
        out: list[str] = []
        for block in self.blocks:
            out.append(f"{block.name}:")
            out += (f"  {line}" for line in block.phis)
            if block is self.blocks[0]:
                out += (f"  {line}" for line in self.allocas.values())
            out += (f"  {line}" for line in block.lines)
            out.append(f"  {block.end}")
        return "\n".join(out)
