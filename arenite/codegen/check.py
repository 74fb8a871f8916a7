"""Is this loop kernel well formed? Names, dtypes, roles and the rules of vector loops.

In: a LoopKernel. Out: nothing, or InvalidArgument that names the kernel, the statement and what
is wrong with it. What passes here is lowered without further questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from arenite.codegen import loop_ir as ir
from arenite.codegen.group_check import check_group
from arenite.codegen.printer import expression_text, statement_line
from arenite.dtype import DType, Kind
from arenite.errors import InvalidArgument

#: Deeper expressions are cut with Let; the lowering walks them recursively.
MAX_DEPTH = 80

#: What can be loaded and stored; the floats below float32 can't be computed with.
_WHOLE_BYTE_KINDS = (Kind.BOOL, Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT)

_BOOL_OPS = ir.COMPARISONS | ir.BITWISE_OPS | {"not", "max", "min"}


def is_storable(dtype: DType) -> bool:
    return dtype.kind in _WHOLE_BYTE_KINDS and dtype.bits in (8, 16, 32, 64)


def is_computable(dtype: DType) -> bool:
    return is_storable(dtype) and (dtype.kind is not Kind.FLOAT or dtype.bits >= 32)


def check(kernel: ir.LoopKernel) -> None:
    """Raises InvalidArgument if the kernel breaks a rule of the loop IR."""
    _Checker(kernel).run()


@dataclass(frozen=True, slots=True)
class _Binding:
    dtype: DType
    varying: bool = False  # has a value for each iteration of the vector loop around
    accumulator: bool = False
    loop: int = 0  # the vector loop it was declared in, 0 for none


class _Checker:
    def __init__(self, kernel: ir.LoopKernel) -> None:
        self.kernel = kernel
        self.index = kernel.index_dtype
        self.shared = kernel.shared if isinstance(kernel, ir.GroupKernel) else ()
        self.arrays = {array.name: array for array in kernel.arrays}
        self.arrays |= {s.name: ir.ArrayArg(s.name, s.dtype, "inout") for s in self.shared}
        self.wide = {s.name for s in self.shared if s.width > 1}
        self.where: ir.Stmt | None = None
        self.names: dict[str, _Binding] = {}
        self.loop = 0  # number of the vector loop around, 0 for none
        self.loops = 0
        self.accumulated: set[str] = set()  # in the vector loop around
        self.reduced: dict[str, str] = {}  # those of them declared outside of it: their op
        self.seen: dict[int, bool] = {}  # expressions of this statement: are they varying

    def run(self) -> None:
        kernel = self.kernel
        for array in self.arrays.values():
            if not is_storable(array.dtype):
                self.fail(
                    f"array {array.name} has dtype {array.dtype}, which has no element access"
                )
        names = [*self.arrays, *kernel.sizes, kernel.tile_var, ir.WORKER.name]
        n_arrays = len(kernel.arrays) + len(self.shared)
        if len(names) != len({*names}) or len(self.arrays) != n_arrays:
            self.fail(f"two arguments share a name: {', '.join(names)}")
        for size in kernel.sizes:
            self.names[size] = _Binding(ir.size_dtype(kernel, size))
        self.expect(kernel.tiles, self.index, "the tile count")
        for name in (kernel.tile_var, ir.WORKER.name):
            self.names[name] = _Binding(self.index)
        self.block(kernel.body)
        if isinstance(kernel, ir.GroupKernel):
            self.where = None
            check_group(kernel, self.fail)

    def fail(self, message: str) -> NoReturn:
        where = "its arguments" if self.where is None else statement_line(self.where)
        raise InvalidArgument(f"loop kernel {self.kernel.name}, {where}: {message}")

    def block(self, block: ir.Block) -> None:
        outside = self.names
        self.names = dict(outside)
        for stmt in block:
            self.where = stmt
            self.seen = {}
            self.statement(stmt)
        self.names = outside

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(name, value):
                self.define(name, _Binding(value.dtype, self.expression(value)))
            case ir.Store(array, at, value, mask):
                self.store(array, at, value, mask)
            case ir.For():
                self.loop_statement(stmt)
            case ir.While():
                self.fail("a loop while a condition holds can be part of a function only")
            case ir.If(cond, then, else_):
                self.expect(cond, ir.BOOL, "the condition")
                self.block(then)
                self.block(else_)
            case ir.Accumulator(name, init):
                if not is_computable(init.dtype):
                    self.fail(f"an accumulator can't be {init.dtype}: accumulate in float32")
                self.expression(init)
                self.define(name, _Binding(init.dtype, self.loop > 0, True, self.loop))
            case ir.Accumulate(name, op, value):
                if op not in ir.ACCUMULATE_OPS:
                    self.fail(f"no such way to accumulate: {op!r}")
                self.operation(op if op != "set" else "max", value.dtype, ir.BINARY_OPS)
                self.accumulate(name, op, value)
            case ir.AccumulateArg(best, at, op, value, where):
                if op not in ("argmax", "argmin") or best == at:
                    self.fail(
                        f"{op!r} of {best} at {at} is no argmax or argmin of two accumulators"
                    )
                self.accumulate(best, op, value)
                self.accumulate(at, op, where)
            case ir.Require(cond, error):
                self.expect(cond, ir.BOOL, "the condition")
                if self.expect(error, self.index, "the error"):
                    self.fail("the error differs between iterations of the vector loop")
            case ir.Barrier():
                if not isinstance(self.kernel, ir.GroupKernel):
                    self.fail("a barrier stands in a kernel that has no groups of threads")
            case ir.Foreign():
                self.foreign(stmt)

    def foreign(self, stmt: ir.Foreign) -> None:
        if not isinstance(self.kernel, ir.GroupKernel) or self.loop:
            self.fail("foreign text stands in a vector loop, or in a kernel that has no groups")
        for name in stmt.uses:
            self.expression(name)
        for array in (*stmt.reads, *stmt.writes, *stmt.wide):
            if array not in self.arrays:
                self.fail(f"there is no array {array}")
        for array in stmt.writes:
            if self.arrays[array].role == "in":
                self.fail(f"array {array} is an input and can't be stored to")
        for team in stmt.teams:
            if team & (team - 1) or not 0 < team <= self.kernel.threads:
                self.fail(f"{team} of {self.kernel.threads} threads are no team")

    def define(self, name: str, binding: _Binding) -> None:
        if name in self.names or name in self.arrays:
            self.fail(f"the name {name} is already in use here")
        self.names[name] = binding

    def store(self, array: str, at: ir.Expr, value: ir.Expr, mask: ir.Expr | None) -> None:
        self.known(array)
        if self.arrays[array].role == "in":
            self.fail(f"array {array} is an input and can't be stored to")
        self.expect(at, self.index, "the index")
        self.expect(value, self.arrays[array].dtype, "the value")
        if mask is not None:
            self.expect(mask, ir.BOOL, "the mask")

    def bounds(self, loop: ir.For) -> None:
        for bound in (loop.start, loop.stop):
            if self.expect(bound, self.index, "a bound"):
                self.fail("a bound differs between iterations of the vector loop around")

    def loop_statement(self, loop: ir.For) -> None:
        self.bounds(loop)
        if loop.unroll < 0:
            self.fail(f"unroll is {loop.unroll}")
        outside, loop_around, reduced = self.names, self.loop, self.reduced
        self.names = dict(outside)
        if loop.vector:
            if self.loop:
                self.fail("a vector loop in a vector loop must be all of its body (a tile)")
            self.loops += 1
            self.loop = self.loops
            self.reduced = {}
            inside = ir.statements(loop.body)
            self.accumulated = {name for stmt in inside for name in ir.changed(stmt)}
        self.define(loop.var, _Binding(self.index, loop.vector))
        inner = loop.body[0] if len(loop.body) == 1 else None
        if loop.vector and isinstance(inner, ir.For) and inner.vector:
            self.tile(inner)
        else:
            self.block(loop.body)
        self.names, self.loop, self.reduced = outside, loop_around, reduced
        if not self.loop:
            self.accumulated = set()

    def tile(self, inner: ir.For) -> None:
        """The body of the outer loop of a tile: another vector loop with Lets and Stores."""
        self.where = inner
        self.seen = {}
        self.bounds(inner)
        self.define(inner.var, _Binding(self.index, True))
        if not all(isinstance(stmt, ir.Let | ir.Store) for stmt in inner.body):
            self.fail("the body of a tile (two vector loops) holds Let and Store only")
        self.block(inner.body)

    def accumulate(self, name: str, op: str, value: ir.Expr) -> None:
        binding = self.names.get(name)
        if binding is None or not binding.accumulator:
            self.fail(f"{name} is no accumulator here")
        self.expect(value, binding.dtype, f"what is accumulated into {name}")
        if binding.loop != self.loop:
            if op == "set":
                self.fail(f"{name} is set by every iteration of a vector loop")
            if self.reduced.setdefault(name, op) != op:
                self.fail(f"{name} is accumulated in two ways in one vector loop")

    def expect(self, expr: ir.Expr, dtype: DType, what: str) -> bool:
        """Checks the expression and that it has the dtype; is it varying?"""
        varying = self.expression(expr)
        if expr.dtype != dtype:
            self.fail(f"{what} {expression_text(expr)} is {expr.dtype} and must be {dtype}")
        return varying

    def expression(self, expr: ir.Expr, depth: int = 0) -> bool:
        """Checks one expression; returns whether it differs between vector iterations."""
        if id(expr) in self.seen:
            return self.seen[id(expr)]
        if depth > MAX_DEPTH:
            # Too deep to be printed as well.
            where = type(self.where).__name__ if self.where else "its arguments"
            raise InvalidArgument(
                f"loop kernel {self.kernel.name}, {where}: an expression is more than {MAX_DEPTH} "
                "deep; name parts of it with Let"
            )
        if isinstance(expr, ir.Iterate):
            self.fail("a repetition while a condition holds can be part of a function only")
        varying = False
        for child in ir.children(expr):
            varying |= self.expression(child, depth + 1)
        match expr:
            case ir.Name(name, dtype):
                varying = self.name(name, dtype)
            case ir.Const(value, dtype):
                self.constant(value, dtype)
            case ir.Load():
                self.load(expr)
            case ir.Unary(op, x):
                self.operation(op, x.dtype, ir.UNARY_OPS)
            case ir.Binary(op, a, b):
                self.same(expr, a.dtype, b.dtype)
                self.operation(op, a.dtype, ir.BINARY_OPS)
            case ir.Fma(a, b, c):
                self.same(expr, a.dtype, b.dtype)
                self.same(expr, a.dtype, c.dtype)
                if a.dtype.kind is not Kind.FLOAT or not is_computable(a.dtype):
                    self.fail(f"fma is defined for float32 and float64, not for {a.dtype}")
            case ir.Table(values, at, dtype):
                if at.dtype.kind not in (Kind.SIGNED, Kind.UNSIGNED) or not values:
                    self.fail(f"{len(values)} constants are indexed by {at.dtype}")
                for value in values:
                    self.constant(value, dtype)
            case ir.Select(cond, a, b):
                self.same(expr, cond.dtype, ir.BOOL)
                self.same(expr, a.dtype, b.dtype)
            case ir.Cast(x, dtype, fits):
                if not (is_storable(x.dtype) and is_storable(dtype)):
                    self.fail(f"no cast from {x.dtype} to {dtype}")
                if fits and not (is_computable(x.dtype) and x.dtype.kind is Kind.FLOAT):
                    self.fail(f"a cast that `fits` is from float32 or float64, not {x.dtype}")
                if fits and dtype.kind not in (Kind.SIGNED, Kind.UNSIGNED):
                    self.fail(f"a cast that `fits` is to an integer, not to {dtype}")
            case ir.Bitcast(x, dtype):
                is_bool = ir.BOOL in (x.dtype, dtype)
                if x.dtype.bits != dtype.bits or not is_storable(dtype) or is_bool:
                    self.fail(f"no bitcast from {x.dtype} to {dtype}")
        self.seen[id(expr)] = varying
        return varying

    def name(self, name: str, dtype: DType) -> bool:
        binding = self.names.get(name)
        if binding is None:
            self.fail(f"{name} is not defined here; what is: {', '.join(self.names)}")
        if binding.dtype != dtype:
            self.fail(f"{name} is {binding.dtype} and is used as {dtype}")
        if binding.accumulator and binding.loop != self.loop and name in self.accumulated:
            self.fail(f"{name} is read inside the vector loop that accumulates it")
        return binding.varying and self.loop > 0

    def constant(self, value: bool | int | float, dtype: DType) -> None:
        if not is_storable(dtype):
            self.fail(f"a constant can't be {dtype}")
        if dtype.kind in (Kind.SIGNED, Kind.UNSIGNED):
            least = -(1 << dtype.bits - 1) if dtype.kind is Kind.SIGNED else 0
            if not isinstance(value, int) or not least <= value < least + (1 << dtype.bits):
                self.fail(f"{value!r} is no {dtype}")
        elif dtype.kind is Kind.BOOL and not isinstance(value, bool):
            self.fail(f"{value!r} is no bool")

    def known(self, array: str) -> None:
        """There is the array, and it has elements that loops read."""
        if array not in self.arrays:
            self.fail(f"there is no array {array}")
        if array in self.wide:
            self.fail(f"elements of {array} are several numbers: only foreign text reads them")

    def load(self, load: ir.Load) -> None:
        self.known(load.array)
        self.same(load, load.dtype, self.arrays[load.array].dtype)
        self.same(load, load.index.dtype, self.index)
        if load.mask is not None:
            self.same(load, load.mask.dtype, ir.BOOL)
        if load.other is not None:
            self.same(load, load.other.dtype, load.dtype)

    def same(self, expr: ir.Expr, a: DType, b: DType) -> None:
        if a != b:
            self.fail(f"{expression_text(expr)} mixes {a} and {b}")

    def operation(self, op: str, dtype: DType, known: frozenset[str]) -> None:
        """Whether there is the operation, and the dtype has it."""
        if op not in known:
            self.fail(f"no such operation: {op!r}")
        is_float = dtype.kind is Kind.FLOAT
        if not is_computable(dtype):
            self.fail(f"{dtype} is a storage type: cast it to float32 before {op}")
        if op in ir.FLOAT_UNARY_OPS | ir.FLOAT_BINARY_OPS and not is_float:
            self.fail(f"{op} is defined for floats, not for {dtype}")
        if (op == "not" or op in ir.BITWISE_OPS or op in ir.SHIFTS) and is_float:
            self.fail(f"{op} is not defined for {dtype}")
        if op in ir.UNSIGNED_OPS and (dtype.kind is not Kind.UNSIGNED or dtype.bits < 32):
            self.fail(f"{op} is defined for uint32 and uint64, not for {dtype}")
        if dtype == ir.BOOL and op not in _BOOL_OPS:
            self.fail(f"{op} is not defined for bool")
