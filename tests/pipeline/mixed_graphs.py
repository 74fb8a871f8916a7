"""Random graphs over many types of elements, each node with what NumPy makes of it.

Every op here has one right result: integers wrap, small floats are rounded after each op, sums are
of integers. So programs are held to NumPy to the last bit, whatever was fused; only which zero, and
which NaN, is left open.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME, DType, Kind
from arenite.errors import AreniteError
from arenite.ir.dim import Dim, Var, product
from arenite.ir.graph import Graph
from arenite.ir.node import Node

Array = NDArray[Any]
Value = tuple[Node, Array]

BOOL = BY_NAME["bool"]
SIGNED = [BY_NAME[f"int{bits}"] for bits in (8, 16, 32, 64)]
UNSIGNED = [BY_NAME[f"uint{bits}"] for bits in (8, 16, 32, 64)]
FLOATS = [BY_NAME[name] for name in ("float16", "bfloat16", "float32", "float64")]
TYPES = [BOOL, *SIGNED, *UNSIGNED, *FLOATS]

Function = Callable[..., Any]
OF_ALL: dict[str, Function] = {"maximum": np.maximum, "minimum": np.minimum}
OF_NUMBERS: dict[str, Function] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
OF_BITS: dict[str, Function] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
OF_INTEGERS: dict[str, Function] = {"floordiv": np.floor_divide, "mod": np.mod, "fmod": np.fmod}
COMPARISONS: dict[str, Function] = {"lt": np.less, "le": np.less_equal, "eq": np.equal}
ROUNDINGS: dict[str, Function] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
}
MOST = 400  # elements of a value
#: Sizes that are found in a run, by what they are then; some may be none.
LATER: dict[int, Dim] = {
    2: Var("two", 0, 9),
    3: Var("three", 1, 4),
    5: Var("five", 0, 5),
    17: Var("seventeen", 0, 300),
}


def is_float(dtype: DType) -> bool:
    return dtype.kind is Kind.FLOAT


def is_integer(dtype: DType) -> bool:
    return dtype.kind in (Kind.SIGNED, Kind.UNSIGNED)


def drawn(shape: tuple[int, ...], dtype: DType, seed: int) -> Array:
    """Any numbers of a type; of floats small ones, and some that are not finite."""
    rng = np.random.default_rng(seed)
    if dtype == BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if is_integer(dtype):
        info = np.iinfo(dtype.to_numpy())
        return rng.integers(info.min, info.max, shape, info.dtype, endpoint=True)
    numbers = rng.standard_normal(shape) * 4
    flat = numbers.reshape(-1)
    flat[rng.integers(0, flat.size, 2)] = rng.choice([np.nan, np.inf, -np.inf, 1e-7, 0.0], 2)
    return numbers.astype(dtype.to_numpy())


def computed(function: Function, dtype: DType, *arrays: Array) -> Array:
    """Of floats narrower than float32 in float32, rounded once."""
    if is_float(dtype) and dtype.bits < 32:
        arrays = tuple(array.astype(np.float32) for array in arrays)
    return np.asarray(function(*arrays))


def converted(array: Array, source: DType, target: DType) -> Array:
    """A cast as the documents say it: floats become integers towards zero and saturate."""
    made = target.to_numpy()
    if target == BOOL:
        return np.asarray(array != 0)
    if not is_float(source) or not is_integer(target):
        return np.asarray(array.astype(made))
    info = np.iinfo(made)
    whole = np.trunc(np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=1e300, neginf=-1e300))
    inside = np.clip(whole, float(info.min), float(info.max))
    # The largest of 64 bits is no float64, the float above it no integer.
    exact = [min(max(int(number), info.min), info.max) for number in inside.reshape(-1)]
    return np.array(exact, made).reshape(array.shape)


def is_rounded_once(source: DType, target: DType) -> bool:
    """Whether NumPy's own cast is; to bfloat16 it goes by float32."""
    return target.name != "bfloat16" or source.bits <= 16 or source.name == "float32"


