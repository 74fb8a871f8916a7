"""Values of the loop IR: expressions, each with a dtype, and how they are walked.

What ops mean is said in `loop_ir`, which has all names of this file too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

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


def _operator(op: str) -> Callable[[Expr, Expr | float], Expr]:
    return lambda a, b: _arithmetic(op, a, _constant(b, a.dtype))


def _reflected(op: str) -> Callable[[Expr, float], Expr]:
    return lambda b, a: _arithmetic(op, _constant(a, b.dtype), b)


class Expr:
    """A value. Python's operators build arithmetic; plain numbers become constants."""

    __slots__ = ()
    dtype: DType
    #: The fields that hold expressions, or None, or several.
    operands: ClassVar[tuple[str, ...]] = ()

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

    operands = ("index", "mask", "other")
    array: str
    index: Expr
    dtype: DType
    mask: Expr | None = None
    other: Expr | None = None  # zero if not given


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    operands = ("x",)
    op: str
    x: Expr
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        dtype = BOOL if self.op in ("isnan", "isinf") else self.x.dtype
        object.__setattr__(self, "dtype", dtype)


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    operands = ("a", "b")
    op: str
    a: Expr
    b: Expr
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", BOOL if self.op in COMPARISONS else self.a.dtype)


@dataclass(frozen=True, slots=True)
class Fma(Expr):
    """a * b + c of floats; see the top for its rounding."""

    operands = ("a", "b", "c")
    a: Expr
    b: Expr
    c: Expr
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.a.dtype)


@dataclass(frozen=True, slots=True)
class Select(Expr):
    operands = ("cond", "a", "b")
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

    operands = ("x",)
    x: Expr
    dtype: DType
    fits: bool = False


@dataclass(frozen=True, slots=True)
class Bitcast(Expr):
    """The same bits as another dtype of the same width."""

    operands = ("x",)
    x: Expr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Table(Expr):
    """One of the constants. The index lies inside, also where the value is not used."""

    operands = ("index",)
    values: tuple[int | float, ...]
    index: Expr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Iterate(Expr):
    """While `cond` holds, the state becomes `step`, all parts at once; then it is `result`.

    In functions only, where it becomes a While; `cond`, `step` and `result` may use the names of
    the state.
    """

    operands = ("start", "cond", "step", "result")
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


def index(value: int) -> Const:
    """An int64 constant."""
    return Const(value, INT64)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside an expression."""
    return operands_of(expr, expr.operands)


def operands_of(whole: object, names: Sequence[str]) -> tuple[Expr, ...]:
    """The expressions in these fields."""
    found: list[Expr] = []
    for name in names:
        part = getattr(whole, name)
        if isinstance(part, tuple):
            found += part
        elif part is not None:
            found.append(part)
    return tuple(found)


def with_children(expr: Expr, parts: Sequence[Expr]) -> Expr:
    """The same expression of other parts, in the order of `children`."""
    names = [name for name in expr.operands if getattr(expr, name) is not None]
    return replace(expr, **dict(zip(names, parts, strict=True)))  # type: ignore[type-var]


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
