"""Random models that are valid: 3 to 25 nodes of all families of operators, by a seed.

Each node is tried on numbers as it is added, by the standard's evaluator, and dropped where its
result is no number, too large, or refused. So sizes, types and ranges are known, nothing overflows,
and what jumps (Floor, ArgMax, comparisons, casts to integers) is only applied to exact values.

    made = random_model(seed)    made.model    made.inputs    made.tolerances
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = NDArray[Any]
#: Magnitudes that values keep to: floats, and integers.
MAX_FLOAT, MAX_INTEGER = 200.0, 1 << 20
MAX_ELEMENTS = 20_000
#: What one operator may add to the error, by type.
UNITS = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-7}
NEWEST = onnx.defs.onnx_opset_version()


@dataclass
class Value:
    """A value of the model, with the numbers it has for the sample inputs."""

    name: str
    array: Array
    is_exact: bool
    #: Approximate operators between it and the inputs.
    depth: int = 0
    #: The greatest magnitude on the way to it, of which errors are fractions.
    scale: float = 1.0
    #: The coarsest rounding on the way to it.
    unit: float = 0.0

    @property
    def is_float(self) -> bool:
        return self.array.dtype.kind == "f"


@dataclass
class RandomModel:
    """`tolerances` are (rtol, atol) by output."""

    model: ModelProto
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    tolerances: dict[str, tuple[float, float]]
    #: Names of sizes that each input has; the model is valid for others too where it says so.
    shapes: dict[str, tuple[int | str, ...]] = field(default_factory=dict)


class ModelBuilder:
    """A model in the making."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = self.rng.choice([7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                      NEWEST - 3, NEWEST - 2, NEWEST - 1, NEWEST])  # fmt: skip
        self.dims = {"batch": self.rng.choice((1, 2, 3)), "seq": self.rng.choice((4, 5, 7))}
        self.inputs: dict[str, Value] = {}
        self.shapes: dict[str, tuple[int | str, ...]] = {}
        self.stored: list[TensorProto] = []
        self.nodes: list[NodeProto] = []
        self.values: list[Value] = []
        #: Values whose sizes are found in a run: what takes them must not rely on these.
        self.closed: set[str] = set()
        self._n = 0

    def fresh(self, what: str = "v") -> str:
        self._n += 1
        return f"{what}{self._n}"

    # Sources.

    def input(self, shape: Sequence[int | str], dtype: Any) -> Value:
        name = self.fresh("x")
        sizes = [self.dims[one] if isinstance(one, str) else one for one in shape]
        data = self.data(sizes, dtype)
        value = Value(name, data, True, unit=UNITS.get(data.dtype.name, 0.0))
        self.inputs[name] = value
        self.shapes[name] = tuple(shape)
        self.values.append(value)
        return value

    def data(self, shape: Sequence[int], dtype: Any) -> Array:
        """Numbers with few digits, so that simple sums of them are exact in every type."""
        kind = np.dtype(dtype).kind
        if kind == "b":
            return self.numbers.integers(0, 2, shape).astype(bool)
        if kind == "u":
            return self.numbers.integers(0, 20, shape).astype(dtype)
        if kind == "i":
            return self.numbers.integers(-9, 10, shape).astype(dtype)
        return (self.numbers.integers(-24, 25, shape) / 8).astype(dtype)

    def const(self, values: Any, dtype: Any = np.int64) -> str:
        """A tensor that the file holds: as an initialiser, or by a Constant."""
        array = np.asarray(values, dtype)
        name = self.fresh("c")
        tensor = numpy_helper.from_array(array, name)
        if self.rng.random() < 0.25:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.stored.append(tensor)
        self.arrays[name] = array
        return name

    @property
    def arrays(self) -> dict[str, Array]:
        if not hasattr(self, "_arrays"):
            self._arrays: dict[str, Array] = {}
        return self._arrays

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
        **attrs: Any,
    ) -> list[Value]:
        """A node, tried on numbers. `exact`: its result has no error where its inputs have none."""
        names = [one if isinstance(one, str) else one.name for one in inputs]
        outputs = [self.fresh() for _ in range(n_outputs)]
        node = helper.make_node(op, names, outputs, **attrs)
        given = [one for one in inputs if isinstance(one, Value)]
        results = self.tried(node, given)
        is_exact = exact and all(one.is_exact for one in given)
        depth = max((one.depth for one in given), default=0) + (not exact)
        made = []
        for name, array in zip(outputs, results, strict=True):
            scale = max([one.scale for one in given], default=1.0)
            if array.dtype.kind == "f" and array.size:
                scale = max(scale, float(np.abs(array).max()))
            unit = max([UNITS.get(array.dtype.name, 0.0), *(one.unit for one in given)])
            made.append(
                Value(name, array, is_exact or array.dtype.kind in "biu", depth, scale, unit)
            )
        if any(array.dtype.kind in "biu" for array in results) and not all(
            one.is_exact for one in given
        ):
            raise Dropped  # integers and truths of what is only known roughly
        self.nodes.append(node)
        self.values += made
        return made

    def tried(self, node: NodeProto, given: Sequence[Value]) -> list[Array]:
        arrays = {one.name: one.array for one in self.values} | self.arrays
        captured = {name for a in node.attribute if a.HasField("g") for name in _outer(a.g)}
        names = {name for name in (*node.input, *captured) if name}
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(arrays[name].dtype), arrays[name].shape
            )
            for name in sorted(names)
        ]
        ends = [helper.make_empty_tensor_value_info(name) for name in node.output]
        model = helper.make_model(
            helper.make_graph([node], "one", infos, ends),
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=8,
        )
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
                onnx.checker.check_model(inferred)
                results = ReferenceEvaluator(model).run(None, {n: arrays[n] for n in names})
            except Exception as error:  # whatever is wrong with a proposal, another is made
                raise Dropped from error
        results = [np.asarray(one) for one in results]
        for info, array in zip(inferred.graph.output, results, strict=True):
            kind = info.type.tensor_type.elem_type
            if kind != helper.np_dtype_to_tensor_dtype(array.dtype) or not _is_usable(array):
                raise Dropped  # the evaluator gives another type than the standard says
            said = info.type.tensor_type.shape.dim
            if info.type.tensor_type.HasField("shape") and len(said) != array.ndim:
                raise Dropped
            for dim, size in zip(said, array.shape, strict=False):
                if dim.HasField("dim_value") and dim.dim_value != size:
                    raise Dropped
        return results


