"""Random models that are valid: 3 to 25 nodes of all families of operators, by a seed.

Each node is tried on numbers as it is added, by the standard's evaluator, for each of two or three
bindings of the named sizes, and dropped where its result is no number, too large, or refused. So
sizes, types and ranges are known, nothing overflows, and what jumps (Floor, ArgMax, comparisons,
casts to integers) is only applied to exact values.

    made = random_model(seed)    made.model    made.inputs    made.tolerances
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import (
    FunctionProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    helper,
    numpy_helper,
)
from onnx.reference import ReferenceEvaluator

from tests.frontends.onnx.runtime import run_runtime

Array = NDArray[Any]
#: Magnitudes that values keep to: floats, and integers.
MAX_FLOAT, MAX_INTEGER = 200.0, 1 << 20
MAX_ELEMENTS = 20_000
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
#: What one operator may add to the error, by type, as a share of the greatest magnitude: four last
#: bits of the narrow ones, which are rounded after sums in float32; of the wide ones, whose sums of
#: up to a hundred terms are rounded at each, 64; half the digits of float64, whose constants and
#: roots ONNX Runtime has in float32.
UNITS = {"bfloat16": 2.0**-6, "float16": 2.0**-8, "float32": 2.0**-17, "float64": 1e-7}
NEWEST = onnx.defs.onnx_opset_version()
#: Graphs in graphs.
MAX_NESTING = 2


@dataclass
class Value:
    """A value of the model, with the numbers it has for the sample inputs of each binding."""

    name: str
    arrays: list[Array]
    is_exact: bool
    #: Approximate operators between it and the inputs.
    depth: int = 0
    #: The greatest magnitude on the way to it, of which errors are fractions.
    scale: float = 1.0
    #: The coarsest rounding on the way to it.
    unit: float = 0.0

    @property
    def array(self) -> Array:
        """The numbers of the first binding."""
        return self.arrays[0]

    @cached_property
    def numbers(self) -> Array:
        """Those of all bindings, in one row."""
        return np.concatenate([one.reshape(-1) for one in self.arrays])

    @property
    def is_float(self) -> bool:
        return is_float_type(self.array.dtype)

    @property
    def least(self) -> tuple[int, ...]:
        """The smallest size of each axis over all bindings."""
        return tuple(map(min, zip(*(one.shape for one in self.arrays), strict=True)))

    def is_fixed(self, *axes: int) -> bool:
        """Whether axes are of one size in all bindings."""
        return all(len({one.shape[axis] for one in self.arrays}) == 1 for axis in axes)


def is_float_type(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype == BFLOAT16


@dataclass
class RandomModel:
    """`inputs` and `outputs`, those of the standard's evaluator, by binding; `tolerances` are
    (rtol, atol) by output."""

    model: ModelProto
    inputs: list[dict[str, Array]]
    outputs: list[dict[str, Array]]
    tolerances: dict[str, tuple[float, float]]
    #: The named sizes of each binding.
    sizes: list[dict[str, int]]


class ModelBuilder:
    """A model in the making."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.rng.randint(7, NEWEST)
        n_bindings = self.rng.choice((2, 2, 2, 3))
        batches = self.rng.sample((1, 2, 3, 5, 1, 2, 3, 0), n_bindings)
        lengths = self.rng.sample((1, 4, 5, 7, 9), n_bindings)
        self.sizes = [{"batch": b, "seq": n} for b, n in zip(batches, lengths, strict=True)]
        self.inputs: dict[str, Value] = {}
        self.shapes: dict[str, tuple[int | str, ...]] = {}
        self.stored: list[TensorProto] = []
        self.nodes: list[NodeProto] = []
        self.values: list[Value] = []
        self.functions: list[FunctionProto] = []
        #: What the file holds, or takes as it stands at each run, by name.
        self.arrays: dict[str, Array] = {}
        #: Values whose sizes are found in a run: what takes them must not rely on these.
        self.closed: set[str] = set()
        self.nesting = 0
        self._n = 0

    def fresh(self, what: str = "v") -> str:
        self._n += 1
        return f"{what}{self._n}"

    # Sources.

    def input(self, shape: Sequence[int | str], dtype: Any) -> Value:
        name = self.fresh("x")
        arrays = []
        for sizes in self.sizes:
            numbers = [sizes[one] if isinstance(one, str) else one for one in shape]
            arrays.append(self.data(numbers, dtype))
        value = Value(name, arrays, True, unit=UNITS.get(arrays[0].dtype.name, 0.0))
        self.inputs[name] = value
        self.shapes[name] = tuple(shape)
        self.values.append(value)
        return value

    def data(self, shape: Sequence[int], dtype: Any) -> Array:
        """Numbers with few digits, so that simple sums of them are exact in every type."""
        kind = np.dtype(dtype).kind
        if kind == "b":
            numbers: Any = self.numbers.integers(0, 2, shape)
        elif kind == "u":
            numbers = self.numbers.integers(0, 20, shape)
        elif kind == "i":
            numbers = self.numbers.integers(-9, 10, shape)
        else:
            numbers = self.numbers.integers(-24, 25, shape) / 8
        return np.asarray(numbers).astype(dtype)

    def const(self, values: Any, dtype: Any = np.int64) -> str:
        """A tensor that the file holds, as an initialiser or by a Constant; or, rarely, one that is
        given at each run."""
        array = np.asarray(values, dtype)
        name = self.fresh("c")
        kind = self.rng.random()
        if kind < 0.06 and not self.nesting:
            self.inputs[name] = Value(name, [array] * len(self.sizes), True)
            self.shapes[name] = array.shape
        elif kind < 0.3 and self.opset >= (13 if array.dtype == BFLOAT16 else 1):
            tensor = numpy_helper.from_array(array, name)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.stored.append(numpy_helper.from_array(array, name))
        self.arrays[name] = array
        return name

    def pick(self, test: Callable[[Value], bool] = lambda one: True) -> Value:
        """A value that there is, rather a late one."""
        fitting = [one for one in self.values if one.name not in self.closed and test(one)]
        if not fitting:
            raise Dropped
        weights = [1 + k for k in range(len(fitting))]
        return self.rng.choices(fitting, weights)[0]

    # Nodes.

    def add(
        self,
        op: str,
        inputs: Sequence[Value | str],
        n_outputs: int = 1,
        exact: bool = False,
        steps: int = 1,
        **attrs: Any,
    ) -> list[Value]:
        """A node, tried on numbers. `exact`: its result has no error where its inputs have none;
        otherwise it is of so many `steps`."""
        names = [one if isinstance(one, str) else one.name for one in inputs]
        outputs = [self.fresh() for _ in range(n_outputs)]
        node = helper.make_node(op, names, outputs, **attrs)
        return self.add_nodes([node], outputs, exact=exact, steps=steps)

    def add_nodes(
        self, nodes: Sequence[NodeProto], outputs: Sequence[str], *, exact: bool, steps: int = 1
    ) -> list[Value]:
        """Nodes of which only `outputs` are seen by others: what lies between may be no tensor."""
        taken = taken_by(nodes)
        given = [one for one in self.values if one.name in taken]
        results = self.tried(nodes, outputs)
        is_exact = exact and all(one.is_exact for one in given)
        depth = max((one.depth for one in given), default=0) + (0 if exact else steps)
        made = []
        for name, arrays in zip(outputs, results, strict=True):
            dtype = arrays[0].dtype
            scale = max([one.scale for one in given], default=1.0)
            if is_float_type(dtype):
                scale = max([scale, *(float(np.abs(a).max()) for a in arrays if a.size)])
            unit = max([UNITS.get(dtype.name, 0.0), *(one.unit for one in given)])
            is_known = is_exact or not is_float_type(dtype)
            if not is_float_type(dtype) and not all(one.is_exact for one in given):
                raise Dropped  # integers and truths of what is only known roughly
            made.append(Value(name, arrays, is_known, depth, scale, unit))
        self.nodes += nodes
        self.values += made
        return made

    def tried(self, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> list[list[Array]]:
        """The numbers of each output, by binding."""
        values = {one.name: one for one in self.values}
        names = taken_by(nodes)
        feeds = [
            {
                name: values[name].arrays[k] if name in values else self.arrays[name]
                for name in names
            }
            for k in range(len(self.sizes))
        ]
        model = fragment(nodes, feeds[0], outputs, self.opset)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
                runs = _run(nodes, feeds, outputs, self.opset)
                for info, array in zip(inferred.graph.output, runs[0], strict=True):
                    if not info.type.tensor_type.HasField("shape"):  # of bodies none is inferred
                        info.type.tensor_type.shape.dim.extend(
                            TensorShapeProto.Dimension() for _ in array.shape
                        )
                        info.type.tensor_type.shape.SetInParent()
                onnx.checker.check_model(inferred)
            except Exception as error:  # whatever is wrong with a proposal, another is made
                raise Dropped from error
        results = [list(one) for one in zip(*runs, strict=True)]
        for info, arrays in zip(inferred.graph.output, results, strict=True):
            kind = info.type.tensor_type.elem_type
            if not all(_is_usable(one) for one in arrays):
                raise Dropped
            if any(kind != helper.np_dtype_to_tensor_dtype(one.dtype) for one in arrays):
                raise Dropped  # the evaluator gives another type than the standard says
            said = info.type.tensor_type.shape.dim
            if info.type.tensor_type.HasField("shape") and len(said) != arrays[0].ndim:
                raise Dropped
            for dim, size in zip(said, arrays[0].shape, strict=False):
                if dim.HasField("dim_value") and dim.dim_value != size:
                    raise Dropped
            if len({one.ndim for one in arrays}) > 1:
                raise Dropped
        return results

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """What is proposed inside is taken back where it is dropped."""
        before = (len(self.nodes), len(self.stored), len(self.values))
        try:
            yield
        except Dropped:
            del self.nodes[before[0] :]
            del self.stored[before[1] :]
            del self.values[before[2] :]
            raise


def _run(
    nodes: Sequence[NodeProto],
    feeds: Sequence[dict[str, Array]],
    outputs: Sequence[str],
    opset: int,
) -> list[list[Array]]:
    """The outputs for each feed, by the standard's evaluator, or where it lacks something by ONNX
    Runtime; loops, of which it joins the rows instead of stacking them, by that one always."""
    if all(node.op_type != "Loop" for node in all_nodes(nodes)):
        try:
            evaluator = ReferenceEvaluator(fragment(nodes, feeds[0], outputs, opset))
            return [[np.asarray(one) for one in evaluator.run(None, feed)] for feed in feeds]
        except Exception as error:  # scans from behind, sums of nothing: it has many reasons
            if not isinstance(error, RuntimeError):
                raise
    return [run_runtime(fragment(nodes, feed, outputs, opset), feed) for feed in feeds]


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of their graphs."""
    for node in nodes:
        yield node
        for a in node.attribute:
            yield from all_nodes(a.g.node)


class Dropped(Exception):
    """A proposal that makes no good node."""


def fragment(
    nodes: Sequence[NodeProto],
    given: dict[str, Any],
    outputs: Sequence[str],
    opset: int,
    functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    """A model of nodes that take arrays."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
        for name, one in sorted(given.items())
        if isinstance(one, np.ndarray)
    ]
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(nodes, "fragment", infos, ends)
    return helper.make_model(
        graph, opset_imports=sets if functions else sets[:1], ir_version=10, functions=functions
    )


