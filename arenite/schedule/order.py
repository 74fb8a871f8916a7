"""In which order drafts run: producers first, and soon what makes less than it lets go of.

    a ── b ── c ── ... ── z        r reads a alone and is smaller: it runs right behind the others
     └───── r ────────────┘        that read a, while that is near, and a's bytes are free

In: drafts, who makes a node, and who else comes before whom. Out: the drafts, each once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from arenite.ir import OPS, Node, bounds, product
from arenite.schedule.draft import Draft

#: Where a draft stands: its number, or that of one it stands behind and how many are before it.
Rank: TypeAlias = tuple[int, ...]


def in_order(
    drafts: Iterable[Draft],
    by_node: Mapping[Node, Draft],
    after: Mapping[int, Sequence[Draft]],
    kept: Collection[Node],
) -> list[Draft]:
    """`after`: whom a draft (by its id) comes behind beside its producers; `kept`: nodes whose
    bytes are never free."""
    return _sooner(_producers_first(drafts, by_node, after), by_node, after, kept)


def _producers_first(
    drafts: Iterable[Draft], by_node: Mapping[Node, Draft], after: Mapping[int, Sequence[Draft]]
) -> list[Draft]:
    """Iterative, depth first from the last."""
    done: dict[int, Draft] = {}
    for last in drafts:
        pending: list[tuple[Draft, bool]] = [(last, False)]
        while pending:
            draft, is_ready = pending.pop()
            if id(draft) in done:
                continue
            if is_ready:
                done[id(draft)] = draft
                continue
            pending.append((draft, True))
            for read in draft.reads:
                if read in by_node and id(by_node[read].final()) not in done:
                    pending.append((by_node[read].final(), False))
            pending += [(one, False) for one in after.get(id(draft), ()) if id(one) not in done]
    return list(done.values())


def _sooner(
    drafts: Sequence[Draft],
    by_node: Mapping[Node, Draft],
    after: Mapping[int, Sequence[Draft]],
    kept: Collection[Node],
) -> list[Draft]:
    """Drafts that are the last to read more than they make come right behind what they wait for,
    those that prepare constants for them just before."""
    readers: dict[Node, list[Draft]] = {}
    for draft in drafts:
        for read in draft.reads:
            readers.setdefault(read, []).append(draft)
    # A draft that comes sooner stands behind another one: its place begins with that one's.
    places: dict[int, Rank] = {}
    n_behind: Counter[Rank] = Counter()
    prepared: dict[int, list[Draft]] = {}  # of constants alone: whose results these read
    for number, draft in enumerate(drafts):
        makers = [by_node[read].final() for read in draft.reads if read in by_node]
        ready = [one for one in makers if id(one) in prepared]
        if all(read in by_node or OPS[read.op].storage == "constant" for read in draft.reads) and (
            len(ready) == len(makers) and id(draft) not in after
        ):
            prepared[id(draft)] = ready
        places[id(draft)] = (number,)
        freed = [
            read
            for read in draft.reads
            if read in by_node and read not in kept and readers[read][-1] is draft
        ]
        waits = [one for one in makers if id(one) not in prepared]
        waits += after.get(id(draft), ())
        if not waits or draft.is_opaque or _nbytes(freed) <= _nbytes(_results(draft, readers)):
            continue
        waits += [one for read in freed for one in readers[read][:-1]]
        last = max(places[id(one)] for one in waits)
        for one in (*_behind(last, ready, prepared, places), draft):
            last = _next_place(last, n_behind)
            places[id(one)] = last
    return sorted(drafts, key=lambda draft: places[id(draft)])


def _next_place(place: Rank, n_behind: Counter[Rank]) -> Rank:
    """A place behind one and all that stand behind it; beside it where it is the last there."""
    *before, number = place
    beside = tuple(before)
    if before and n_behind[beside] == number and not n_behind[place]:
        place = beside
    n_behind[place] += 1
    return (*place, n_behind[place])


def _behind(
    place: Rank,
    drafts: Sequence[Draft],
    makers: Mapping[int, Sequence[Draft]],
    places: Mapping[int, Rank],
) -> list[Draft]:
    """Of drafts and those that make what they read, the ones behind a place, in their order."""
    found: dict[int, Draft] = {}
    pending = list(drafts)
    while pending:
        draft = pending.pop()
        if id(draft) not in found and places[id(draft)] > place:
            found[id(draft)] = draft
            pending += makers[id(draft)]
    return sorted(found.values(), key=lambda draft: places[id(draft)])


def _results(draft: Draft, readers: Mapping[Node, Sequence[Draft]]) -> list[Node]:
    """What a draft leaves for others; its last stage is for somebody."""
    made = [stage.node for stage in draft.stages]
    return [node for node in made if node in readers or node is made[-1]]


def _nbytes(nodes: Iterable[Node]) -> int:
    return sum(-(-bounds(product(one.shape))[1] * one.dtype.bits // 8) for one in nodes)
