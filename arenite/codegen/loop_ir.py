"""The loop IR: what one kernel does, as loops over flat arrays, neutral between devices.

    kernel   body for each tile in [tile_begin, tile_end)
    stmt     Let | Store | For | If | Accumulator | Accumulate | AccumulateArg | Require | Barrier
             | Foreign
    expr     Const | Name | Load | Unary | Binary | Fma | Select | Rare | Cast | Bitcast | Table
    function body and result of parameters: what an op is, spelled out (see `codegen/maths`)

Every expression has a dtype; indices count elements and are int64. Nothing traps and nothing is
undefined: the meaning of each op is fixed here and is the same on every device. Expressions may
share parts: a part that is one Python object is computed once. A Let does the same, and prints
better.

Numbers. Arithmetic is NumPy's: `max`, `min` hand NaN on, and of two zeros give either; `floordiv`,
`mod` round towards minus infinity and take the divisor's sign, `div`, `fmod` of integers round
towards zero; an integer divided by zero gives 0; integers wrap; a shift by the width or more gives
0, or the sign; `pow` of integers with a negative exponent is 0 unless the base is 1 or -1; `round`
goes to even; `not` and the bitwise ops work on bool and on integers. A cast of a float to an
integer rounds towards zero, saturates, and makes NaN 0; to bool it is `!= 0`; between integers it
wraps; to a narrower float it rounds to nearest even (an integer passes through float32 on its way
to one below float32). float16, bfloat16 and the float8 kinds are storage: load, store, select,
cast, bitcast, nothing else; cast them to float32 to compute. Operations are not contracted, with
one exception: an accumulated `add` of a float product is a fused multiply-add where the target has
one.

What functions are made of. `Fma` of floats is rounded once where the device has the instruction and
twice where it has none. `copysign(a, b)` is |a| with the sign bit of b. `ldexp(a, b)` is a 2^b
rounded once, for |a| in [1/4, 4] and a whole float b within twice the range of exponents.
`product_error(a, b)` is a b less its rounded value, exactly, where that is a normal float. `mulhi`
is the upper half of the product of two unsigned integers.

Loops. Iterations of a vector loop are independent but for what they accumulate, and so may run in
any order and side by side. A vector loop directly around another one, with nothing beside it, is a
tile: loads that are contiguous in the outer variable are then transposed in registers. Partial
results of a reduction are combined in a fixed order: a result depends on the target and on the
loop bounds, never on how tiles are dealt out.

Memory. Two arrays may share bytes only in place: each element shared is read, by the iteration
that writes it, before it is written, and by no other iteration of that loop or of a later one.

Groups. In a GroupKernel each tile is run by one group of threads, as GPUs have them. A vector loop
is dealt out to the threads, iteration by iteration in turn; all else is done by every thread alike,
but stores and requirements by one of them. What a vector loop accumulates into an accumulator from
outside is combined over the group when it ends, and is then the same for all threads. A vector loop
over [0, threads) is a thread loop: each thread runs one iteration, so that it may hold barriers,
and what it declares lives on across them. Shared arrays are the group's own and begin undefined.
Indices may be int32 (`index_dtype`), as everything that is computed with them is then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from arenite.codegen.loop_expressions import *  # noqa: F403
from arenite.codegen.loop_expressions import INT64, Const, Expr, Name, operands_of
from arenite.dtype import BY_NAME, DType

#: `set` is for serial loops alone: it keeps the last value, so that any recurrence can be written.
ACCUMULATE_OPS = frozenset("add mul max min and or xor set".split())

Role = Literal["in", "out", "inout"]


class Stmt:
    """What a block is made of."""

    __slots__ = ()
    operands: ClassVar[tuple[str, ...]] = ()  # the fields that hold expressions, or None
    bodies: ClassVar[tuple[str, ...]] = ()  # the fields that hold blocks


Block: TypeAlias = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Let(Stmt):
    """Names a value until the end of the enclosing block."""

    operands = ("value",)
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Store(Stmt):
    operands = ("index", "value", "mask")
    array: str
    index: Expr
    value: Expr
    mask: Expr | None = None  # where it is false nothing is written


@dataclass(frozen=True, slots=True)
class For(Stmt):
    """`var` runs over [start, stop). `unroll` 0 leaves it to the lowering.

    In a vector loop `unroll` counts vectors, which run through the body together: loops inside the
    body are entered once for all of them.
    """

    operands = ("start", "stop")
    bodies = ("body",)
    var: str
    start: Expr
    stop: Expr
    body: Block
    vector: bool = False
    unroll: int = 0


@dataclass(frozen=True, slots=True)
class If(Stmt):
    operands = ("cond",)
    bodies = ("then", "else_")
    cond: Expr
    then: Block
    else_: Block = ()


@dataclass(frozen=True, slots=True)
class While(Stmt):
    """Runs the body while the condition holds. In functions only."""

    operands = ("cond",)
    bodies = ("body",)
    cond: Expr
    body: Block


@dataclass(frozen=True, slots=True)
class Accumulator(Stmt):
    """Declares a variable that Accumulate changes; `Name(name)` is what it holds so far.

    Declared inside a vector loop it has a value for each iteration. Declared outside, it may be
    read after the loop only.
    """

    operands = ("init",)
    name: str
    init: Expr


@dataclass(frozen=True, slots=True)
class Accumulate(Stmt):
    operands = ("value",)
    name: str
    op: str
    value: Expr


@dataclass(frozen=True, slots=True)
class AccumulateArg(Stmt):
    """If `value` beats accumulator `best`, or ties at a smaller index, it and `index` take over.

    NaN beats all. Start `best` at the least value (argmax) or the greatest (argmin) and `at` at the
    greatest index, or both at the first element.
    """

    operands = ("value", "index")
    best: str
    at: str
    op: Literal["argmax", "argmin"]
    value: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Require(Stmt):
    """Where `cond` is false, sets the run's error word to `error` unless it is set; then goes on.

    What follows must be safe all the same, so mask loads and stores with the same condition.
    """

    operands = ("cond", "error")
    cond: Expr
    error: Expr


@dataclass(frozen=True, slots=True)
class Barrier(Stmt):
    """No thread of the group goes on before all are here, and what was stored is seen by all."""


@dataclass(frozen=True, slots=True)
class Access:
    """Elements that foreign text reads or writes: those at `index`, where each of these names runs
    from 0 to the most that it is; one may be bounded by names before it."""

    array: str
    index: Expr
    most: tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, slots=True)
class Foreign(Stmt):
    """Text in the language of one device, done by all threads of a group together, where loops
    can't say it: words of four, sums over lanes, products of bytes. `$name` in it stands for a
    name of the kernel. It stands outside of vector loops and conditions, and waits for nobody at
    its ends: barriers around it are the kernel's.
    """

    text: str
    uses: tuple[Name, ...]  # values that it reads
    reads: tuple[str, ...]  # arrays
    writes: tuple[str, ...]
    wide: tuple[str, ...] = ()  # arrays of which it reads four words at once
    teams: tuple[int, ...] = ()  # lanes that it sums over, in powers of two
    functions: str = ""  # that it calls, at the top level
    accesses: tuple[Access, ...] = ()  # all of them, where it says which
    turns: Expr | None = None  # of its loops, how many a thread takes at the most


@dataclass(frozen=True, slots=True)
class ArrayArg:
    name: str
    dtype: DType
    role: Role


@dataclass(frozen=True, slots=True)
class LoopKernel:
    """`body` runs for each value of `tile_var`; tiles write different elements.

    Its window holds the addresses of the arrays, in order, then the sizes, in order, all i64. A
    size by the name `float32$0` is a number, its bits the low ones.
    """

    name: str
    arrays: tuple[ArrayArg, ...]
    sizes: tuple[str, ...]
    tiles: Expr  # how many there are, over the sizes
    tile_var: str
    body: Block

    @property
    def parts(
        self,
    ) -> tuple[str, tuple[ArrayArg, ...], tuple[str, ...], Expr, str, Block]:
        """What a kernel of the same loops begins with that has more to it."""
        return self.name, self.arrays, self.sizes, self.tiles, self.tile_var, self.body

    def array(self, name: str) -> ArrayArg:
        return next(array for array in self.arrays if array.name == name)

    @property
    def index_dtype(self) -> DType:
        """Of indices, sizes, loop variables and the tile."""
        return INT64


@dataclass(frozen=True, slots=True)
class SharedArray:
    """Memory of a group, which its threads alone see, while it runs one tile."""

    name: str
    dtype: DType
    count: int  # elements
    width: int = 1  # numbers of an element; where there are more, only foreign text reads it

    @property
    def nbytes(self) -> int:
        return self.count * self.width * self.dtype.bits // 8


@dataclass(frozen=True, slots=True)
class GroupKernel(LoopKernel):
    """Loops for groups of `threads` threads, one group a tile."""

    threads: int
    shared: tuple[SharedArray, ...] = ()
    index_dtype: DType = INT64
    #: The access of which it is not proven that it stays within its array; where there is none a
    #: device need not look at each again.
    unproven: str = "nobody looked"
    #: (size, most, kernel): other loops of the same arrays and sizes, for launches in which that
    #: size is no more than that; the first that fits is taken.
    smaller: tuple[tuple[str, int, GroupKernel], ...] = ()
    #: Other loops of the same arrays, sizes and tiles, which run when all groups are done.
    following: GroupKernel | None = None

    def is_thread_loop(self, loop: For) -> bool:
        """Whether each thread runs exactly one iteration, so that barriers may stand inside."""
        bounds = (loop.start, loop.stop)
        whole = all(isinstance(bound, Const) for bound in bounds) and loop.vector
        return whole and [b.value for b in bounds if isinstance(b, Const)] == [0, self.threads]


#: In the name of a size that is the bits of a number: `float32$0`.
NUMBER = "$"


def size_dtype(kernel: LoopKernel, size: str) -> DType:
    """Of a size in expressions."""
    dtype, is_number, _ = size.partition(NUMBER)
    return BY_NAME[dtype] if is_number else kernel.index_dtype


#: An index behind all others, such as a search begins with; of int32 it is the greatest.
NO_INDEX = 2**62


@dataclass(frozen=True, slots=True)
class Function:
    """A value of scalars: `result` after `body`, which holds Let, Accumulator, `set`, If and While.

    An If without `else_` is a rare path. On vectors it runs if any lane needs it, a While as long
    as any lane does; lanes for which the condition does not hold keep what they have.
    """

    name: str
    parameters: tuple[Name, ...]
    body: Block
    result: Expr


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions directly inside a statement, without those of its blocks."""
    return operands_of(stmt, stmt.operands)


def blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks directly inside a statement."""
    return tuple(getattr(stmt, name) for name in stmt.bodies)


def changed(stmt: Stmt) -> tuple[str, ...]:
    """The accumulators that a statement changes itself."""
    match stmt:
        case Accumulate(name):
            return (name,)
        case AccumulateArg(best, at):
            return best, at
    return ()


def statements(block: Block) -> Iterator[Stmt]:
    """These statements and all inside them."""
    for stmt in block:
        yield stmt
        for inner in blocks(stmt):
            yield from statements(inner)
