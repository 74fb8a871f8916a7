"""Short loops written out: the same results, by the reference of loops."""

from __future__ import annotations

import numpy as np
import pytest

from arenite.dtype import BY_NAME
from arenite.ir import full, graph_input, make, reference, verify
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.control import Region, parameter
from arenite.passes import apply
from arenite.passes import unroll as passes
from arenite.passes.unroll import unrolled

F32, INT64, BOOL = (BY_NAME[name] for name in ("float32", "int64", "bool"))


def looped(trips: Node, goes_on: Node, index: int) -> Node:
    """y = 2 y + x + iteration, and the rows of all y."""
    x = graph_input("x", 0, (3,), F32)
    turn, before, given = parameter((), INT64), parameter((3,), F32), parameter((3,), F32)
    count = make("expand", make("reshape", make("cast", turn, dtype=F32), shape=(1,)), shape=(3,))
    after = make("add", make("add", make("add", before, before), given), count)
    body = Region((turn, before, given), (goes_on, after, after))
    return make("loop", trips, full((), True, BOOL), x, x, body=body, carried=1, index=index)


@pytest.mark.parametrize("trips", [1, 2, 7])
def test_every_result_of_a_counted_loop_is_written_out(trips: int) -> None:
    always = full((), True, BOOL)
    results = [looped(full((), trips, INT64), always, index) for index in (0, 1)]
    graph = Graph.of(results)
    made = apply(graph, unrolled)
    verify(made)
    assert not any(node.op == "loop" for node in made.everything)
    x = np.array([1, -2, 5], np.float32)
    for one, other in zip(
        reference.evaluate(graph, [x]), reference.evaluate(made, [x]), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    y, rows = x, []
    for k in range(trips):
        y = 2 * y + x + k
        rows.append(y)
    np.testing.assert_array_equal(reference.evaluate(made, [x])[0], y)
    np.testing.assert_array_equal(reference.evaluate(made, [x])[1], np.stack(rows))


def test_a_loop_that_may_end_before_or_is_long_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    always, trips = full((), True, BOOL), full((), 3, INT64)
    count = graph_input("count", 1, (), INT64)
    never = looped(trips, full((), False, BOOL), 0)
    assert unrolled(never) is never
    found = looped(count, always, 0)
    assert unrolled(found) is found
    monkeypatch.setattr(passes, "MOST_NODES", 5)
    long = looped(trips, always, 0)
    assert unrolled(long) is long
