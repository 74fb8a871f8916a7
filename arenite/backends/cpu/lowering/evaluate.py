"""Expressions of the loop IR become values in registers.

`Evaluator` holds the mode: how many lanes a varying value has, and the mask of the lanes that are
active. Every expression is emitted once at the level it belongs to; a value that is the same in all
lanes stays a scalar until a vector is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from arenite.backends.cpu.lowering import arithmetic
from arenite.backends.cpu.lowering.access import Access, load_vector
from arenite.backends.cpu.lowering.convert import from_memory, memory_type, register_type
from arenite.backends.cpu.lowering.scope import SCALAR, Info, Scope
from arenite.backends.cpu.lowering.vector import Builder, Vec, VType
from arenite.codegen import affine
from arenite.codegen import loop_ir as ir
from arenite.dtype import FLOAT32, DType, Kind


@dataclass(slots=True)
class VectorMode:
    """The vector loop that is being emitted."""

    variable: str
    lanes: int
    parts: int  # vectors that go through the body together
    masks: dict[int, Vec]  # active lanes, by part; no entry: all
    is_predicated: bool = False  # inside an If: there may be no active lane at all
    divisor: int = 1  # of the first lane's number


class Evaluator:
    def __init__(self, builder: Builder, kernel: ir.LoopKernel) -> None:
        self.builder = builder
        self.scope = Scope(builder, kernel)
        self.kernel = kernel
        self.pointers: dict[str, str] = {}
        self.vector: VectorMode | None = None
        #: Loads that a tile has made already, by the identity of the Load.
        self.transposed: dict[int, Vec] = {}

    def value(self, expr: ir.Expr, part: int) -> Vec:
        """As a scalar if it is the same in all lanes, else as the vector of that part."""
        if isinstance(expr, ir.Const):
            return self.constant(expr.value, expr.dtype)
        if isinstance(expr, ir.Name):
            binding = self.scope.binding(expr.name)
            if binding.is_lazy and binding.definition is not None:
                return self.value(binding.definition, part)
            found = binding.values.get(part if binding.varying else SCALAR)
            if found is not None:
                return found
        info = self.scope.info(expr)
        at = part if info.varying else SCALAR
        return self.scope.remembered((id(expr), at), info, lambda: self._make(expr, info, part))

    def lanes(self, expr: ir.Expr, part: int) -> Vec:
        """As a vector of the current number of lanes."""
        return self.spread(expr, self.value(expr, part))

    def spread(self, expr: ir.Expr, x: Vec) -> Vec:
        """The value of an expression in all lanes, broadcast where the expression belongs."""
        lanes = 1 if self.vector is None else self.vector.lanes
        if x.type.lanes == lanes:
            return x
        if x.is_constant:
            return self.builder.broadcast(x, lanes)
        key = (id(expr), f"x{lanes}")
        info = self.scope.info(expr)
        return self.scope.remembered(key, info, lambda: self.builder.broadcast(x, lanes))

    def constant(self, value: bool | int | float, dtype: DType) -> Vec:
        if dtype.kind is Kind.FLOAT and dtype.bits < 32:
            float32 = FLOAT32
            single = self.builder.constant(value, register_type(float32, 1))
            return arithmetic.cast(single, float32, dtype)
        return self.builder.constant(value, register_type(dtype, 1))

    def _make(self, expr: ir.Expr, info: Info, part: int) -> Vec:
        if isinstance(expr, ir.Load):
            return self._load_varying(expr, part) if info.varying else self._load(expr)
        if isinstance(expr, ir.Name):
            return self._vector_variable(expr.name, part)
        # A Rare is a Select here: what is shared with others can't be branched over.
        get: Callable[[ir.Expr, int], Vec] = self.lanes if info.varying else self.value
        return arithmetic.operation(expr, lambda operand: get(operand, part))

    def _vector_variable(self, name: str, part: int) -> Vec:
        """The loop variable as a vector: its value in the first lane, counted up."""
        assert self.vector is not None
        lanes = self.vector.lanes
        first = self.scope.binding(name).values[SCALAR] + part * lanes
        return self.builder.broadcast(first, lanes) + self.builder.iota(VType("i", 64, lanes))

    def pointer(self, array: str, at: ir.Expr, part: int = SCALAR) -> str:
        """The address of one element, the same in all lanes."""
        element = memory_type(self.kernel.array(array).dtype, 1)
        offset = self.value(at, part).text
        base = self.pointers[array]
        return self.builder.emit_pointer(f"getelementptr {element}, ptr {base}, i64 {offset}")

    def _load(self, load: ir.Load) -> Vec:
        """One element, the same in all lanes."""
        mask = None if load.mask is None else self.value(load.mask, SCALAR)
        address = self.pointer(load.array, load.index)
        value = self._guarded_load(address, mask, load.dtype)
        if mask is None:
            return value
        return mask.select(value, self._other(load))

    def _other(self, load: ir.Load) -> Vec:
        if load.other is None:
            return self.builder.constant(0, register_type(load.dtype, 1))
        return self.value(load.other, SCALAR)

    def _guarded_load(self, address: str, mask: Vec | None, dtype: DType) -> Vec:
        """A scalar load; where it must not happen it reads the launch's arguments instead."""
        b = self.builder
        if self.vector is not None and self.vector.is_predicated:
            wanted = [b.any(active) for active in self.vector.masks.values()]
            some = reduce(or_, wanted)
            mask = some if mask is None else mask & some
        if mask is not None:
            address = b.emit_pointer(f"select i1 {mask.text}, ptr {address}, ptr %window")
        t = memory_type(dtype, 1)
        return from_memory(b.load(t, address, 1), dtype)

    def _load_varying(self, load: ir.Load, part: int) -> Vec:
        vector = self.vector
        assert vector is not None
        ready = self.transposed.get(id(load))
        if ready is not None:
            return ready
        mask = None if load.mask is None else self.lanes(load.mask, part)
        active = vector.masks.get(part)
        both = active if mask is None else mask if active is None else mask & active
        access = self._repeated(load, part) or self.access(load.array, load.index, part)
        if access.kind == "broadcast":
            wanted = None if both is None or mask is None else self.builder.any(both)
            scalar = self._guarded_load(access.pointer, wanted, load.dtype)
            value = self.builder.broadcast(scalar, vector.lanes)
        else:
            if mask is not None and both is not None and access.kind == "strided":
                access = self._kept_inside(access, load.array, both)
            value = load_vector(self.builder, access, load.dtype, both)
        if mask is None:
            return value
        other = None if load.other is None else self.lanes(load.other, part)
        return mask.select(value, 0 if other is None else other)

    def _kept_inside(self, access: Access, array: str, mask: Vec) -> Access:
        """The array's own address where no lane is active: a load that touches nothing is still
        slow, by a factor of ten, where its address is not mapped."""
        b = self.builder
        wanted = b.any(mask).text
        line = f"select i1 {wanted}, ptr {access.pointer}, ptr {self.pointers[array]}"
        return replace(access, pointer=b.emit_pointer(line))

    def _split(self, at: ir.Expr, times: int = 1) -> affine.Affine | None:
        assert self.vector is not None
        around = affine.Surroundings(
            self.vector.variable,
            lambda expr: self.scope.info(expr).varying,
            self._definition,
            times,
        )
        return affine.split(at, around)

    def _repeated(self, load: ir.Load, part: int) -> Access | None:
        """Elements that come several times each, side by side, if these are such."""
        vector = self.vector
        assert vector is not None
        if vector.divisor == 1 or self._split(load.index) is not None:
            return None
        for times in affine.REPEATS:
            form = self._split(load.index, times) if vector.divisor % times == 0 else None
            count = vector.lanes // times
            if form is None or form.strides or form.coefficient != 1 or count < 2:
                continue
            element = memory_type(self.kernel.array(load.array).dtype, 1)
            base = self._base(load.array, form, element)
            first = self.scope.binding(vector.variable).values[SCALAR]
            first = first.shr(times.bit_length() - 1, signed=True)
            line = f"getelementptr {element}, ptr {base}, i64 {first.text}"
            start = self.builder.offset(
                self.builder.emit_pointer(line), part * count * element.bits // 8
            )
            return Access("repeated", start, vector.lanes, times)
        return None

    def access(self, array: str, at: ir.Expr, part: int) -> Access:
        """How the lanes of a part reach their elements."""
        assert self.vector is not None
        b, lanes = self.builder, self.vector.lanes
        dtype = self.kernel.array(array).dtype
        element = memory_type(dtype, 1)
        form = self._split(at)
        if form is None or (form.strides and form.coefficient):
            indices = self.lanes(at, part)
            base = self.pointers[array]
            line = f"getelementptr {element}, ptr {base}, {indices.type} {indices.text}"
            return Access("gather", b.emit_pointer(line), lanes)
        base = self._base(array, form, element)
        variable = self.scope.binding(self.vector.variable).values[SCALAR]
        if form.strides:
            stride = self._runtime_stride(form.strides)
            first = stride * (variable + part * lanes)
            start = b.emit_pointer(f"getelementptr {element}, ptr {base}, i64 {first.text}")
            steps = b.broadcast(stride, lanes) * b.iota(VType("i", 64, lanes))
            line = f"getelementptr {element}, ptr {start}, {steps.type} {steps.text}"
            return Access("gather", b.emit_pointer(line), lanes)
        if form.coefficient == 0:
            return Access("broadcast", base, lanes)
        moved = variable if form.coefficient == 1 else variable * form.coefficient
        start = b.emit_pointer(f"getelementptr {element}, ptr {base}, i64 {moved.text}")
        start = b.offset(start, part * lanes * form.coefficient * element.bits // 8)
        return Access("strided", start, lanes, form.coefficient)

    def _definition(self, name: str) -> ir.Expr | None:
        return self.scope.binding(name).definition

    def _base(self, array: str, form: affine.Affine, element: VType) -> str:
        """The array's address plus what the vector variable does not change, made where it can."""
        infos = [(self.scope.info(expr), expr, times) for expr, times in form.terms]
        infos.sort(key=lambda entry: entry[0].level)
        pointer = self.pointers[array]
        for info, expr, times in infos:
            pointer = self._moved(pointer, info, expr, times, element)
        # Last, since it is made here: what is moved above may be made, and kept, further out.
        if form.constant:
            pointer = self.builder.offset(pointer, form.constant * element.bits // 8)
        return pointer

    def _moved(self, pointer: str, info: Info, expr: ir.Expr, times: int, element: VType) -> str:
        def make() -> str:
            amount = self.value(expr, SCALAR)
            amount = amount if times == 1 else amount * times
            line = f"getelementptr {element}, ptr {pointer}, i64 {amount.text}"
            return self.builder.emit_pointer(line)

        key = (id(expr), f"{pointer} {element} {times}")
        return self.scope.remembered(key, info, make)

    def _runtime_stride(self, strides: tuple[affine.Term, ...]) -> Vec:
        total: Vec | None = None
        for expr, times in strides:
            amount = self.value(expr, SCALAR) * times
            total = amount if total is None else total + amount
        assert total is not None
        return total
