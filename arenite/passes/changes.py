"""What passes changed: nodes and ops before and after, and the printed forms compared.

In: a graph and the records of the passes it went through. Out: a `Change` for each, with the parts
of the text that differ. Nodes are numbered in the order they stand in, so one node more gives all
behind it other numbers: lines are compared without numbers, and then by what these stand for.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

from arenite.ir.graph import Graph
from arenite.ir.printer import INDENT
from arenite.passes.rewrite import Record
from arenite.records import NamedTuple

#: Lines that stay the same which are shown around others.
CONTEXT = 2
#: Lines of one pass that are kept; what is behind them is counted.
MAX_LINES = 400

_NUMBER = re.compile(r"%[0-9]+")
#: A number of a value, and the line from which on it counts.
_Value: TypeAlias = tuple[int, str]


class Line(NamedTuple):
    """A line of a printed graph that went ("-"), came ("+") or stayed (" ")."""

    sign: str
    text: str


class Hunk(NamedTuple):
    """Lines that stand together, and the numbers of the first of them before and after, from 1."""

    before: int
    after: int
    lines: tuple[Line, ...]


class _Named(NamedTuple):
    made: list[_Value]
    read: list[_Value]


class Change(NamedTuple):
    """What one pass did; without hunks it left the graph as it was."""

    name: str
    seconds: float
    n_nodes: int  # after it
    ops: Mapping[str, tuple[int, int]]  # how many of each, before and after, where that differs
    hunks: tuple[Hunk, ...]
    n_lines: int  # that came or went, in all; the hunks may have fewer

    def __str__(self) -> str:
        """As other tools print differences."""
        return "\n".join(
            line
            for hunk in self.hunks
            for line in (f"@@ -{hunk.before} +{hunk.after} @@", *map("".join, hunk.lines))
        )


def changes(graph: Graph, records: Iterable[Record], max_lines: int = MAX_LINES) -> list[Change]:
    """What each pass did to what the one before it left."""
    found = []
    for record in records:
        ops: dict[str, tuple[int, int]] = {}
        hunks: tuple[Hunk, ...] = ()
        n_lines = 0
        if record.graph is not graph:
            ops = _op_counts(graph, record.graph)
            hunks, n_lines = difference(str(graph), str(record.graph), max_lines)
        found.append(Change(record.name, record.seconds, len(record.graph), ops, hunks, n_lines))
        graph = record.graph
    return found


def _op_counts(before: Graph, after: Graph) -> dict[str, tuple[int, int]]:
    old, new = (Counter(node.op for node in one.everything) for one in (before, after))
    return {op: (old[op], new[op]) for op in sorted({*old, *new}) if old[op] != new[op]}


def difference(before: str, after: str, max_lines: int) -> tuple[tuple[Hunk, ...], int]:
    """The parts of two printed graphs that differ, and how many lines do."""
    old, new = before.splitlines(), after.splitlines()
    rows = list(_rows(old, new))
    n_changed = sum(line.sign != " " for _, _, line in rows)
    return tuple(_hunks(rows, max_lines)), n_changed


def _rows(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, Line]]:
    """All lines of both, with how many lines of each come before."""
    pairs = _pairs(old, new)
    is_same = _are_same(old, new, pairs)
    i = j = 0
    for (a, b), same in zip((*pairs, (len(old), len(new))), (*is_same, True), strict=True):
        for k in range(i, a):
            yield k, j, Line("-", old[k])
        for k in range(j, b):
            yield a, k, Line("+", new[k])
        if a < len(old):
            if same:
                yield a, b, Line(" ", new[b])
            else:
                yield a, b, Line("-", old[a])
                yield a + 1, b, Line("+", new[b])
        i, j = a + 1, b + 1


def _pairs(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that are alike but for numbers, one to one and in order. Lines that each side has once
    come first: between them there is little to compare, however large the graphs are."""
    before, after = ([_NUMBER.sub("%", line) for line in lines] for lines in (old, new))
    pairs: list[tuple[int, int]] = []
    i = j = 0
    for a, b in (*_anchors(before, after), (len(before), len(after))):
        pairs += [(i + x, j + y) for x, y in _alike(before[i:a], after[j:b])]
        if a < len(before):
            pairs.append((a, b))
        i, j = a + 1, b + 1
    return pairs