class Dropped(Exception):
    """A proposal that makes no good node."""


def _is_usable(array: Array) -> bool:
    if array.size > MAX_ELEMENTS or array.ndim > 6:
        return False
    if array.dtype.kind == "f":
        return bool(np.isfinite(array).all() and (np.abs(array) <= MAX_FLOAT).all())
    if array.dtype.kind in "iu":
        return bool((np.abs(array.astype(np.int64)) <= MAX_INTEGER).all())
    return array.dtype.kind == "b"


def _outer(graph: onnx.GraphProto) -> set[str]:
    """Names that a subgraph takes from around it."""
    made = {one.name for one in (*graph.input, *graph.initializer)}
    made |= {name for node in graph.node for name in node.output}
    return {name for node in graph.node for name in node.input if name and name not in made}


def random_model(seed: int) -> RandomModel:
    """A model of 3 to 25 nodes; the same for a seed each time."""
    from tests.frontends.onnx.random_nodes import FAMILIES

    builder = ModelBuilder(seed)
    rng = builder.rng
    for _ in range(rng.randint(1, 3)):
        shape = rng.choice(
            [("batch", 4, 6, 5), ("batch", "seq", 8), ("batch", 6), ("batch", 3, 8, 8), (4, 5),
             (6,), ("batch", 4, "seq"), (), (1, "seq"), (2, 3, 1, 4)]
        )  # fmt: skip
        dtype = rng.choices(
            [np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.int8, np.bool_],
            [12, 2, 1, 2, 3, 1, 1, 1],
        )[0]
        builder.input(shape, dtype)
    if not any(one.array.dtype == np.float32 for one in builder.values):
        builder.input(("batch", 4, 6), np.float32)
    target, attempts = rng.randint(3, 25), 0
    while len(builder.nodes) < target and attempts < 400:
        attempts += 1
        before = (len(builder.nodes), len(builder.stored), len(builder.values))
        try:
            rng.choice(rng.choice(FAMILIES))(builder)
        except Dropped:
            del builder.nodes[before[0] :]
            del builder.stored[before[1] :]
            del builder.values[before[2] :]
    return _finished(builder)


def _finished(builder: ModelBuilder) -> RandomModel:
    rng = builder.rng
    computed = [one for one in builder.values if one.name not in builder.inputs]
    used = {name for node in builder.nodes for name in node.input}
    ends = [one for one in computed if one.name not in used]
    ends += rng.sample(computed, min(len(computed), 2))
    ends = list({one.name: one for one in ends}.values())
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.array.dtype), builder.shapes[name]
        )
        for name, value in builder.inputs.items()
    ]
    outs = [
        helper.make_tensor_value_info(
            one.name, helper.np_dtype_to_tensor_dtype(one.array.dtype), [None] * one.array.ndim
        )
        for one in ends
    ]
    # What is named in stored must be used, or be let out.
    needed = {name for node in builder.nodes for name in node.input}
    needed |= {
        name
        for node in builder.nodes
        for a in node.attribute
        if a.HasField("g")
        for name in _outer(a.g)
    }
    stored = [one for one in builder.stored if one.name in needed]
    graph = helper.make_graph(builder.nodes, "random", infos, outs, stored)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", builder.opset)], ir_version=8
    )
    onnx.checker.check_model(model)
    onnx.shape_inference.infer_shapes(model, strict_mode=True)
    return RandomModel(
        model,
        {name: one.array for name, one in builder.inputs.items()},
        {one.name: one.array for one in ends},
        {one.name: _tolerance(one) for one in ends},
        builder.shapes,
    )


def _tolerance(value: Value) -> tuple[float, float]:
    grown = value.unit * (1 + value.depth) * (0.1 if value.is_exact else 1.0)
    return grown, grown * value.scale
