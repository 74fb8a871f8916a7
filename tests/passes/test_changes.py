"""What passes changed, in lines: parts of both texts, the same but for numbers around them."""

from __future__ import annotations

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

import arenite
from arenite.ir.graph import Graph
from arenite.passes.changes import Change, Hunk, changes, difference


def without_numbers(lines: list[str]) -> list[str]:
    return [re.sub("%[0-9]+", "%", line) for line in lines]


def check(before: str, after: str, hunks: tuple[Hunk, ...], n_changed: int) -> None:
    """What a reader of the hunks takes for granted."""
    old, new = before.splitlines(), after.splitlines()
    i = j = counted = 0
    for hunk in hunks:
        # Between hunks nothing differs but numbers.
        assert hunk.before - 1 - i == hunk.after - 1 - j >= 0
        assert without_numbers(old[i : hunk.before - 1]) == without_numbers(new[j : hunk.after - 1])
        i, j = hunk.before - 1, hunk.after - 1
        for sign, text in hunk.lines:
            if sign == "-":
                assert text == old[i]
            else:
                assert text == new[j]
                if sign == " ":
                    assert without_numbers([text]) == without_numbers([old[i]])
            i, j = i + (sign != "+"), j + (sign != "-")
            counted += sign != " "
    assert without_numbers(old[i:]) == without_numbers(new[j:])
    assert counted == n_changed


lines = st.lists(st.sampled_from(["%1 = neg(%0)", "%2 = abs(%1)", "%3 = neg(%2)", "a", "b", "c"]))


@given(lines, lines)
def test_hunks_are_parts_of_both_texts(old: list[str], new: list[str]) -> None:
    before, after = "\n".join(["graph(%0)", *old]), "\n".join(["graph(%0)", *new])
    hunks, n_changed = difference(before, after, 10**6)
    check(before, after, hunks, n_changed)
    assert (n_changed == 0) == (before == after) or without_numbers(old) == without_numbers(new)


def test_other_numbers_are_no_change_and_other_values_are() -> None:
    before = "graph(%0: x, %1: y)\n%2 = neg(%0)\n%3 = exp(%2)\nreturn %3\n"
    longer = "graph(%0: x, %1: y)\n%2 = abs(%0)\n%3 = neg(%0)\n%4 = exp(%3)\nreturn %4\n"
    [hunk], n_changed = difference(before, longer, 100)
    assert [line for line in hunk.lines if line.sign != " "] == [("+", "%2 = abs(%0)")]
    assert n_changed == 1
    # What came in place of what went is read in its place.
    replaced = before.replace("neg", "abs")
    [hunk], n_changed = difference(before, replaced, 100)
    assert n_changed == 2
    # The same lines, of another value.
    [hunk], n_changed = difference(before, before.replace("neg(%0)", "neg(%1)"), 100)
    assert [line for line in hunk.lines if line.sign != " "] == [
        ("-", "%2 = neg(%0)"),
        ("+", "%2 = neg(%1)"),
    ]


def test_numbers_of_a_body_are_its_own() -> None:
    before = (
        "graph(%0: x)\n%1 = loop(%0, body=@0)\n    @0(%0: i, %1: s)\n    %2 = neg(%1)\n"
        "    return %2\n%2 = exp(%1)\nreturn %2\n"
    )
    [hunk], n_changed = difference(before, before.replace("neg(%1)", "neg(%0)"), 100)
    assert n_changed == 2
    assert ("+", "    %2 = neg(%0)") in hunk.lines


def program(x: arenite.Tensor, w: arenite.Tensor) -> arenite.Tensor:
    x = arenite.fori_loop(3, lambda i, s: (s @ w).softmax(-1) + x, x / 1.0)
    return (x - x.mean(-1, keepdims=True)).exp() * 1.0 + 0.0


def test_the_passes_of_a_program_are_told_line_by_line() -> None:
    with arenite.compile(program, arenite.spec((8, 8)), arenite.spec((8, 8))) as compiled:
        [executable] = compiled.executables
        graph: Graph = executable.graph
        found: list[Change] = changes(graph, executable.passes)
        assert [one.name for one in found] == [record.name for record in executable.passes]
        for record, change in zip(executable.passes, found, strict=True):
            check(str(graph), str(record.graph), change.hunks, change.n_lines)
            old, new = (
                Counter(node.op for node in one.everything) for one in (graph, record.graph)
            )
            assert change.ops == {op: (old[op], new[op]) for op in old | new if old[op] != new[op]}
            assert change.n_nodes == len(record.graph)
            graph = record.graph
        assert any(change.hunks for change in found)
        assert all(
            line in str(one) for one in found for hunk in one.hunks for _, line in hunk.lines
        )
        # Of many lines the first are kept, and all are counted.
        longest = max(found, key=lambda one: one.n_lines)
        few = {one.name: one for one in changes(executable.graph, executable.passes, 5)}
        assert sum(len(hunk.lines) for hunk in few[longest.name].hunks) == 5
        assert few[longest.name].n_lines == longest.n_lines > 5


def test_one_line_more_in_a_large_graph_is_one_line_that_came() -> None:
    def text(numbers: list[int]) -> str:
        made = [f"%{k} = add(%{max(j, 0)}) : float32[8]" for j, k in enumerate(numbers)]
        return "\n".join(["graph(%0: x)", *made])

    n = 3000
    before = text(list(range(1, n)))
    rows = before.splitlines()
    renumbered = [
        re.sub("%([0-9]+)", lambda found: f"%{int(found[1]) + (int(found[1]) > 1500)}", row)
        for row in rows[1501:]
    ]
    after = "\n".join([*rows[:1501], "%1501 = neg(%7) : float32[8]", *renumbered])
    [hunk], n_changed = difference(before, after, 100)
    assert [line for line in hunk.lines if line.sign != " "] == [
        ("+", "%1501 = neg(%7) : float32[8]")
    ]
    assert n_changed == 1