def _is_usable(array: Array) -> bool:
    if array.size > MAX_ELEMENTS or array.ndim > 6:
        return False
    if is_float_type(array.dtype):
        wide = array.astype(np.float64)
        return bool(np.isfinite(wide).all() and (np.abs(wide) <= MAX_FLOAT).all())
    if array.dtype.kind in "iu":
        return bool((np.abs(array.astype(np.int64)) <= MAX_INTEGER).all())
    return array.dtype.kind == "b"


def taken_by(nodes: Sequence[NodeProto]) -> set[str]:
    """Names that nodes take from around them, for their graphs too."""
    made = {name for node in nodes for name in node.output}
    taken = {name for node in nodes for name in node.input if name}
    for node in nodes:
        for a in node.attribute:
            if a.HasField("g"):
                own = {one.name for one in (*a.g.input, *a.g.initializer)}
                taken |= taken_by(a.g.node) - own
                taken |= (
                    {o.name for o in a.g.output}
                    - own
                    - {name for inner in a.g.node for name in inner.output}
                )
    return taken - made


#: Shapes of inputs, and their types by how often they come.
SHAPES: list[tuple[int | str, ...]] = [
    ("batch", 4, 6, 5), ("batch", "seq", 8), ("batch", 6), ("batch", 3, 8, 8), (4, 5), (6,),
    ("batch", 4, "seq"), (), (1, "seq"), (2, 3, 1, 4), ("batch", 2, "seq", "seq"), (3, 0), (1,),
    ("seq", "batch", 7), ("batch", 5, 3, 2, 3),
]  # fmt: skip
TYPES = {
    np.float32: 12, np.float64: 2, np.float16: 2, BFLOAT16: 1, np.int32: 2, np.int64: 3,
    np.uint8: 1, np.int8: 1, np.bool_: 1,
}  # fmt: skip


