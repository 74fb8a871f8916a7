"""Elementwise arithmetic with NumPy's promotion: the operators of Tensor and what ufuncs become."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Self, TypeVar

from arenite.dtype import BOOL, FLOAT64, INT8, UINT64, Kind
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument, TypeMismatch
from arenite.ir import Node, full, make
from arenite.ir.compose import basic, complex_numbers, neural
from arenite.ir.compose.basic import binary, cast, where
from arenite.ir.compose.complex_numbers import is_complex
from arenite.ir.element import limits
from arenite.tensor.base import DTypeLike, WeakOperand, described, node_of, operand_of
from arenite.tensor.complex_parts import ComplexMethods
from arenite.tensor.promote import (
    INTEGERS,
    cast_all,
    common_dtype,
    float_common,
    float_dtype,
    weak_result,
)

S = TypeVar("S", bound="ElementwiseMethods")

# What NumPy makes of arithmetic on two bools; None: it has no such loop.
_ON_BOOLS = {"add": "or", "mul": "and", "sub": None}
_WIDENS_BOOL = ("floordiv", "mod", "fmod", "pow", "shift_left", "shift_right")
_ANSWERS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_COMPARES = tuple(_ANSWERS)
_FLOAT_ONLY = ("atan2",)


def nodes_of(a: object, b: object) -> list[WeakOperand]:
    """At least one operand as a node."""
    operands = [operand_of(a), operand_of(b)]
    if not any(isinstance(operand, Node) for operand in operands):
        operands[0] = node_of(operands[0])
    return operands


def arithmetic(op: str, a: object, b: object) -> Node:
    """One of the binary ops, with NumPy's promotion."""
    operands = nodes_of(a, b)
    dtype = common_dtype(operands)
    if dtype == BOOL:
        if op in _ON_BOOLS:
            logical = _ON_BOOLS[op]
            if logical is None:
                raise TypeMismatch("bools are not subtracted; use ^ or logical_xor")
            op = logical
        elif op in _WIDENS_BOOL:
            dtype = INT8
    if op == "div" and dtype.kind not in (Kind.FLOAT, Kind.COMPLEX):
        dtype = FLOAT64
    if op in _FLOAT_ONLY:
        dtype = float_common(operands)
    if op == "pow":
        fast = _simple_power(operands, dtype.kind in INTEGERS)
        if fast is not None:
            return weak_result(fast, operands)
        if dtype.kind is Kind.COMPLEX:
            base, exponent = basic.operands(op, *cast_all(operands, dtype))
            return complex_numbers.general_power(base, exponent)
    if op in _COMPARES:
        known = _known_comparison(op, operands)
        return binary(op, *cast_all(operands, dtype)) if known is None else known
    return weak_result(binary(op, *cast_all(operands, dtype)), operands)


def _known_comparison(op: str, operands: list[WeakOperand]) -> Node | None:
    """Comparisons of integers that no common dtype could decide: with a Python number that does
    not fit, and of int64 with uint64."""
    a, b = operands
    if not isinstance(a, Node) or not isinstance(b, Node):
        node, number = (a, b) if isinstance(a, Node) else (b, a)
        assert isinstance(node, Node)
        if type(number) is not int or node.dtype.kind not in INTEGERS:
            return None
        low, high = limits(node.dtype)
        if low <= number <= high:
            return None
        beyond = 1 if number > high else -1
        answer = _ANSWERS[op](0, beyond) if node is a else _ANSWERS[op](beyond, 0)
        return basic.broadcast_to(node_of(answer), node.shape)
    if UINT64 not in (a.dtype, b.dtype) or Kind.SIGNED not in (a.dtype.kind, b.dtype.kind):
        return None
    signed = a if a.dtype.kind is Kind.SIGNED else b
    answer = _ANSWERS[op](-1, 0) if signed is a else _ANSWERS[op](0, -1)
    compared = binary(op, cast(a, UINT64), cast(b, UINT64))
    below = basic.broadcast_to(signed < 0, compared.shape)
    return where(below, basic.broadcast_to(node_of(answer), compared.shape), compared)


def _simple_power(operands: list[WeakOperand], integer: bool) -> Node | None:
    """x ** 2 and x ** 0.5 by what they mean; integers to a negative power are refused."""
    base, exponent = operands
    if not isinstance(base, Node) or isinstance(exponent, Node | bool):
        return None
    if integer and isinstance(exponent, int) and exponent < 0:
        raise InvalidArgument("integers to negative integer powers are not allowed; use floats")
    if exponent == 2 and base.dtype != BOOL:
        same = cast(base, common_dtype(operands))
        return same * same
    if exponent == 0.5 and base.dtype.kind is Kind.FLOAT:
        return make("sqrt", base)
    if is_complex(base) and isinstance(exponent, int):
        return complex_numbers.power(base, exponent)
    return None