class MixedMaker:
    """A graph of some dozen ops over small shapes, with shared values, views and casts; `is_later`:
    its sizes are variables, which have the values of LATER in a run."""

    def __init__(self, seed: int, is_later: bool = False) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.is_later = is_later
        self.values: list[Value] = []
        self.arrays: list[Array] = []

    def make(self, n_nodes: int) -> tuple[Graph, list[Array]]:
        """The graph, and what its outputs are for `arrays`."""
        inputs = []
        for k in range(4):
            shape = tuple(self.random.choice([1, 2, 3, 5, 17]) for _ in range(1 + k % 3))
            dtype = self.random.choice(TYPES)
            named = tuple(LATER.get(n, n) for n in shape) if self.is_later else shape
            inputs.append(ir.graph_input(f"x{k}", k, named, dtype))
            self.arrays.append(drawn(shape, dtype, self.seed * 10 + k))
            self.values.append((inputs[-1], self.arrays[-1]))
        with np.errstate(all="ignore"):
            while len(self.values) < n_nodes:
                self._try()
        chosen = self.random.sample(self.values[4:], k=5) + self.values[-1:]
        return Graph(tuple(inputs), tuple(node for node, _ in chosen)), [a for _, a in chosen]

    def _try(self) -> None:
        try:
            self._add(*self._step())
        except AreniteError:  # what is not known of a size may be a reason to refuse it
            if not self.is_later:
                raise

    def _add(self, node: Node, array: Array) -> None:
        if is_float(node.dtype):  # that numbers stay small, so that the next steps are about some
            for op, bound in (("maximum", -9.0), ("minimum", 9.0)):
                node = ir.make(op, node, ir.full(node.shape, bound, node.dtype))
                array = OF_ALL[op](array.astype(np.float64), bound)
        self.values.append((node, np.asarray(array.astype(node.dtype.to_numpy(), order="C"))))

    def _pick(self, is_wanted: Callable[[DType], bool] = lambda dtype: True) -> Value:
        found = [one for one in self.values if is_wanted(one[0].dtype)]
        if not found:
            node, array = self.values[-1]
            wanted = self.random.choice([dtype for dtype in TYPES if is_wanted(dtype)])
            return self._cast(node, array, wanted)
        return self.random.choice(found[-10:] if self.random.random() < 0.8 else found)

    def _cast(self, node: Node, array: Array, dtype: DType) -> Value:
        if not is_rounded_once(node.dtype, dtype):
            node, array = self._cast(node, array, BY_NAME["float32"])
        made = ir.make("cast", node, dtype=dtype)
        return made, converted(array, node.dtype, dtype)

    def _like(self, node: Node, dtype: DType) -> Value:
        """A value of a node's shape."""
        same = [one for one in self.values if one[0].shape == node.shape]
        other, array = self.random.choice(same)
        return (other, array) if other.dtype == dtype else self._cast(other, array, dtype)

    def _step(self) -> Value:
        kinds = [self._binary, self._unary, self._compared, self._chosen, self._any_cast]
        kinds += [self._view, self._reduced, self._product, self._shifted]
        return self.random.choices(kinds, [6, 3, 2, 3, 4, 6, 3, 1, 1])[0]()

    def _binary(self) -> Value:
        x, a = self._pick()
        y, b = self._like(x, x.dtype)
        functions = dict(OF_ALL)
        if x.dtype != BOOL:
            functions |= OF_NUMBERS
        if not is_float(x.dtype):
            functions |= OF_BITS
        if is_integer(x.dtype):
            functions |= OF_INTEGERS
        op = self.random.choice(list(functions))
        if op in OF_INTEGERS:  # by what is not zero
            y, b = ir.make("or", y, ir.full(y.shape, 1, y.dtype)), b | b.dtype.type(1)
        return ir.make(op, x, y), computed(functions[op], x.dtype, a, b)

    def _unary(self) -> Value:
        x, a = self._pick(lambda dtype: dtype != BOOL)
        if is_float(x.dtype):
            op = self.random.choice([*ROUNDINGS, "sqrt", "reciprocal"])
            if op in ROUNDINGS:
                return ir.make(op, x), computed(ROUNDINGS[op], x.dtype, a)
            above = ir.make("add", ir.make("abs", x), ir.full(x.shape, 0.5, x.dtype))
            more = computed(lambda n: np.abs(n) + np.float32(0.5), x.dtype, a)
            rounded = more.astype(x.dtype.to_numpy())
            function = np.sqrt if op == "sqrt" else np.reciprocal
            return ir.make(op, above), computed(function, x.dtype, rounded)
        op = self.random.choice(["neg", "abs", "not"])
        functions = {"neg": np.negative, "abs": np.abs, "not": np.invert}
        return ir.make(op, x), functions[op](a)

    def _compared(self) -> Value:
        x, a = self._pick()
        y, b = self._like(x, x.dtype)
        op = self.random.choice(list(COMPARISONS))
        return ir.make(op, x, y), computed(COMPARISONS[op], x.dtype, a, b)

    def _chosen(self) -> Value:
        x, a = self._pick()
        y, b = self._like(x, x.dtype)
        condition, c = self._like(x, BOOL)
        return ir.make("where", condition, x, y), np.where(c, a, b)

    def _any_cast(self) -> Value:
        return self._cast(*self._pick(), self.random.choice(TYPES))

    def _shifted(self) -> Value:
        x, a = self._pick(is_integer)
        by = self.random.randrange(x.dtype.bits)
        op = self.random.choice(["shift_left", "shift_right"])
        function = np.left_shift if op == "shift_left" else np.right_shift
        return ir.make(op, x, ir.full(x.shape, by, x.dtype)), function(a, a.dtype.type(by))

    def _view(self) -> Value:
        x, a = self._pick()
        random, axis = self.random, self.random.randrange(max(1, x.ndim))
        kind = random.choice(["permute", "flat", "slice", "flip", "pad", "concat", "expand"])
        if x.ndim == 0 or kind == "expand":
            if a.size > MOST // 3 or x.ndim > 3:
                return x, a
            wide = ir.make("reshape", x, shape=(1, *x.shape))
            made = ir.make("expand", wide, shape=(3, *x.shape))
            return made, np.broadcast_to(a, (3, *a.shape))
        if kind == "permute":
            axes = tuple(random.sample(range(x.ndim), x.ndim))
            return ir.make("permute", x, axes=axes), a.transpose(axes)
        if kind == "flat":
            return ir.make("reshape", x, shape=(product(x.shape),)), a.reshape(-1)
        if kind in ("slice", "flip"):
            size, is_flip = x.shape[axis], kind == "flip"
            begin, end, step = (size - 1, -1, -1) if is_flip else (size // 3, size, 2)
            start = tuple(begin if k == axis else 0 for k in range(x.ndim))
            stop = tuple(end if k == axis else n for k, n in enumerate(x.shape))
            steps = tuple(step if k == axis else 1 for k in range(x.ndim))
            part = slice(None, None, -1) if is_flip else slice(a.shape[axis] // 3, None, 2)
            cut = tuple(part if k == axis else slice(None) for k in range(x.ndim))
            return ir.make("slice", x, start=start, stop=stop, step=steps), a[cut]
        if a.size > MOST:
            return x, a
        if kind == "pad":
            pairs = tuple((1, 2) if k == axis else (0, 0) for k in range(x.ndim))
            value: Any = True if x.dtype == BOOL else 1.0 if is_float(x.dtype) else 1
            filled = np.pad(a, pairs, constant_values=value)
            return ir.make("pad", x, padding=pairs, value=value), filled
        y, b = self._like(x, x.dtype)
        return ir.make("concat", x, y, axis=axis), np.concatenate([a, b], axis)

    def _reduced(self) -> Value:
        x, a = self._pick()
        if x.ndim == 0:
            return x, a
        axis = self.random.randrange(x.ndim)
        functions: dict[str, Function] = {"max": np.max, "min": np.min}
        if is_integer(x.dtype):
            functions |= {"sum": np.sum, "prod": np.prod, "cumsum": np.cumsum}
        if x.dtype == BOOL:
            functions = {"any": np.any, "all": np.all}
        op = self.random.choice(list(functions))
        attrs: Any = {"axis": axis} if op == "cumsum" else {"axes": (axis,)}
        more: Any = {"dtype": a.dtype} if op in ("sum", "prod", "cumsum") else {}
        wide = a.astype(np.float32) if is_float(x.dtype) and x.dtype.bits < 32 else a
        return ir.make(op, x, **attrs), functions[op](wide, axis=axis, **more)

    def _product(self) -> Value:
        x, a = self._pick(is_integer)
        if x.ndim != 2:
            return x, a
        made = ir.make("matmul", x, x, transpose_a=False, transpose_b=True)
        dtype = made.dtype.to_numpy()
        return made, a.astype(dtype) @ a.astype(dtype).T
