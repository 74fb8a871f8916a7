"""Random graphs with ifs and loops in each other, over int64, so that results are exact."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.regions import loop

INT64, BOOL = BY_NAME["int64"], BY_NAME["bool"]
SIZE = 5
SHAPES: list[tuple[int, ...]] = [(), (SIZE,), (SIZE, SIZE)]


class ControlMaker:
    """Values by shape; a region sees those around it and adds its own."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.inputs = [ir.graph_input(f"x{k}", k, shape, INT64) for k, shape in enumerate(SHAPES)]

    def make(self, n_steps: int = 10) -> Graph:
        values = self._grown(list(self.inputs), n_steps, 0)
        made = [node for node in values if node not in self.inputs]
        outputs = self.random.sample(made, k=min(4, len(made)))
        return Graph(tuple(self.inputs), (*outputs, made[-1]))

    def arrays(self, seed: int) -> list[NDArray[Any]]:
        rng = np.random.default_rng(seed)
        return [rng.integers(-9, 9, shape) for shape in SHAPES]

    def _grown(self, values: list[Node], n_steps: int, depth: int) -> list[Node]:
        """The values with some more, made of them."""
        values = list(values)
        for _ in range(n_steps):
            kinds = [self._element, self._reduce, self._view, self._heavy]
            weights = [6, 2, 2, 2]
            if depth < 2:
                kinds += [self._if, self._loop]
                weights += [4, 4]
            values += self.random.choices(kinds, weights)[0](values, depth)
        return values

    def _pick(self, values: list[Node], shape: tuple[int, ...] | None = None) -> Node:
        fitting = [v for v in values if shape is None or v.shape == shape]
        recent = fitting[-4:] if self.random.random() < 0.7 else fitting
        return self.random.choice(recent) if recent else ir.full(shape or (), 3, INT64)

    def _element(self, values: list[Node], depth: int) -> list[Node]:
        a = self._pick(values)
        b = self._pick(values, tuple(map(int, a.shape)))  # type: ignore[arg-type]
        op = self.random.choice("add sub mul maximum minimum xor".split())
        made = ir.make(op, a, b)
        if self.random.random() < 0.3:
            made = ir.make("where", ir.make("lt", a, b), made, ir.make("neg", a))
        return [made]

    def _reduce(self, values: list[Node], depth: int) -> list[Node]:
        a = self._pick(values)
        if not a.ndim:
            return []
        op = self.random.choice(["sum", "max", "min"])
        return [ir.make(op, a, axes=(self.random.randrange(a.ndim),))]

    def _view(self, values: list[Node], depth: int) -> list[Node]:
        a = self._pick(values)
        if a.ndim == 2:
            return [ir.make("permute", a, axes=(1, 0))]
        if a.ndim == 1:
            wide = ir.make("reshape", a, shape=(1, SIZE))
            return [ir.make("expand", wide, shape=(SIZE, SIZE))]
        return [ir.make("expand", ir.make("reshape", a, shape=(1,)), shape=(SIZE,))]

    def _heavy(self, values: list[Node], depth: int) -> list[Node]:
        """What fusion stops at."""
        a = self._pick(values)
        if not a.ndim:
            return []
        if a.ndim == 2 and self.random.random() < 0.5:
            other = self._pick(values, (SIZE, SIZE))
            return [ir.make("matmul", a, other, transpose_a=False, transpose_b=True)]
        axis = self.random.randrange(a.ndim)
        if self.random.random() < 0.5:
            return [ir.make("cumsum", a, axis=axis)]
        return [ir.make("sort", a, axis=axis, descending=False)]

    def _condition(self, values: list[Node]) -> Node:
        a, b = self._pick(values, ()), self._pick(values, ())
        return ir.make(self.random.choice(["lt", "ge"]), a, ir.make("minimum", b, self._number()))

    def _number(self) -> Node:
        return ir.full((), self.random.randint(-5, 5), INT64)

    def _if(self, values: list[Node], depth: int) -> list[Node]:
        condition = self._condition(values)
        then = self._grown(values, self.random.randint(0, 4), depth + 1)
        otherwise = self._grown(values, self.random.randint(0, 4), depth + 1)
        made = []
        for _ in range(self.random.randint(1, 2)):
            a = self._pick(then)
            b = self._pick(otherwise, tuple(map(int, a.shape)))  # type: ignore[arg-type]
            made.append(ir.make("if", condition, a, b))
        return made

    def _loop(self, values: list[Node], depth: int) -> list[Node]:
        initial = [self._pick(values) for _ in range(self.random.randint(1, 3))]
        number = ir.parameter((), INT64)
        carried = [ir.parameter(node.shape, node.dtype) for node in initial]
        seen = [*values, number, *carried]
        if self.random.random() < 0.4:
            # A row that is read in place, where there are as many as iterations.
            seen.append(ir.make("gather", self._pick(values, (SIZE, SIZE)), number, axis=0))
        inside = self._grown(seen, self.random.randint(1, 5), depth + 1)
        following = [
            self._pick(inside, tuple(map(int, node.shape)))  # type: ignore[arg-type]
            for node in initial
        ]
        n = self.random.choice([0, 1, 2, 3, SIZE])
        rows: list[Node] = []
        goes_on = None
        trips = ir.full((), n, INT64)
        if self.random.random() < 0.3:
            limit = ir.full((), SIZE, INT64)
            found = ir.make("mod", self._pick(values, ()), limit)  # within 0..4
            trips = found
        else:
            rows = [
                node for node in self.random.sample(inside, k=min(2, len(inside))) if node.ndim < 2
            ]
        if self.random.random() < 0.4:
            goes_on = self._condition(inside)
        made = loop(trips, initial, ((number, *carried), following), rows=rows, goes_on=goes_on)
        stacked = made[len(initial) :]
        shown = [ir.make("sum", node, axes=(0,)) for node in stacked]
        kept = [node for node in stacked if node.shape in SHAPES]
        return [*made[: len(initial)], *shown, *kept]
