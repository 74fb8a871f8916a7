"""What is computed in which side of a branch, and what before it."""

from __future__ import annotations

import pytest

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.errors import NotSupported
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.regions import loop
from arenite.schedule import Branch, Kernel, Loop, Schedule, branches_of_ifs, fuse

F32, BOOL, INT64 = (BY_NAME[name] for name in ("float32", "bool", "int64"))


def x(index: int = 0) -> Node:
    return ir.graph_input(f"x{index}", index, (4, 4), F32)


def flag(index: int = 8) -> Node:
    return ir.graph_input(f"c{index}", index, (), BOOL)


def heavy(node: Node, axis: int = 0) -> Node:
    """A kernel of its own."""
    return ir.make("sort", node, axis=axis, descending=False)


def scheduled(*outputs: Node) -> Schedule:
    return fuse(Graph.of(outputs))


def kinds(schedule: Schedule) -> list[str]:
    return [type(step).__name__ for step in schedule.steps]


def ops(schedule: Schedule) -> list[str]:
    return [step.stages[0].node.op for step in schedule.steps if isinstance(step, Kernel)]


def test_what_one_side_needs_is_in_that_side_and_what_both_need_before() -> None:
    shared = ir.make("cumsum", x(), axis=0)
    both = ir.make("if", flag(), heavy(shared), ir.make("neg", ir.make("exp", shared)))
    schedule = scheduled(both)
    assert kinds(schedule) == ["Kernel", "Branch"]
    assert ops(schedule) == ["cumsum"]
    branch = schedule.steps[1]
    assert isinstance(branch, Branch)
    assert ops(branch.then) == ["sort"]
    assert ops(branch.otherwise) == ["neg"]


def test_what_the_graph_around_needs_is_computed_once_before() -> None:
    sorted_ = heavy(x())
    node = ir.make("if", flag(), sorted_, x())
    schedule = scheduled(ir.make("add", node, sorted_))
    assert [step.name for step in schedule.kernels if "sort" in step.name] != []
    assert kinds(schedule)[:2] == ["Kernel", "Branch"]


def test_ifs_on_one_condition_are_one_branch_unless_one_needs_the_other() -> None:
    c = flag()
    one = ir.make("if", c, heavy(x()), x())
    other = ir.make("if", c, heavy(x(1)), ir.make("neg", x(1)))
    assert kinds(scheduled(one, other)) == ["Branch"]
    assert kinds(scheduled(one, ir.make("if", flag(9), heavy(x(1)), x(1)))) == ["Branch", "Branch"]
    chained = ir.make("if", c, heavy(one, 1), x())
    assert kinds(scheduled(one, chained)).count("Branch") == 2


def test_groups_do_not_wait_for_each_other_in_a_circle() -> None:
    """a of c before b of d, and b' of d before a' of c: not both pairs can be one branch."""
    c, d = flag(8), flag(9)
    a = ir.make("if", c, heavy(x()), x())
    b = ir.make("if", d, heavy(a), x())
    b_other = ir.make("if", d, heavy(x(1)), x(1))
    a_other = ir.make("if", c, heavy(b_other), x(1))
    schedule = scheduled(a, b, b_other, a_other)
    assert kinds(schedule).count("Branch") == 3


def test_ifs_in_ifs_and_loops_are_found() -> None:
    inner = ir.make("if", flag(9), heavy(x()), ir.make("exp", x()))
    outer = ir.make("if", flag(), heavy(inner), x())
    schedule = scheduled(outer)
    branch = schedule.steps[-1]
    assert isinstance(branch, Branch)
    assert kinds(branch.then) == ["Branch", "Kernel"]
    number, state = ir.parameter((), INT64), ir.parameter((4, 4), F32)
    condition = ir.make("lt", number, ir.full((), 2, INT64))
    chosen = ir.make("if", condition, heavy(state), state)
    [last] = loop(ir.full((), 3, INT64), [x()], ((number, state), (chosen,)))
    schedule = scheduled(last)
    [step] = [step for step in schedule.steps if isinstance(step, Loop)]
    assert kinds(step.body) == ["Kernel", "Branch"]
    assert "loop 3 times" in str(schedule)


def test_rows_of_the_iteration_are_windows_where_there_are_enough() -> None:
    number, state = ir.parameter((), INT64), ir.parameter((4,), F32)
    row = ir.make("gather", x(), number, axis=0)
    for trips, n_windows in ((4, 1), (5, 0)):
        new = ir.make("add", state, row)
        start = ir.graph_input("s", 1, (4,), F32)
        [last] = loop(ir.full((), trips, INT64), [start], ((number, state), (new,)))
        [step] = [step for step in scheduled(last).steps if isinstance(step, Loop)]
        assert len(step.windows) == n_windows


def test_cases_one_in_another_work_until_they_are_too_deep() -> None:
    def chain(depth: int) -> Node:
        value = x()
        for k in range(depth):
            condition = ir.make("lt", ir.full((), k, INT64), ir.graph_input("n", 1, (), INT64))
            value = ir.make("if", condition, ir.make("neg", x()), heavy(value))
        return value

    assert kinds(scheduled(chain(40)))[-1] == "Branch"
    with pytest.raises(NotSupported, match="more than 48 deep"):
        branches_of_ifs(Graph.of([chain(300)]))


def test_a_long_chain_goes_into_its_side() -> None:
    value, c = x(), flag()
    for _ in range(20_000):
        value = ir.make("add", ir.make("neg", value), x())
    node = ir.make("if", c, value, x())
    made = branches_of_ifs(Graph.of([node]))
    assert len(made.nodes) < 10
    assert len(made.everything) > 40_000