def _no_bool(node: Node) -> Node:
    return cast(node, INT8) if node.dtype == BOOL else node


def floating(op: str, x: object) -> Node:
    """A unary op that is for floats, and for complex numbers where it has a meaning here."""
    node = node_of(x)
    if is_complex(node) and op in complex_numbers.FUNCTIONS:
        return complex_numbers.FUNCTIONS[op](node)
    return weak_result(make(op, cast(node, float_dtype(node.dtype))), [node])


def rounding(op: str, x: object) -> Node:
    """floor, ceil, trunc and round leave integers alone."""
    node = node_of(x)
    if node.dtype.kind in (*INTEGERS, Kind.BOOL):
        return node
    return make(op, node)


def truth(x: object) -> Node:
    """x != 0"""
    return cast(node_of(x), BOOL)


def logical(op: str, a: object, b: object) -> Node:
    return binary(op, truth(a), truth(b))


def absolute(x: object) -> Node:
    node = node_of(x)
    if is_complex(node):
        return complex_numbers.magnitude(node)
    return node if node.dtype.kind in (Kind.BOOL, Kind.UNSIGNED) else abs(node)


def is_nan(x: object) -> Node:
    return _float_test("isnan", node_of(x))


def is_inf(x: object) -> Node:
    return _float_test("isinf", node_of(x))


def _float_test(op: str, node: Node) -> Node:
    if node.dtype.kind is Kind.FLOAT:
        return make(op, node)
    if is_complex(node):
        return make("or", *(make(op, part) for part in complex_numbers.parts(node)))
    return basic.broadcast_to(node_of(False), node.shape)


def is_finite(x: object) -> Node:
    node = node_of(x)
    if node.dtype.kind not in (Kind.FLOAT, Kind.COMPLEX):
        return basic.broadcast_to(node_of(True), node.shape)
    return ~(is_nan(x) | is_inf(x))


def sign_bit(x: object) -> Node:
    """Set for -0.0 and for NaNs that have it."""
    node = node_of(x)
    if node.dtype.kind is Kind.FLOAT:
        node = make("bitcast", node, dtype=dtype_of(f"int{node.dtype.bits}"))
    return _no_bool(node) < 0


def copy_sign(a: object, b: object) -> Node:
    operands = nodes_of(a, b)
    dtype = float_common(operands)
    x, y = basic.operands("copysign", *cast_all(operands, dtype))
    size = abs(x)
    bits = make("bitcast", y, dtype=dtype_of(f"int{dtype.bits}"))
    return where(bits < 0, -size, size)


def ignoring_nan(op: str, a: object, b: object) -> Node:
    """fmax and fmin: NaN only where both are."""
    operands = nodes_of(a, b)
    dtype = common_dtype(operands)
    x, y = basic.operands(op, *cast_all(operands, dtype))
    best = make(op, x, y)
    if dtype.kind is not Kind.FLOAT:
        return best
    return where(make("isnan", x), y, where(make("isnan", y), x, best))


def hypot(a: object, b: object) -> Node:
    """sqrt(a*a + b*b), scaled so that nothing overflows on the way."""
    operands = nodes_of(a, b)
    dtype = float_common(operands)
    x, y = basic.operands("hypot", *cast_all(operands, dtype))
    return complex_numbers.hypot(x, y)


def next_after(a: object, b: object) -> Node:
    """The next number from a towards b."""
    operands = nodes_of(a, b)
    dtype = float_common(operands)
    x, y = basic.operands("nextafter", *cast_all(operands, dtype))
    as_integer = dtype_of(f"int{dtype.bits}")
    bits = make("bitcast", x, dtype=as_integer)
    # Of numbers of one sign the integers are in the order of the sizes.
    grows = binary("eq", x < y, x > 0.0)
    moved = where(grows, bits + 1, bits - 1)
    sign = make("bitcast", full(x.shape, -0.0, dtype), dtype=as_integer)
    least = where(y > 0.0, sign * 0 + 1, sign + 1)
    found = where(binary("eq", x, 0.0), least, moved)
    result = where(binary("eq", x, y), y, make("bitcast", found, dtype=dtype))
    return where(make("isnan", x), x, where(make("isnan", y), y, result))


