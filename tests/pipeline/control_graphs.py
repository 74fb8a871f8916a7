"""Random graphs with ifs and loops in each other, over int64, so that results are exact."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir.compose.basic import broadcast_to, slice_axis
from arenite.ir.compose.counted_sizes import nonzero
from arenite.ir.dim import Dim, minimum, product
from arenite.ir.graph import Graph
from arenite.ir.growing_loop import Body, growing
from arenite.ir.node import Node, Shape
from arenite.ir.ops.unbounded import Specialization, arange, specialize
from arenite.ir.regions import loop

INT64, BOOL = BY_NAME["int64"], BY_NAME["bool"]
SIZE = 5


class ControlMaker:
    """Values by shape; a region sees those around it and adds its own."""

    def __init__(self, seed: int, size: Dim = SIZE, grows: bool = False) -> None:
        self.random = Random(seed)
        self.size = size
        self.grows = grows  # with sizes that have no bound, and structure that is computed
        self.shapes: list[Shape] = [(), (size,), (size, size)]
        self.inputs = [
            ir.graph_input(f"x{k}", k, shape, INT64) for k, shape in enumerate(self.shapes)
        ]

    def make(self, n_steps: int = 10) -> Graph:
        values = self._grown(list(self.inputs), n_steps, 0)
        made = [node for node in values if node not in self.inputs]
        outputs = self.random.sample(made, k=min(4, len(made)))
        return Graph(tuple(self.inputs), (*outputs, made[-1]))

    def arrays(self, seed: int, size: int = SIZE) -> list[NDArray[Any]]:
        rng = np.random.default_rng(seed)
        return [rng.integers(-9, 9, [size] * k) for k in range(3)]

    def _grown(self, values: list[Node], n_steps: int, depth: int) -> list[Node]:
        """The values with some more, made of them."""
        values = list(values)
        for _ in range(n_steps):
            kinds = [self._element, self._reduce, self._view, self._heavy, self._masked]
            weights = [6, 2, 2, 2, 1]
            if depth < 2:
                kinds += [self._if, self._loop]
                weights += [4, 4]
            if self.grows and depth < 2:
                kinds += [self._growing_loop, self._counted, self._specialized]
                weights += [5, 1, 2]
            values += self.random.choices(kinds, weights)[0](values, depth)
        return values

    def _pick(self, values: list[Node], shape: Shape | None = None) -> Node:
        fitting = [v for v in values if shape is None or v.shape == shape]
        recent = fitting[-4:] if self.random.random() < 0.7 else fitting
        return self.random.choice(recent) if recent else ir.full(shape or (), 3, INT64)

    def _element(self, values: list[Node], depth: int) -> list[Node]:
        a = self._pick(values)
        b = self._pick(values, a.shape)
        op = self.random.choice("add sub mul maximum minimum xor".split())
        made = ir.make(op, a, b)
        if self.random.random() < 0.3 and isinstance(self.size, int):
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
            wide = ir.make("reshape", a, shape=(1, self.size))
            return [ir.make("expand", wide, shape=(self.size, self.size))]
        return [ir.make("expand", ir.make("reshape", a, shape=(1,)), shape=(self.size,))]

    def _heavy(self, values: list[Node], depth: int) -> list[Node]:
        """What fusion stops at."""
        a = self._pick(values)
        if not a.ndim:
            return []
        if a.ndim == 2 and self.random.random() < 0.5:
            other = self._pick(values, (self.size, self.size))
            return [ir.make("matmul", a, other, transpose_a=False, transpose_b=True)]
        axis = self.random.randrange(a.ndim)
        if self.random.random() < 0.5:
            return [ir.make("cumsum", a, axis=axis)]
        return [ir.make("sort", a, axis=axis, descending=False)]

    def _masked(self, values: list[Node], depth: int) -> list[Node]:
        """Of elements whose number is found while running."""
        a = self._pick(values)
        if not a.ndim:
            return []
        flat = ir.make("reshape", a, shape=(product(a.shape),))
        limit = ir.full(flat.shape, self.random.randint(-9, 9), INT64)
        kept = ir.make("gather", flat, nonzero(ir.make("gt", flat, limit)), axis=0)
        if self.random.random() < 0.5:
            kept = ir.make("sort", kept, axis=0, descending=True)
        twice = ir.make("mul", kept, ir.make("cumsum", kept, axis=0))
        return [ir.make("sum", twice, axes=(0,))]

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
            b = self._pick(otherwise, a.shape)
            made.append(ir.make("if", condition, a, b))
        return made

    def _loop(self, values: list[Node], depth: int) -> list[Node]:
        initial = [self._pick(values) for _ in range(self.random.randint(1, 3))]
        number = ir.parameter((), INT64)
        carried = [ir.parameter(node.shape, node.dtype) for node in initial]
        seen = [*values, number, *carried]
        if self.random.random() < 0.4:
            # A row that is read in place, where there are as many as iterations.
            seen.append(
                ir.make("gather", self._pick(values, (self.size, self.size)), number, axis=0)
            )
        inside = self._grown(seen, self.random.randint(1, 5), depth + 1)
        following = [self._pick(inside, node.shape) for node in initial]
        is_known = isinstance(self.size, int)
        n = self.random.choice([0, 1, 2, 3, self.size] if is_known else [0, 1, self.size])
        rows: list[Node] = []
        goes_on = None
        trips = ir.size(n, INT64)
        if self.random.random() < 0.3:
            # Found while running, and no more than there are rows.
            trips = ir.make("mod", self._pick(values, ()), ir.size(self.size, INT64))
        else:
            rows = [
                node for node in self.random.sample(inside, k=min(2, len(inside))) if node.ndim < 2
            ]
        if self.random.random() < 0.4:
            goes_on = self._condition(inside)
        body = ((number, *carried), following)
        is_cut = self.random.random() < 0.5
        made = loop(trips, initial, body, rows=rows, goes_on=goes_on, cut_rows=is_cut)
        stacked = made[len(initial) :]
        shown = [ir.make("sum", node, axes=(0,)) for node in stacked]
        kept = [node for node in stacked if node.shape in self.shapes]
        return [*made[: len(initial)], *shown, *kept]

    def _growing_loop(self, values: list[Node], depth: int) -> list[Node]:
        """A value that grows, or shrinks, beside one that does not, and rows without a bound."""
        grown = self._pick([v for v in values if v.ndim])
        if not grown.ndim:
            return []
        axis = self.random.randrange(grown.ndim)
        fixed = self._pick(values)
        kind = self.random.choice(["append", "double", "mask", "shrink"])

        def build(number: Node, carried: Sequence[Node]) -> Body:
            v, state = carried
            total = ir.make("sum", v, axes=tuple(range(v.ndim)))
            inside = self._grown([*values, number, state, total], 2, depth + 1)
            following = self._pick(inside, fixed.shape)
            more = self._pick(inside, ())
            goes_on = self._condition(inside) if self.random.random() < 0.3 else None
            rows = [n for n in self.random.sample(inside, k=min(2, len(inside))) if n.ndim < 2]
            if self.random.random() < 0.5:
                rows = []
            return Body([self._changed(v, axis, kind, more), following], rows, goes_on)

        trips = ir.make("mod", self._pick(values, ()), ir.full((), 9, INT64))
        state = self.random.getstate()

        def same(number: Node, carried: Sequence[Node]) -> Body:
            # The body may be built again, and is the same then.
            self.random.setstate(state)
            return build(number, carried)

        made = growing(trips, [grown, fixed], same)
        shown = [ir.make("sum", made[0], axes=(axis,)), made[1]]
        shown += [ir.make("sum", node, axes=(0,)) for node in made[2:]]
        return [node for node in shown if node.shape in self.shapes]

    def _changed(self, v: Node, axis: int, kind: str, number: Node) -> Node:
        """The value with another size on an axis."""
        if kind == "shrink":
            return slice_axis(v, axis, minimum(1, v.shape[axis]), v.shape[axis])
        if kind == "mask":
            along = tuple(k for k in range(v.ndim) if k != axis)
            sums = ir.make("sum", v, axes=along) if along else v
            kept = nonzero(ir.make("ge", sums, broadcast_to(number, sums.shape)))
            extra = ir.make("gather", v, kept, axis=axis)
            return ir.make("concat", v, extra, axis=axis) if v.ndim == 1 else extra
        one = [1 if k == axis else size for k, size in enumerate(v.shape)]
        row = broadcast_to(ir.make("reshape", number, shape=(1,) * v.ndim), one)
        again = [v] if kind == "double" and v.ndim == 1 else []
        return ir.make("concat", v, *again, row, axis=axis)

    def _counted(self, values: list[Node], depth: int) -> list[Node]:
        """A range over a number that is found."""
        count = ir.make("mod", self._pick(values, ()), ir.full((), 70, INT64))
        counts = arange(count)
        twice = ir.make("mul", counts, broadcast_to(self._pick(values, ()), counts.shape))
        return [ir.make("sum", twice, axes=(0,))]

    def _specialized(self, values: list[Node], depth: int) -> list[Node]:
        """What is reduced, or turned, along an axis that is found."""
        a = self._pick([v for v in values if v.ndim == 2])
        if a.ndim != 2:
            return []
        which = ir.make("mod", self._pick(values, ()), ir.full((), 2, INT64))

        def reduced(known: Sequence[NDArray[Any]], given: Sequence[Node]) -> list[Node]:
            axis = int(known[0])
            turned = ir.make("permute", given[0], axes=(axis, 1 - axis))
            return [ir.make("sum", given[0], axes=(axis,)), turned]

        types = [((self.size,), INT64), ((self.size, self.size), INT64)]
        return specialize(Specialization(reduced), [which], [a], types)
