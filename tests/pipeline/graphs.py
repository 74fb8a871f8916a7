"""Random graphs for the whole pipeline, and random arrays for them."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME, DType, Kind
from arenite.ir.graph import Graph
from arenite.ir.node import Node

Array = NDArray[Any]
FLOAT32, INT64 = BY_NAME["float32"], BY_NAME["int64"]

UNARY = "neg abs sqrt exp tanh sin floor reciprocal".split()
BINARY = "add sub mul maximum minimum".split()


def random_array(shape: tuple[int, ...], dtype: DType, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype.kind is Kind.FLOAT:
        return rng.standard_normal(shape).astype(dtype.to_numpy())
    if dtype.kind is Kind.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    return rng.integers(-100, 100, shape).astype(dtype.to_numpy())


class GraphMaker:
    """A graph of some hundred float32 ops over small shapes, with shared values and views."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.inputs: list[Node] = []
        self.nodes: list[Node] = []

    def make(self, n_nodes: int) -> Graph:
        for k in range(3):
            shape = tuple(self.random.choice([1, 2, 3, 5, 8, 17]) for _ in range(k + 1))
            node = ir.graph_input(f"x{k}", k, shape, FLOAT32)
            self.inputs.append(node)
            self.nodes.append(node)
        while len(self.nodes) < n_nodes:
            self.nodes.append(self._step())
        outputs = self.random.sample(self.nodes[3:], k=min(3, n_nodes - 3))
        return Graph(tuple(self.inputs), (*outputs, self.nodes[-1]))

    def arrays(self, seed: int) -> list[Array]:
        return [
            random_array(tuple(int(str(d)) for d in node.shape), node.dtype, seed + k)
            for k, node in enumerate(self.inputs)
        ]

    def _pick(self) -> Node:
        return self.random.choice(self.nodes[-12:] if self.random.random() < 0.8 else self.nodes)

    def _step(self) -> Node:
        kinds = [self._unary, self._binary, self._view, self._reduce, self._softmax, self._matmul]
        weights = [4, 5, 5, 2, 1, 1]
        return self.random.choices(kinds, weights)[0]()

    def _unary(self) -> Node:
        x = self._pick()
        op = self.random.choice(UNARY)
        if op in ("sqrt", "reciprocal"):
            x = ir.make("add", ir.make("abs", x), ir.full(x.shape, 0.5, FLOAT32))
        if op == "exp":
            x = ir.make("minimum", x, ir.full(x.shape, 3.0, FLOAT32))
        return ir.make(op, x)

    def _like(self, x: Node) -> Node:
        """A value of x's shape: one there is, or another stretched or filled."""
        same = [n for n in self.nodes if n.shape == x.shape]
        if len(same) > 1 and self.random.random() < 0.7:
            return self.random.choice(same)
        narrow = [
            n
            for n in self.nodes
            if n.ndim == x.ndim and all(a in (1, b) for a, b in zip(n.shape, x.shape, strict=True))
        ]
        if narrow and self.random.random() < 0.7:
            return ir.make("expand", self.random.choice(narrow), shape=x.shape)
        if x.ndim and self.random.random() < 0.3:
            return ir.make("iota", axis=self.random.randrange(x.ndim), shape=x.shape, dtype=FLOAT32)
        return ir.full(x.shape, self.random.uniform(-2, 2), FLOAT32)

    def _binary(self) -> Node:
        x = self._pick()
        y = self._like(x)
        if self.random.random() < 0.2:
            return ir.make("where", ir.make("lt", x, y), y, ir.make("neg", x))
        made = ir.make(self.random.choice(BINARY), x, y)
        return ir.make(
            "minimum",
            ir.make("maximum", made, ir.full(x.shape, -9.0, FLOAT32)),
            ir.full(x.shape, 9.0, FLOAT32),
        )

    def _view(self) -> Node:
        x = self._pick()
        random = self.random
        choice = random.choice(["permute", "reshape", "slice", "pad", "concat", "ones", "flip"])
        if x.ndim == 0 or choice == "ones":
            at = random.randint(0, x.ndim)
            return (
                ir.make("reshape", x, shape=(*x.shape[:at], 1, *x.shape[at:])) if x.ndim < 4 else x
            )
        if choice == "permute":
            return ir.make("permute", x, axes=tuple(random.sample(range(x.ndim), x.ndim)))
        if choice == "reshape":
            if x.ndim > 1:
                at = random.randrange(x.ndim - 1)
                joined = x.shape[at] * x.shape[at + 1]
                return ir.make("reshape", x, shape=(*x.shape[:at], joined, *x.shape[at + 2 :]))
            return ir.make("reshape", x, shape=(1, *x.shape))
        axis = random.randrange(x.ndim)
        size = int(str(x.shape[axis]))
        if choice in ("slice", "flip"):
            step = -1 if choice == "flip" else random.choice([1, 2])
            start, stop = (size - 1, -1) if step < 0 else (random.randint(0, size - 1), size)
            return ir.make(
                "slice",
                x,
                start=tuple(start if k == axis else 0 for k in range(x.ndim)),
                stop=tuple(stop if k == axis else s for k, s in enumerate(x.shape)),
                step=tuple(step if k == axis else 1 for k in range(x.ndim)),
            )
        if size > 40:
            return x
        if choice == "pad":
            padding = tuple(
                (random.randint(0, 2), random.randint(0, 2)) if k == axis else (0, 0)
                for k in range(x.ndim)
            )
            return ir.make("pad", x, padding=padding, value=0.25)
        other = self._like(x)
        return ir.make("concat", x, other, axis=axis)

    def _reduce(self) -> Node:
        x = self._pick()
        if x.ndim == 0:
            return x
        axes = tuple(sorted(self.random.sample(range(x.ndim), self.random.randint(1, x.ndim))))
        op = self.random.choice(["sum", "max", "min"])
        made = ir.make(op, x, axes=axes)
        if op == "sum":
            made = ir.make("tanh", made)
        if self.random.random() < 0.6:
            kept = tuple(1 if k in axes else s for k, s in enumerate(x.shape))
            made = ir.make("reshape", made, shape=kept)
        return made

    def _softmax(self) -> Node:
        x = self._pick()
        if x.ndim == 0:
            return x
        axis = self.random.randrange(x.ndim)
        kept = tuple(1 if k == axis else s for k, s in enumerate(x.shape))

        def spread(node: Node) -> Node:
            return ir.make("expand", ir.make("reshape", node, shape=kept), shape=x.shape)

        e = ir.make("exp", ir.make("sub", x, spread(ir.make("max", x, axes=(axis,)))))
        return ir.make("div", e, spread(ir.make("sum", e, axes=(axis,))))

    def _matmul(self) -> Node:
        x = self._pick()
        if x.ndim < 2:
            return x
        y = self.random.choice([n for n in self.nodes if n.ndim == 2] or [x])
        if y.ndim != 2 or y.shape[0] != x.shape[-1]:
            return ir.make("tanh", ir.make("matmul", x, x, transpose_a=False, transpose_b=True))
        return ir.make("tanh", ir.make("matmul", x, y, transpose_a=False, transpose_b=False))