def log_add_exp(a: object, b: object) -> Node:
    operands = nodes_of(a, b)
    dtype = float_common(operands)
    x, y = basic.operands("logaddexp", *cast_all(operands, dtype))
    high = make("maximum", x, y)
    away = -abs(x - y)
    added = high + make("log1p", make("exp", away))
    return where(make("eq", x, y), x + math.log(2), added)


def choose(condition: object, a: object, b: object) -> Node:
    """numpy.where with three arguments."""
    operands = nodes_of(a, b)
    dtype = common_dtype(operands)
    return weak_result(where(truth(condition), *cast_all(operands, dtype)), operands)


def clipped(x: object, low: object, high: object) -> Node:
    node = node_of(x)
    limits = [operand_of(limit) for limit in (low, high) if limit is not None]
    dtype = common_dtype([node, *limits])
    given = iter(cast_all(limits, dtype))
    return neural.clip(
        cast(node, dtype),
        None if low is None else next(given),
        None if high is None else next(given),
    )


def _float_method(op: str, about: str, name: str = "") -> Callable[[S], S]:
    def method(self: S) -> S:
        return self._new(floating(op, self))

    method.__name__ = method.__qualname__ = name or op
    method.__doc__ = f"{about}; integers become floats."
    return method


class ElementwiseMethods(ComplexMethods):
    __slots__ = ()

    exp = _float_method("exp", "e to the power of x")
    exp2 = _float_method("exp2", "2 to the power of x")
    expm1 = _float_method("expm1", "exp(x) - 1, exact near 0")
    log = _float_method("log", "The natural logarithm")
    log2 = _float_method("log2", "The logarithm to base 2")
    log1p = _float_method("log1p", "log(1 + x), exact near 0")
    sqrt = _float_method("sqrt", "The square root")
    rsqrt = _float_method("rsqrt", "1 over the square root")
    sin = _float_method("sin", "The sine, of radians")
    cos = _float_method("cos", "The cosine, of radians")
    tan = _float_method("tan", "The tangent, of radians")
    arcsin = asin = _float_method("asin", "The inverse sine, in radians", "arcsin")
    arccos = acos = _float_method("acos", "The inverse cosine, in radians", "arccos")
    arctan = atan = _float_method("atan", "The inverse tangent, in radians", "arctan")
    sinh = _float_method("sinh", "The hyperbolic sine")
    cosh = _float_method("cosh", "The hyperbolic cosine")
    tanh = _float_method("tanh", "The hyperbolic tangent")
    arcsinh = asinh = _float_method("asinh", "The inverse hyperbolic sine", "arcsinh")
    arccosh = acosh = _float_method("acosh", "The inverse hyperbolic cosine", "arccosh")
    arctanh = atanh = _float_method("atanh", "The inverse hyperbolic tangent", "arctanh")
    erf = _float_method("erf", "The error function")

    def astype(self, dtype: DTypeLike, copy: bool = True) -> Self:
        """Cast; see arenite.ir.element for how each pair of types rounds. Tensors never change, so
        `copy` makes no difference."""
        return self._new(cast(self._node, dtype_of(dtype)))

    def view(self, dtype: DTypeLike) -> Self:
        """The same bits read as another dtype of the same width."""
        return self._new(make("bitcast", self._node, dtype=dtype_of(dtype)))

    def log10(self) -> Self:
        """The logarithm to base 10; integers become floats."""
        if is_complex(self._node):
            return self._new(floating("log10", self))
        node = floating("log2", self)
        return self._new(node * math.log10(2))

    def reciprocal(self) -> Self:
        """1/x; of integers rounded towards zero, so 0 but for 1 and -1."""
        node = _no_bool(self._node)
        if node.dtype.kind is Kind.UNSIGNED:
            return self._new(cast(binary("eq", node, 1), node.dtype))
        if node.dtype.kind is Kind.SIGNED:
            is_unit = binary("eq", abs(node), 1)
            return self._new(where(is_unit, node, 0))
        return self._new(floating("reciprocal", self))

    def square(self) -> Self:
        """x * x, element by element."""
        node = _no_bool(self._node)
        return self._new(node * node)

    def sign(self) -> Self:
        """-1, 0 or 1; NaN stays NaN. Of complex numbers x over its magnitude."""
        if is_complex(self._node):
            size = complex_numbers.magnitude(self._node)
            is_zero = binary("eq", size, 0.0)
            safe = where(is_zero, 1.0, size)
            parts = (
                where(is_zero, 0.0, part / safe)  # whatever the signs of its zeros
                for part in complex_numbers.parts(self._node)
            )
            return self._new(complex_numbers.joined(*parts))
        return self._new(make("sign", self._node))

    def floor(self) -> Self:
        """Rounded down; integers stay as they are."""
        return self._new(rounding("floor", self))

    def ceil(self) -> Self:
        """Rounded up; integers stay as they are."""
        return self._new(rounding("ceil", self))

    def trunc(self) -> Self:
        """Rounded towards zero; integers stay as they are."""
        return self._new(rounding("trunc", self))

    def round(self, decimals: int = 0) -> Self:
        """Rounded to so many decimals, half to even."""
        if decimals == 0 or self.dtype.kind is not Kind.FLOAT:
            return self._new(rounding("round", self))
        scale = float(10 ** abs(decimals))
        there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
        return self._new(binary(back, make("round", binary(there, self._node, scale)), scale))

    def clip(self, min: object = None, max: object = None) -> Self:  # noqa: A002
        """Held within limits; either may be None, or a tensor.

        x.clip(0, 1)
        """
        return self._new(clipped(self, min, max))

    def maximum(self, other: object) -> Self:
        """The larger of two, element by element; NaN where one is."""
        return self._new(arithmetic("maximum", self, other))

    def minimum(self, other: object) -> Self:
        """The smaller of two, element by element; NaN where one is."""
        return self._new(arithmetic("minimum", self, other))

    def isnan(self) -> Self:
        """Whether each element is NaN."""
        return self._new(is_nan(self))

    def isinf(self) -> Self:
        """Whether each element is infinite."""
        return self._new(is_inf(self))

    def isfinite(self) -> Self:
        """Whether each element is neither NaN nor infinite."""
        return self._new(is_finite(self))

    def logical_not(self) -> Self:
        """Whether each element is zero, or False."""
        return self._new(~truth(self))

    def where(self, a: object, b: object) -> Self:
        """a where this is true, b elsewhere."""
        return self._new(choose(self, a, b))

    def __abs__(self) -> Self:
        """Without the sign; of complex numbers the magnitude."""
        return self._new(absolute(self))

    abs = __abs__

    def __neg__(self) -> Self:
        if self.dtype == BOOL:
            raise TypeMismatch("a bool tensor has no negative; use ~ or logical_not")
        return self._new(-self._node)

    def __pos__(self) -> Self:
        if self.dtype == BOOL:
            raise TypeMismatch("a bool tensor has no sign to keep; use astype")
        return self

    def __invert__(self) -> Self:
        if self.dtype.kind in (Kind.FLOAT, Kind.COMPLEX):
            raise TypeMismatch(f"~ is for bools and integers, not {described(self._node)}")
        return self._new(~self._node)


