"""Values written over others: whatever order the edges leave open, every byte that is read is that
of the value meant; judged by programs that run in random orders."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import pytest

import arenite
from arenite import Tensor, dtype
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops import graph_input
from arenite.ir.ops.control import cut
from arenite.ir.ops.define import make
from arenite.schedule.overwrite import Overwriting, aliases_of, overwriting

INT64 = dtype.of("int64")
X = graph_input("x", 0, (4,), INT64)
ROWS = graph_input("rows", 1, (1,), INT64)
START = graph_input("start", 2, (), INT64)
COUNT = graph_input("count", 3, (), INT64)
STATES = [make("state", name=name, shape=(4,), dtype=INT64) for name in "ab"]
A, B = STATES


def updated(value: Node) -> Node:
    return make("update_slice", value, ROWS, START, axis=0)


def add(one: Node, other: Node) -> Node:
    return make("add", one, other)


def turned(value: Node) -> Node:
    """Not in place: every element is made of all."""
    return make("cumsum", value, axis=0)


class Works:
    """A graph each of whose nodes is made by a work of its own."""

    def __init__(self, outputs: list[Node], updates: list[tuple[Node, Node]]) -> None:
        inputs = (X, ROWS, START, COUNT)
        self.graph = Graph(inputs, tuple(outputs), (), updates=tuple(updates))
        self.made = [node for node in self.graph.nodes if node.inputs]
        self.made_by = {node: k for k, node in enumerate(self.made)}

    def over(self, carried: dict[Node, Node] | None = None) -> Overwriting:
        reads: list[Collection[Node]] = [node.inputs for node in self.made]
        kept = set(self.graph.results)
        return overwriting(self.graph, self.made_by, reads, is_in_place, kept, carried or {})

    def run(self, over: Overwriting, random: Random) -> None:
        """In any order the edges allow; a reader finds what it reads, and results are there."""
        places = {node: self._place(node, over) for node in self.graph.nodes}
        holds = {place: place for place in places.values()}
        waits = {
            k: {self.made_by[value] for value in node.inputs if value in self.made_by}
            | over.after.get(k, set())
            for k, node in enumerate(self.made)
        }
        done: set[int] = set()
        while len(done) < len(self.made):
            ready = [k for k, before in waits.items() if k not in done and before <= done]
            assert ready, "works wait for one another"
            work = random.choice(ready)
            node = self.made[work]
            assert all(holds[places[value]] is value for value in node.inputs)
            old = over.takes.get(node)
            if old in node.inputs:
                assert is_in_place(node, old) or (
                    node.op == "update_slice" and node.inputs[0] is old
                )
            holds[places[node]] = node
            done.add(work)
        assert all(holds[places[node]] is node for node in self.graph.outputs)
        for state, value in self.graph.updates:
            if state not in over.broken:
                assert places[value] is state
                assert holds[state] is value

    def _place(self, node: Node, over: Overwriting) -> Node:
        """The value whose bytes it has."""
        while node in over.takes:
            node = over.takes[node]
        return node


def is_in_place(value: Node, state: Node) -> bool:
    return value.op == "add"


@pytest.mark.parametrize("seed", range(60))
def test_whatever_runs_first_every_reader_finds_the_value_it_means(seed: int) -> None:
    random = Random(seed)
    values: list[Node] = [X, *STATES]
    for _ in range(random.randint(2, 9)):
        value = random.choice(values)
        kind = random.randrange(4)
        if kind < 2:
            values.append(updated(value))
        elif kind == 2:
            values.append(add(value, random.choice(values)))
        else:
            values.append(turned(value))
    outputs = random.sample(values[3:], random.randint(0, 2))
    some = [node for node in values[3:] if node not in outputs]
    updates = [(state, random.choice(some)) for state in STATES if some and random.random() < 0.8]
    if len(updates) == 2 and updates[0][1] is updates[1][1]:
        updates.pop()
    works = Works(outputs, updates)
    over = works.over()
    for _ in range(4):
        works.run(over, random)


def test_rows_go_straight_to_the_state() -> None:
    first = updated(A)
    second = make("update_slice", first, ROWS, make("add", START, START), axis=0)
    over = Works([], [(A, second)]).over()
    assert over.takes == {first: A, second: first}
    assert not over.broken


def test_a_value_between_kernels_takes_rows_where_nobody_needs_it_later() -> None:
    old = add(X, X)
    new = updated(old)
    assert Works([turned(new)], []).over().takes == {new: old}
    assert Works([turned(new), old], []).over().takes == {}, "the old one is a result"
    assert Works([new], []).over().takes == {}, "the new one is"
    assert Works([turned(updated(X))], []).over().takes == {}, "an input is the caller's"
    assert Works([add(turned(new), turned(add(new, old)))], []).over().takes == {}, "needed later"
    assert Works([turned(updated(cut(X, COUNT)))], []).over().takes == {}, "it lies in another"


def test_a_loop_begins_in_the_bytes_of_its_first_values() -> None:
    def body(carried: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        one, other = carried
        return (one + x, other * one), one

    firsts = [add(X, X), turned(X)]
    made, rows = arenite.scan(body, tuple(map(Tensor.of_node, firsts)), Tensor.of_node(X))
    graph = Graph.of([*(one.node for one in made), rows.node])
    assert aliases_of(graph) == {first: [one.node] for first, one in zip(firsts, made, strict=True)}


def test_who_reads_the_old_value_comes_before() -> None:
    new, reader = updated(A), turned(A)
    works = Works([reader], [(A, new)])
    over = works.over()
    assert over.takes == {new: A}
    assert over.after[works.made_by[new]] == {works.made_by[reader]}


def test_who_reads_rows_of_the_old_value_comes_before_too() -> None:
    rows = cut(A, COUNT)
    new, reader = updated(A), turned(rows)
    works = Works([reader], [(A, new)])
    over = works.over()
    assert works.made_by[reader] in over.after[works.made_by[new]]


def test_a_state_is_written_over_in_place_alone() -> None:
    assert Works([], [(A, add(A, X))]).over().takes == {add(A, X): A}
    assert Works([], [(A, turned(A))]).over().broken == (A,)
    rows_of_itself = make("update_slice", B, A, START, axis=0)
    assert Works([], [(A, rows_of_itself)]).over().broken == (A,)


def test_where_each_needs_the_other_first_one_state_is_broken() -> None:
    over = Works([], [(A, turned(B)), (B, turned(A))]).over()
    assert over.broken == (B,)
    assert over.takes == {turned(B): A}


def test_a_carried_value_takes_rows_in_its_own_bytes() -> None:
    new = updated(X)
    assert Works([new], []).over({new: X}).takes == {new: X}
    assert Works([new, turned(X)], []).over({new: X}).takes == {new: X}
    assert Works([new, turned(add(new, X))], []).over({new: X}).takes == {}
    assert Works([new], []).over({new: B}).takes == {}