@lru_cache(maxsize=256)
def random_model(seed: int) -> RandomModel:
    """A model of 3 to 25 nodes; the same for a seed each time."""
    from tests.frontends.onnx.random_families import FAMILIES

    builder = ModelBuilder(seed)
    rng = builder.rng
    for _ in range(rng.randint(1, 3)):
        dtype = rng.choices([*TYPES], [*TYPES.values()])[0]
        if dtype != BFLOAT16 or builder.opset >= 13:
            builder.input(rng.choice(SHAPES), dtype)
    if not any(one.array.dtype == np.float32 for one in builder.values):
        builder.input(("batch", 4, 6), np.float32)
    target, attempts = rng.randint(3, 25), 0
    while len(builder.nodes) < target and attempts < 400:
        attempts += 1
        try:
            with builder.attempt():
                rng.choice(rng.choice(FAMILIES))(builder)
        except Dropped:
            continue
    if rng.random() < 0.2:
        _make_function(builder)
    return _finished(builder)


def _make_function(b: ModelBuilder) -> None:
    """A node becomes a call of a function of the file that does the same."""
    plain = [
        k
        for k, node in enumerate(b.nodes)
        if node.input and all(node.input) and not any(a.HasField("g") for a in node.attribute)
    ]
    if not plain:
        return
    k = b.rng.choice(plain)
    node = b.nodes[k]
    inner = NodeProto()
    inner.CopyFrom(node)
    names = list(dict.fromkeys(node.input))
    b.functions.append(
        helper.make_function(
            "own", "Same", names, list(node.output), [inner], [helper.make_opsetid("", b.opset)]
        )
    )
    b.nodes[k] = helper.make_node("Same", names, list(node.output), domain="own")