def _forward(op: str) -> Callable[[S, object], S]:
    def method(self: S, other: object) -> S:
        return self._new(arithmetic(op, self, other))

    return method


def _backward(op: str) -> Callable[[S, object], S]:
    def method(self: S, other: object) -> S:
        return self._new(arithmetic(op, other, self))

    return method


class Operators(ElementwiseMethods):
    """Python's operators. Comparison is elementwise, as NumPy's, and so is `==`."""

    __slots__ = ()

    __add__, __radd__ = _forward("add"), _backward("add")
    __sub__, __rsub__ = _forward("sub"), _backward("sub")
    __mul__, __rmul__ = _forward("mul"), _backward("mul")
    __truediv__, __rtruediv__ = _forward("div"), _backward("div")
    __floordiv__, __rfloordiv__ = _forward("floordiv"), _backward("floordiv")
    __mod__, __rmod__ = _forward("mod"), _backward("mod")
    __pow__, __rpow__ = _forward("pow"), _backward("pow")
    __and__, __rand__ = _forward("and"), _backward("and")
    __or__, __ror__ = _forward("or"), _backward("or")
    __xor__, __rxor__ = _forward("xor"), _backward("xor")
    __lshift__, __rlshift__ = _forward("shift_left"), _backward("shift_left")
    __rshift__, __rrshift__ = _forward("shift_right"), _backward("shift_right")
    __lt__, __le__ = _forward("lt"), _forward("le")
    __gt__, __ge__ = _forward("gt"), _forward("ge")

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self._new(arithmetic("eq", self, other))

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self._new(arithmetic("ne", self, other))

    __hash__ = object.__hash__

    def __divmod__(self, other: object) -> tuple[Self, Self]:
        return self // other, self % other