def _alike(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Equal lines, in order: all at both ends, and the most between them."""
    same = [x == y for x, y in zip(before, after, strict=False)]
    first = (*same, False).index(False)
    most = len(same) - first
    ends = [before[-1 - k] == after[-1 - k] for k in range(most)]
    last = (*ends, False).index(False)
    yield from ((k, k) for k in range(first))
    middle = before[first : len(before) - last], after[first : len(after) - last]
    for one in SequenceMatcher(None, *middle, autojunk=False).get_matching_blocks():
        yield from ((first + one.a + k, first + one.b + k) for k in range(one.size))
    yield from ((len(before) - k, len(after) - k) for k in range(last, 0, -1))


def _anchors(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """The most lines that both have once, in the order of both."""
    counts = [Counter(lines) for lines in (before, after)]
    place = {line: k for k, line in enumerate(after)}
    once = [
        (k, place[line])
        for k, line in enumerate(before)
        if all(count[line] == 1 for count in counts)
    ]
    tails: list[int] = []  # where the best rising sequence of each length ends,
    last: list[int] = []  # and with which pair
    link: list[int] = []  # the pair before each
    for k, (_, at) in enumerate(once):
        length = bisect_left(tails, at)
        link.append(last[length - 1] if length else -1)
        tails[length : length + 1], last[length : length + 1] = [at], [k]
    found = []
    k = last[-1] if last else -1
    while k >= 0:
        found.append(once[k])
        k = link[k]
    return found[::-1]


def _are_same(
    old: Sequence[str], new: Sequence[str], pairs: Sequence[tuple[int, int]]
) -> list[bool]:
    """Of lines that are alike, whether they name the same values: those that lines which are alike
    make, or what came for what went."""
    before, after = _values(old), _values(new)
    partner: dict[_Value, _Value] = {}
    for a, b in pairs:
        partner |= zip(before[a].made, after[b].made, strict=True)
    kept = {*partner.values()}
    return [
        all(
            partner[x] == y if x in partner else y not in kept
            for x, y in zip(before[a].read, after[b].read, strict=True)
        )
        for a, b in pairs
    ]


def _values(lines: Sequence[str]) -> list[_Named]:
    """What each line makes and reads. The head of a graph or a region makes what it names, others
    what they name first; the body of a region counts from its head on."""
    heads = [0]  # by depth
    found = []
    for k, line in enumerate(lines):
        text = line.lstrip(" ")
        depth = (len(line) - len(text)) // len(INDENT)
        is_head = k == 0 or text.startswith("@")
        if is_head:
            heads[depth:] = [k]
        named = [(heads[depth], number) for number in _NUMBER.findall(line)]
        n_made = len(named) if is_head else int(text.startswith("%"))
        found.append(_Named(named[:n_made], named[n_made:]))
    return found


def _hunks(rows: Sequence[tuple[int, int, Line]], max_lines: int) -> Iterator[Hunk]:
    """What changed with what is around it, up to so many lines."""
    shown = sorted(
        {
            near
            for k, (_, _, line) in enumerate(rows)
            if line.sign != " "
            for near in range(max(k - CONTEXT, 0), min(k + CONTEXT + 1, len(rows)))
        }
    )[:max_lines]
    first = 0
    for k in range(1, len(shown) + 1):
        if k == len(shown) or shown[k] != shown[k - 1] + 1:
            part = rows[shown[first] : shown[k - 1] + 1]
            yield Hunk(part[0][0] + 1, part[0][1] + 1, tuple(line for _, _, line in part))
            first = k
