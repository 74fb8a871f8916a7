"""Loops that write rows of a value they carry: in place where nobody else needs it, else not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir import evaluate, verify
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.regions import loop
from arenite.pipeline import compile_anew
from arenite.program.options import Options
from arenite.runtime.executable import Executable
from arenite.schedule import Kernel, Loop, fuse
from tests.pipeline.trial import run_poisoned

INT64 = BY_NAME["int64"]
X = ir.graph_input("x", 0, (7, 3), INT64)
Y = ir.graph_input("y", 1, (1, 3), INT64)
N = ir.graph_input("n", 2, (), INT64)


def arrays(n: int) -> list[NDArray[Any]]:
    rng = np.random.default_rng(n)
    return [rng.integers(-9, 9, (7, 3)), rng.integers(-9, 9, (1, 3)), np.array(n)]


def written(v: Node, row: Node, at: Node) -> Node:
    return ir.make("update_slice", v, row, at, axis=0)


def summed(v: Node) -> Node:
    """All rows in one."""
    return ir.make("reshape", ir.make("sum", v, axes=(0,)), shape=(1, 3))


def once(initial: Node, body: Callable[[Node, Node], Node]) -> list[Node]:
    number, v = ir.parameter((), INT64), ir.parameter(initial.shape, INT64)
    return loop(N, [initial], ((number, v), [body(number, v)]))


def private() -> list[Node]:
    """All rows so far, in the next one."""
    return once(ir.make("neg", X), lambda i, v: written(v, ir.make("add", summed(v), Y), i))


def of_the_caller() -> list[Node]:
    return once(X, lambda i, v: written(v, summed(v), i))


def needed_later() -> list[Node]:
    initial = ir.make("neg", X)
    [made] = once(initial, lambda i, v: written(v, summed(v), i))
    return [ir.make("sub", made, initial), made]


def returned_too() -> list[Node]:
    initial = ir.make("neg", X)
    return [*once(initial, lambda i, v: written(v, summed(v), i)), initial]


def read_after_it_is_written() -> list[Node]:
    """What follows on another value needs the old one, and the new one."""
    number, v, s = ir.parameter((), INT64), ir.parameter((7, 3), INT64), ir.parameter((1, 3), INT64)
    new = written(v, ir.make("add", s, Y), number)
    total = ir.make("sub", summed(new), ir.make("mul", summed(v), ir.full((1, 3), 2, INT64)))
    body = ((number, v, s), [new, total])
    return loop(N, [ir.make("neg", X), Y], body)


def sorted_before() -> list[Node]:
    """Read as a whole by something that no kernel does on the way."""
    return once(
        ir.make("neg", X),
        lambda i, v: written(v, summed(ir.make("sort", v, axis=0, descending=False)), i),
    )


def two_from_one() -> list[Node]:
    initial = ir.make("neg", X)
    number, v, w = ir.parameter((), INT64), *(ir.parameter((7, 3), INT64) for _ in range(2))
    body = ((number, v, w), [written(v, summed(w), number), written(w, summed(v), number)])
    return loop(N, [initial, initial], body)


def swapped() -> list[Node]:
    """The values change places, and one of them is written on the way."""
    number, v, w = ir.parameter((), INT64), *(ir.parameter((7, 3), INT64) for _ in range(2))
    body = ((number, v, w), [w, written(v, summed(w), number)])
    return loop(N, [ir.make("neg", X), ir.make("abs", X)], body)


def written_twice() -> list[Node]:
    return once(ir.make("neg", X), lambda i, v: written(written(v, Y, i), summed(v), i))


def in_a_loop() -> list[Node]:
    """The inner loop begins with what the outer one makes for it."""

    def outer(i: Node, v: Node) -> Node:
        begun = ir.make("add", v, ir.make("expand", Y, shape=(7, 3)))
        [made] = once(begun, lambda j, u: written(u, summed(u), j))
        return ir.make("maximum", made, v)

    return once(ir.make("neg", X), outer)


def of_constants() -> list[Node]:
    initial = ir.make("neg", ir.constant(np.arange(21).reshape(7, 3)))
    return once(initial, lambda i, v: written(v, ir.make("add", summed(v), Y), i))


def is_in_place(graph: Graph) -> bool:
    """Whether a body writes rows alone."""
    pending = [*fuse(graph).steps]
    while pending:
        step = pending.pop()
        if isinstance(step, Loop):
            pending += step.body.steps
            if step.overwritten:
                return True
        assert isinstance(step, Loop | Kernel)
    return False


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (private, True),
        (of_the_caller, False),
        (needed_later, False),
        (returned_too, False),
        (read_after_it_is_written, True),
        (sorted_before, True),
        (two_from_one, False),
        (swapped, False),
        (written_twice, None),
        (in_a_loop, True),
        (of_constants, True),
    ],
)
def test_rows_are_written_in_place_where_that_is_right(
    build: Callable[[], list[Node]], expected: bool | None
) -> None:
    graph = Graph((X, Y, N), tuple(build()))
    verify(graph)
    assert expected is None or is_in_place(graph) == expected
    for threads, plan in ((1, "memory"), (2, "memory"), (2, "concurrency")):
        program = compile_anew(graph, Options(plan=plan))
        with Executable(graph, program, threads) as executable:
            executable.verify()
            for n in (0, 1, 2, 7, 5, 0, 7):
                given = arrays(n)
                wanted = evaluate(graph, given)
                for results in (run_poisoned(executable, *given), executable.run_checked(*given)):
                    for one, other in zip(results, wanted, strict=True):
                        np.testing.assert_array_equal(one, other)