def _finished(builder: ModelBuilder) -> RandomModel:
    rng = builder.rng
    computed = [one for one in builder.values if one.name not in builder.inputs]
    used = taken_by(builder.nodes) | {name for node in builder.nodes for name in node.input}
    ends = [one for one in computed if one.name not in used]
    ends += rng.sample(computed, min(len(computed), 2))
    ends = list({one.name: one for one in ends}.values())
    inputs = {k: v for k, v in builder.inputs.items() if k in used or not k.startswith("c")}
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.array.dtype), builder.shapes[name]
        )
        for name, value in inputs.items()
    ]
    outs = [
        helper.make_tensor_value_info(
            one.name, helper.np_dtype_to_tensor_dtype(one.array.dtype), [None] * one.array.ndim
        )
        for one in ends
    ]
    stored = [one for one in builder.stored if one.name in used]
    graph = helper.make_graph(builder.nodes, "random", infos, outs, stored)
    sets = [helper.make_opsetid("", builder.opset)]
    sets += [helper.make_opsetid("own", 1)] if builder.functions else []
    model = helper.make_model(graph, opset_imports=sets, ir_version=10, functions=builder.functions)
    onnx.checker.check_model(model)
    bindings = range(len(builder.sizes))
    return RandomModel(
        model,
        [{name: one.arrays[k] for name, one in inputs.items()} for k in bindings],
        [{one.name: one.arrays[k] for one in ends} for k in bindings],
        {one.name: _tolerance(one) for one in ends},
        builder.sizes,
    )


def _tolerance(value: Value) -> tuple[float, float]:
    grown = value.unit * (1 + value.depth) * (0.1 if value.is_exact else 1.0)
    return grown, grown * value.scale
