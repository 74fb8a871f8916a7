"""A row of attention depends on its query and the keys it sees, not on the rows of the same call.

One program reads a text in one call and in calls of any other size; every row has the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir.compose import basic
from arenite.ir.compose.neural import attention, quantised_rows
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.control import cut
from arenite.pipeline import compile_graph
from arenite.runtime.executable import Executable

Array = NDArray[Any]
FLOAT32 = BY_NAME["float32"]
CONTEXT = 400
#: Rows of a call: few, as many as are few, more, and more than a vector, a panel, a block of keys.
COUNTS = (1, 2, 3, 7, 8, 9, 16, 33, 128, 150)


def cache(heads: int, groups: int, size: int, kind: str, window: int | None) -> Graph:
    """New rows of keys and values join those that are kept, by position; attention over all."""
    rows = Var("rows", 1, CONTEXT)
    q = ir.graph_input("x0", 0, (rows, heads, size), FLOAT32)
    new = [ir.graph_input(f"x{k}", k, (rows, groups, size), FLOAT32) for k in (1, 2)]
    at = ir.graph_input("x3", 3, (), BY_NAME["int64"])
    end = at + ir.size(rows, at.dtype)
    updates: list[tuple[Node, Node]] = []
    seen: list[list[Node]] = []
    for name, x in zip("kv", new, strict=True):
        parts = quantised_rows(x) if kind == "int8" else (basic.cast(x, BY_NAME[kind]),)
        own: list[Node] = []
        for number, part in enumerate(parts):
            shape = (CONTEXT, *part.shape[1:])
            state = ir.make("state", name=f"{name}{number}", shape=shape, dtype=part.dtype)
            updated = ir.make("update_slice", state, part, at, axis=0)
            updates.append((state, updated))
            kept = cut(updated, end)
            own.append(basic.permute(kept, (1, 0, *range(2, kept.ndim))))
        seen.append(own)
    (k, *k_scale), (v, *v_scale) = seen
    made = attention(
        basic.permute(q, (1, 0, 2)),
        k,
        v,
        causal=True,
        offset=k.shape[1] - rows,
        window=window,
        k_scale=k_scale[0] if k_scale else None,
        v_scale=v_scale[0] if v_scale else None,
    )
    return Graph((q, *new, at), (basic.permute(made, (1, 0, 2)),), updates=tuple(updates))


def read(program: Executable, arrays: list[Array], counts: Iterator[int]) -> Array:
    """The rows of a text that is read in calls of so many."""
    at, found = 0, []
    while at < CONTEXT:
        some = slice(at, at + next(counts))
        given = {f"x{k}": x[some] for k, x in enumerate(arrays)}
        [rows] = program.run({**given, "x3": np.array(at)})
        found.append(rows)
        at += len(rows)
    return np.concatenate(found)


def again(count: int) -> Iterator[int]:
    while True:
        yield count


def at_random() -> Iterator[int]:
    rng = np.random.default_rng(7)
    while True:
        yield int(rng.choice(COUNTS))


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize(
    ("heads", "groups", "size", "window"),
    [(6, 2, 64, None), (6, 2, 64, 150), (3, 3, 20, None), (8, 1, 36, 23)],
)
def test_calls_of_any_size(
    heads: int, groups: int, size: int, window: int | None, kind: str
) -> None:
    rng = np.random.default_rng(heads)
    arrays: list[Array] = [
        2 * rng.standard_normal((CONTEXT, n, size), dtype=np.float32)
        for n in (heads, groups, groups)
    ]
    graph = cache(heads, groups, size, kind, window)
    with compile_graph(graph, threads=1) as one, compile_graph(graph, threads=2) as two:
        whole = read(one, arrays, again(CONTEXT))
        assert np.isfinite(whole).all()
        for count in COUNTS:
            np.testing.assert_array_equal(read(one, arrays, again(count)), whole, str(count))
        np.testing.assert_array_equal(read(two, arrays, at_random()), whole)


@pytest.mark.parametrize("mask", ["none", "bool", "float32"])
def test_calls_over_the_same_keys(mask: str) -> None:
    """All keys are seen, but for what a mask hides."""
    heads, size, n_keys = 4, 24, 300
    rows = Var("rows", 1, CONTEXT)
    rng = np.random.default_rng(2)
    keys, values = (
        ir.constant(rng.standard_normal((heads, n_keys, size)).astype(np.float32)) for _ in range(2)
    )
    arrays: list[Array] = [rng.standard_normal((CONTEXT, heads, size)).astype(np.float32)]
    nodes = [ir.graph_input("x0", 0, (rows, heads, size), FLOAT32)]
    if mask != "none":
        numbers = rng.standard_normal((CONTEXT, n_keys)).astype(np.float32)
        arrays.append(numbers > 0 if mask == "bool" else numbers)
        nodes.append(ir.graph_input("x1", 1, (rows, n_keys), BY_NAME[mask]))
    masks = [basic.reshape(node, (1, rows, n_keys)) for node in nodes[1:]]
    made = attention(basic.permute(nodes[0], (1, 0, 2)), keys, values, *masks)
    graph = Graph(tuple(nodes), (basic.permute(made, (1, 0, 2)),))
    with compile_graph(graph) as program:
        [whole] = program(*arrays)
        for count in COUNTS:
            cuts = range(0, CONTEXT, count)
            parts = [program(*(x[at : at + count] for x in arrays))[0] for at in cuts]
            np.testing.assert_array_equal(np.concatenate(parts), whole, str(count))