def square_graph(seed: int, n_nodes: int, size: int) -> Graph:
    """Values of one square shape, each kernel's result a candidate for the bytes of another's.

    Every other step is one that fusion stops at; most values die soon, a few live long.
    """
    random = Random(seed)
    shape = (size, size)
    x, y = (ir.graph_input(f"x{k}", k, shape, FLOAT32) for k in range(2))
    values = [x, y]

    def pick() -> Node:
        return random.choice(values[-4:] if random.random() < 0.8 else values)

    def turned(node: Node) -> Node:
        return ir.make("permute", node, axes=(1, 0))

    steps = [
        lambda: ir.make("tanh", ir.make("add", pick(), pick())),
        lambda: ir.make("sub", pick(), turned(pick())),
        lambda: ir.make("sort", pick(), axis=random.randrange(2), descending=False),
        lambda: ir.make("cummax", pick(), axis=random.randrange(2)),
        lambda: ir.make("tanh", turned(pick())),
        # Divided by the size, so that errors do not grow from step to step.
        lambda: ir.make(
            "mul",
            ir.make("matmul", pick(), pick(), transpose_a=False, transpose_b=True),
            _all(shape, 1 / size),
        ),
        lambda: _centred(pick(), random.randrange(2)),
        lambda: ir.make(
            "slice",
            ir.make("concat", pick(), pick(), axis=0),
            start=(size // 2, 0),
            stop=(size // 2 + size, size),
            step=(1, 1),
        ),
    ]
    while len(values) < n_nodes:
        made = random.choice(steps)()
        values.append(ir.make("maximum", ir.make("minimum", made, _all(shape, 2)), _all(shape, -2)))
    return Graph((x, y), (values[-1], values[len(values) // 2]))


def _all(shape: tuple[int, ...], value: float) -> Node:
    return ir.full(shape, float(value), FLOAT32)


def _centred(x: Node, axis: int) -> Node:
    kept = tuple(1 if k == axis else size for k, size in enumerate(x.shape))
    highest = ir.make("reshape", ir.make("max", x, axes=(axis,)), shape=kept)
    return ir.make("sub", x, ir.make("expand", highest, shape=x.shape))
