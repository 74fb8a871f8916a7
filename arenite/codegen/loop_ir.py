"""The loop IR: what one kernel does, as loops over flat arrays, neutral between devices.

    kernel   body for each tile in [tile_begin, tile_end)
    stmt     Let | Store | For | If | Accumulator | Accumulate | AccumulateArg | Require | Barrier
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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from arenite.dtype import BY_NAME, DType

INT64, INT32 = BY_NAME["int64"], BY_NAME["int32"]
BOOL, FLOAT32 = BY_NAME["bool"], BY_NAME["float32"]

#: For floats only.
FLOAT_UNARY_OPS = frozenset(
    "exp exp2 expm1 log log2 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erf1p gelu sigmoid floor ceil round trunc isnan isinf".split()
)
#: `times_sigmoid` is a * sigmoid(b).
FLOAT_BINARY_OPS = frozenset("atan2 times_sigmoid copysign ldexp product_error".split())
UNARY_OPS = FLOAT_UNARY_OPS | {"neg", "abs", "sign", "not"}
COMPARISONS = frozenset("eq ne lt le gt ge".split())
BITWISE_OPS = frozenset("and or xor".split())
SHIFTS = frozenset("shift_left shift_right".split())
ARITHMETIC_OPS = frozenset("add sub mul div floordiv mod fmod pow max min".split())
#: For uint32 and uint64 only.
UNSIGNED_OPS = frozenset({"mulhi"})
BINARY_OPS = ARITHMETIC_OPS | COMPARISONS | BITWISE_OPS | SHIFTS | FLOAT_BINARY_OPS | UNSIGNED_OPS

#: `set` is for serial loops alone: it keeps the last value, so that any recurrence can be written.
ACCUMULATE_OPS = frozenset("add mul max min and or xor set".split())

Role = Literal["in", "out", "inout"]


def _operator(op: str) -> Callable[[Expr, Expr | float], Expr]:
    return lambda a, b: _arithmetic(op, a, _constant(b, a.dtype))


def _reflected(op: str) -> Callable[[Expr, float], Expr]:
    return lambda b, a: _arithmetic(op, _constant(a, b.dtype), b)


class Expr:
    """A value. Python's operators build arithmetic; plain numbers become constants."""

    __slots__ = ()
    dtype: DType

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __floordiv__, __mod__ = _operator("floordiv"), _operator("mod")
    __lt__, __le__ = _operator("lt"), _operator("le")
    __gt__, __ge__ = _operator("gt"), _operator("ge")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__, __rshift__ = _operator("shift_left"), _operator("shift_right")

    def __neg__(self) -> Expr:
        return Unary("neg", self)

    def __invert__(self) -> Expr:
        return Unary("not", self)


@dataclass(frozen=True, slots=True)
class Const(Expr):
    value: bool | int | float
    dtype: DType


@dataclass(frozen=True, slots=True)
class Name(Expr):
    """A loop variable, a Let, an Accumulator, a size argument, the tile or `WORKER`."""

    name: str
    dtype: DType = INT64


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """Element `index` of an array. Where `mask` is false nothing is touched and `other` is it."""

    array: str
    index: Expr
    dtype: DType
    mask: Expr | None = None
    other: Expr | None = None  # zero if not given


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    op: str
    x: Expr
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        dtype = BOOL if self.op in ("isnan", "isinf") else self.x.dtype
        object.__setattr__(self, "dtype", dtype)


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    op: str
    a: Expr
    b: Expr
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", BOOL if self.op in COMPARISONS else self.a.dtype)


@dataclass(frozen=True, slots=True)
class Fma(Expr):
    """a * b + c of floats; see the top for its rounding."""

    a: Expr
    b: Expr
    c: Expr
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.a.dtype)


@dataclass(frozen=True, slots=True)
class Select(Expr):
    cond: Expr
    a: Expr  # where cond holds
    b: Expr
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.a.dtype)


@dataclass(frozen=True, slots=True)
class Rare(Select):
    """A Select whose condition hardly ever holds: a device may branch over computing `a`."""


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """`fits`: a float that fits into the integer; where it does not, any integer comes out."""

    x: Expr
    dtype: DType
    fits: bool = False


@dataclass(frozen=True, slots=True)
class Bitcast(Expr):
    """The same bits as another dtype of the same width."""

    x: Expr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Table(Expr):
    """One of the constants. The index lies inside, also where the value is not used."""

    values: tuple[int | float, ...]
    index: Expr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Iterate(Expr):
    """While `cond` holds, the state becomes `step`, all parts at once; then it is `result`.

    In functions only, where it becomes a While; `cond`, `step` and `result` may use the names of
    the state.
    """

    state: tuple[Name, ...]
    start: tuple[Expr, ...]
    cond: Expr
    step: tuple[Expr, ...]
    result: Expr
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.result.dtype)


#: Which worker runs the tile, as an int64: picks a worker's own part of a scratch array.
WORKER = Name("worker")


class Stmt:
    """What a block is made of."""

    __slots__ = ()


