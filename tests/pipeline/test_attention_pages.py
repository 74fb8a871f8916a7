"""Attention over pages, judged by NumPy in float64 and, to the bit, by attention over the same keys
in a row: which pages they lie in, and what other rows there are, changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.errors import IndexOutOfRange, ShapeMismatch, TypeMismatch
from arenite.ir.compose import basic
from arenite.ir.compose.neural import attention
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline import compile_graph
from arenite.program.options import Options

Array = NDArray[Any]
FLOAT32, INT64 = BY_NAME["float32"], BY_NAME["int64"]


@dataclass(frozen=True)
class Case:
    heads: int = 6
    groups: int = 2
    size: int = 64
    page: int = 32
    n_pages: int = 32
    texts: int = 3
    pages: int = 8  # of a text, at the most
    window: int = 0
    kind: str = "float16"
    index: str = "int64"

    @property
    def keys(self) -> int:
        return self.pages * self.page

    def graph(self, rows: Any = None) -> Graph:
        rows = rows or Var("rows", 1, 64)
        pool = (self.n_pages * self.page, self.groups)
        index, kept = BY_NAME[self.index], BY_NAME[self.kind]
        types: list[tuple[Any, Any]] = [
            ((rows, self.heads, self.size), FLOAT32),
            ((*pool, self.size), kept),
            ((*pool, self.size), kept),
            ((self.texts, self.pages), index),
            ((rows,), index),
            ((rows,), index),
        ]
        if self.kind == "int8":
            types += [(pool, BY_NAME["float16"])] * 2
        inputs = [ir.graph_input(f"x{k}", k, *one) for k, one in enumerate(types)]
        attrs = {"scale": self.size**-0.5, "window": self.window, "page": self.page}
        return Graph(tuple(inputs), (ir.make("attention_pages", *inputs, **attrs),))

    def arrays(self, rows: int) -> list[Array]:
        rng = np.random.default_rng(rows)
        pool = (self.n_pages * self.page, self.groups)

        def numbers(*shape: int) -> Array:
            values = rng.standard_normal(shape)
            if self.kind == "int8":
                return np.rint(values * 40).clip(-127, 127).astype(np.int8)
            return values.astype(self.kind)

        # No two texts share a page, but for the first.
        table = rng.permutation(self.n_pages - 1)[: self.texts * self.pages] + 1
        table = table.reshape(self.texts, self.pages).astype(self.index)
        table[:, 0] = 0
        arrays = [
            rng.standard_normal((rows, self.heads, self.size)).astype(np.float32),
            numbers(*pool, self.size),
            numbers(*pool, self.size),
            table,
            rng.integers(0, self.texts, rows).astype(self.index),
            rng.integers(0, self.keys, rows).astype(self.index),
        ]
        if self.kind == "int8":
            scales = rng.random((2, *pool)) * 0.05 + 0.01
            arrays += [*scales.astype(np.float16)]
        return arrays

    def places(self, arrays: list[Array], row: int) -> Array:
        """Where in the pool the keys are that a row sees."""
        table, texts, positions = (x.astype(np.int64) for x in arrays[3:6])
        last = positions[row]
        first = max(0, last - self.window + 1) if self.window else 0
        keys = range(first, last + 1)
        pages = table[texts[row]]
        return np.array([pages[key // self.page] * self.page + key % self.page for key in keys])

    def expected(self, arrays: list[Array]) -> Array:
        q, k, v = (x.astype(np.float64) for x in arrays[:3])
        for x, scales in zip((k, v), arrays[6:], strict=False):
            x *= scales.astype(np.float64)[..., None]
        result = np.zeros(q.shape)
        for row in range(len(q)):
            seen = self.places(arrays, row)
            for head in range(self.heads):
                group = head * self.groups // self.heads
                scores = k[seen, group] @ q[row, head] * self.size**-0.5
                weights = np.exp(scores - scores.max())
                result[row, head] = weights @ v[seen, group] / weights.sum()
        return result


CASES = {
    "usual": Case(),
    "int8": Case(kind="int8", heads=9, groups=3),
    "window": Case(window=50, kind="float32", page=16, n_pages=40, pages=12),
    "window int8": Case(window=70, kind="int8", size=20, heads=4, groups=4),
    "bfloat16": Case(kind="bfloat16", heads=8, groups=1, size=36, index="int32"),
    "gathered": Case(page=8, n_pages=40, window=11),
    "wide": Case(size=288, heads=2),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_what_numpy_makes_of_their_keys(name: str) -> None:
    case = CASES[name]
    with compile_graph(case.graph()) as program:
        for rows in (1, 7, 33):
            arrays = case.arrays(rows)
            [found] = program(*arrays)
            np.testing.assert_allclose(found, case.expected(arrays), rtol=2e-5, atol=2e-5)
        program.verify()
        program.run_checked(*arrays)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("gathered", "wide")])
def test_a_row_has_the_bits_of_attention_over_its_keys_alone(name: str) -> None:
    """That of one query over keys in a row, and that of the row by itself."""
    case = CASES[name]
    arrays = case.arrays(17)
    keys = Var("keys", 1, case.keys)
    shape = (case.groups, keys, case.size)
    types: list[Any] = [((case.heads, 1, case.size), FLOAT32), *[(shape, BY_NAME[case.kind])] * 2]
    types += [(shape[:2], BY_NAME["float16"])] * (2 if case.kind == "int8" else 0)
    q, k, v, *scales = (ir.graph_input(f"x{n}", n, *one) for n, one in enumerate(types))
    k_scale, v_scale = scales or (None, None)
    window = case.window or None
    seen = attention(
        q, k, v, causal=True, offset=keys - 1, window=window, k_scale=k_scale, v_scale=v_scale
    )
    whole = Graph((q, k, v, *scales), (seen,))
    with compile_graph(case.graph()) as paged, compile_graph(whole) as alone:
        [found] = paged(*arrays)
        unseen = Case(**{**case.__dict__, "window": 0})
        for row in range(17):
            places = unseen.places(arrays, row)
            pools = [x[places].swapaxes(0, 1).copy() for x in (*arrays[1:3], *arrays[6:])]
            [expected] = alone(arrays[0][row][:, None], *pools)
            np.testing.assert_array_equal(found[row], expected[:, 0], str(row))
            own = [x[row : row + 1] for x in (arrays[0], *arrays[4:6])]
            [again] = paged(own[0], *arrays[1:4], *own[1:], *arrays[6:])
            np.testing.assert_array_equal(again[0], found[row])


@pytest.mark.parametrize("device", ["cpu", "c"])
@pytest.mark.parametrize(
    ("input_number", "value"), [(3, 32), (3, -1), (4, 3), (4, -1), (5, 256), (5, -1)]
)
def test_what_is_not_there_is_an_error_of_the_run(
    device: str, input_number: int, value: int
) -> None:
    case = Case()
    arrays = case.arrays(2)
    arrays[5][...] = case.keys - 1
    arrays[input_number][...] = value
    program = compile_graph(case.graph(), Options(device=device))
    with program, pytest.raises(IndexOutOfRange):
        program(*arrays)


def test_pages_of_keys_that_nobody_sees_are_not_looked_at() -> None:
    case = Case()
    arrays = case.arrays(3)
    arrays[5][...] = case.page  # the second page of each
    expected = case.expected(arrays)
    arrays[3][:, 2:] = 10**9
    with compile_graph(case.graph()) as program:
        [found] = program(*arrays)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def _wrong(**changes: Any) -> Node:
    shapes: dict[str, Any] = {
        "q": ((3, 4, 8), FLOAT32),
        "k": ((64, 2, 8), FLOAT32),
        "v": ((64, 2, 8), FLOAT32),
        "table": ((2, 4), INT64),
        "text": ((3,), INT64),
        "position": ((3,), INT64),
    } | changes
    inputs = [ir.graph_input(f"x{k}", k, *one) for k, one in enumerate(shapes.values())]
    return ir.make("attention_pages", *inputs, scale=1.0, window=0, page=16)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"q": ((3, 4), FLOAT32)}, ShapeMismatch, "rows, heads and a width"),
        ({"q": ((3, 5, 8), FLOAT32)}, ShapeMismatch, "multiple"),
        ({"k": ((60, 2, 8), FLOAT32), "v": ((60, 2, 8), FLOAT32)}, ShapeMismatch, "whole pages"),
        ({"table": ((4,), INT64)}, ShapeMismatch, "the table"),
        ({"text": ((4,), INT64)}, ShapeMismatch, "the text"),
        ({"position": ((3,), FLOAT32)}, TypeMismatch, "the position"),
        ({"v": ((64, 2, 8), BY_NAME["float16"])}, TypeMismatch, "differ"),
        ({"s": ((64, 3), FLOAT32), "t": ((64, 3), FLOAT32)}, TypeMismatch, "int8"),
    ],
)
def test_what_does_not_fit_is_refused(changes: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        _wrong(**changes)


def test_rows_of_a_state_are_written_where_their_places_say() -> None:
    """In place, on two threads, judged by NumPy."""
    rows = Var("rows", 1, 40)
    x = ir.graph_input("x0", 0, (rows, 3, 70), FLOAT32)
    at = ir.graph_input("x1", 1, (rows,), INT64)
    updates: list[tuple[Node, Node]] = []
    for name, new in (("long", x), ("short", basic.slice_axis(x, 2, 0, 1))):
        shape = (50, *new.shape[1:])
        state = ir.make("state", name=name, shape=shape, dtype=FLOAT32)
        updates.append((state, ir.make("update_slice", state, new, at, axis=0)))
    outputs = tuple(value + 0.0 for _, value in updates)
    rng = np.random.default_rng(3)
    kept = np.zeros((50, 3, 70), np.float32)
    with compile_graph(Graph((x, at), outputs, updates=tuple(updates)), threads=2) as program:
        assert program.plan.regions["state"].nbytes < kept.nbytes * 1.1
        for count in (1, 7, 40):
            given, places = rng.standard_normal((count, 3, 70), np.float32), rng.permutation(50)
            kept[places[:count]] = given
            long, short = program(given, places[:count])
            np.testing.assert_array_equal(long, kept)
            np.testing.assert_array_equal(short, kept[..., :1])
        with pytest.raises(IndexOutOfRange):
            program(given[:2], np.array([3, 50]))
        program.verify()