Block: TypeAlias = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Let(Stmt):
    """Names a value until the end of the enclosing block."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Store(Stmt):
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

    var: str
    start: Expr
    stop: Expr
    body: Block
    vector: bool = False
    unroll: int = 0


@dataclass(frozen=True, slots=True)
class If(Stmt):
    cond: Expr
    then: Block
    else_: Block = ()


@dataclass(frozen=True, slots=True)
class While(Stmt):
    """Runs the body while the condition holds. In functions only."""

    cond: Expr
    body: Block


@dataclass(frozen=True, slots=True)
class Accumulator(Stmt):
    """Declares a variable that Accumulate changes; `Name(name)` is what it holds so far.

    Declared inside a vector loop it has a value for each iteration. Declared outside, it may be
    read after the loop only.
    """

    name: str
    init: Expr


@dataclass(frozen=True, slots=True)
class Accumulate(Stmt):
    name: str
    op: str
    value: Expr


@dataclass(frozen=True, slots=True)
class AccumulateArg(Stmt):
    """If `value` beats accumulator `best`, or ties at a smaller index, it and `index` take over.

    NaN beats all. Start `best` at the least value (argmax) or the greatest (argmin) and `at` at the
    greatest index, or both at the first element.
    """

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

    cond: Expr
    error: Expr


@dataclass(frozen=True, slots=True)
class Barrier(Stmt):
    """No thread of the group goes on before all are here, and what was stored is seen by all."""


@dataclass(frozen=True, slots=True)
class ArrayArg:
    name: str
    dtype: DType
    role: Role


@dataclass(frozen=True, slots=True)
class LoopKernel:
    """`body` runs for each value of `tile_var`; tiles write different elements.

    Its window holds the addresses of the arrays, in order, then the sizes, in order, all i64.
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

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.bits // 8


@dataclass(frozen=True, slots=True)
class GroupKernel(LoopKernel):
    """Loops for groups of `threads` threads, one group a tile."""

    threads: int
    shared: tuple[SharedArray, ...] = ()
    index_dtype: DType = INT64

    def is_thread_loop(self, loop: For) -> bool:
        """Whether each thread runs exactly one iteration, so that barriers may stand inside."""
        bounds = (loop.start, loop.stop)
        whole = all(isinstance(bound, Const) for bound in bounds) and loop.vector
        return whole and [b.value for b in bounds if isinstance(b, Const)] == [0, self.threads]


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


def index(value: int) -> Const:
    """An int64 constant."""
    return Const(value, INT64)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside an expression."""
    match expr:
        case Unary(x=x) | Cast(x=x) | Bitcast(x=x):
            return (x,)
        case Binary(a=a, b=b):
            return (a, b)
        case Select(cond=cond, a=a, b=b):
            return (cond, a, b)
        case Fma(a=a, b=b, c=c):
            return (a, b, c)
        case Table(index=at):
            return (at,)
        case Iterate(start=start, cond=cond, step=step, result=result):
            return (*start, cond, *step, result)
        case Load(index=at, mask=mask, other=other):
            return (at, *(part for part in (mask, other) if part is not None))
        case _:
            return ()


def with_children(expr: Expr, parts: Sequence[Expr]) -> Expr:
    """The same expression of other parts, in the order of `children`."""
    match expr:
        case Unary(op=op):
            return Unary(op, *parts)
        case Binary(op=op):
            return Binary(op, *parts)
        case Fma() | Select():
            return type(expr)(*parts)
        case Cast() | Bitcast():
            return replace(expr, x=parts[0])
        case Table():
            return replace(expr, index=parts[0])
        case Load(mask=mask, other=other):
            rest = list(parts[1:])
            new_mask = None if mask is None else rest.pop(0)
            new_other = None if other is None else rest.pop(0)
            return replace(expr, index=parts[0], mask=new_mask, other=new_other)
        case _:
            return expr


def walk(*roots: Expr) -> Iterator[Expr]:
    """These expressions and all inside them, shared ones once."""
    stack = list(roots)
    seen: set[int] = set()
    while stack:
        expr = stack.pop()
        if id(expr) not in seen:
            seen.add(id(expr))
            yield expr
            stack += children(expr)


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions directly inside a statement, without those of its blocks."""
    match stmt:
        case Let(value=value) | Accumulate(value=value):
            return (value,)
        case Store(index=at, value=value, mask=mask):
            return (at, value) if mask is None else (at, value, mask)
        case For(start=start, stop=stop):
            return (start, stop)
        case If(cond=cond) | While(cond=cond):
            return (cond,)
        case Accumulator(init=init):
            return (init,)
        case AccumulateArg(value=value, index=at):
            return (value, at)
        case Require(cond=cond, error=error):
            return (cond, error)
        case Barrier():
            return ()
    raise TypeError(f"{stmt!r} is no loop IR statement")


def blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks directly inside a statement."""
    match stmt:
        case For(body=body) | While(body=body):
            return (body,)
        case If(then=then, else_=else_):
            return (then, else_)
        case _:
            return ()


def statements(block: Block) -> Iterator[Stmt]:
    """Those of a block and all inside them."""
    for stmt in block:
        yield stmt
        for inner in blocks(stmt):
            yield from statements(inner)


def _constant(value: Expr | float, dtype: DType) -> Expr:
    return value if isinstance(value, Expr) else Const(value, dtype)


#: What a constant on the right, or for the first two on the left, leaves unchanged.
_NEUTRAL = {"add": 0, "mul": 1, "sub": 0, "floordiv": 1}


def _arithmetic(op: str, a: Expr, b: Expr) -> Expr:
    """The operation, folded where that needs no thought: constants of int64, adding 0, times 1."""
    if a.dtype == INT64:
        if isinstance(a, Const) and isinstance(b, Const) and op in ("add", "sub", "mul"):
            x, y = int(a.value), int(b.value)
            return Const({"add": x + y, "sub": x - y, "mul": x * y}[op], INT64)
        if isinstance(b, Const) and _NEUTRAL.get(op) == b.value:
            return a
        if op in ("add", "mul") and isinstance(a, Const) and _NEUTRAL[op] == a.value:
            return b
        if op == "mul" and any(isinstance(x, Const) and x.value == 0 for x in (a, b)):
            return Const(0, INT64)
    return Binary(op, a, b)
