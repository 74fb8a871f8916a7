"""Overwriting: values that are written where another one lies, and who comes before whom for that.

In: a graph, the pieces of work that make its values, and what each of them reads. Out: which value
takes the bytes of which, and the edges that keep it right: who reads the old value comes before the
one that writes the new one.

    new = update_slice(old, rows, start)    writes the rows alone, where nobody needs `old` later
    loop that carries old, then new         the same, where the loop begins with a value of its own
    state becomes value                     written where the state lies; where a reader of the
                                            state needs the value first, through a copy at the end
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from arenite.ir import OPS, Graph, Node


@dataclass(frozen=True, slots=True)
class Overwriting:
    """`takes`: the value that a value is written over; `after`: works that a work comes behind."""

    takes: dict[Node, Node] = field(default_factory=dict)
    after: dict[int, set[int]] = field(default_factory=dict)
    broken: tuple[Node, ...] = ()  # states that become a value which cannot be written over them


def overwriting(
    graph: Graph,
    made_by: Mapping[Node, int],
    reads: Sequence[Collection[Node]],
    is_in_place: Callable[[Node, Node], bool],
    kept: Collection[Node],
    carried: Mapping[Node, Node],
) -> Overwriting:
    """`made_by` is the number of the work that makes a value, `reads` what each work reads, `kept`
    are values that nothing may be written over, `carried` the values of a loop that may be, by what
    follows on them.

    `is_in_place(value, state)`: whether the work that makes the value reads each element of the
    state only where it writes that of the value.
    """
    if not graph.updates and not any(OPS[node.op].overwrites for node in graph.nodes):
        return Overwriting()
    return _Search(graph, made_by, reads, is_in_place).run(kept, carried)


def aliases_of(graph: Graph) -> dict[Node, list[Node]]:
    """For each value those that may lie in its bytes: rows cut from it, what loops begin with."""
    found: defaultdict[Node, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op == "cut":
            found[node.inputs[0]].append(node)
        elif node.op == "loop" and node.attr("index") < node.attr("carried"):
            found[node.inputs[2 + node.attr("index")]].append(node)
    return found


class _Search:
    def __init__(
        self,
        graph: Graph,
        made_by: Mapping[Node, int],
        reads: Sequence[Collection[Node]],
        is_in_place: Callable[[Node, Node], bool],
    ) -> None:
        self.graph = graph
        self.made_by = made_by
        self.reads = reads
        self.is_in_place = is_in_place
        self.takes: dict[Node, Node] = {}
        self.after: defaultdict[int, set[int]] = defaultdict(set)
        self._aliases = aliases_of(graph)
        self._readers: defaultdict[Node, list[int]] = defaultdict(list)
        for work, read in enumerate(reads):
            for node in read:
                self._readers[node].append(work)

    def run(self, kept: Collection[Node], carried: Mapping[Node, Node]) -> Overwriting:
        results, outputs = set(self.graph.results), set(self.graph.outputs)
        leads_to = self._chains()
        owner: dict[Node, Node] = {}  # of each value that takes over: whose bytes it has
        for node in self.graph.nodes:
            if not OPS[node.op].overwrites or node not in self.made_by:
                continue
            old = node.inputs[0]
            if node in outputs:
                if carried.get(node) is old:
                    self._take(node, old)
                continue
            if owner.get(old, old).op == "state":
                # The bytes of a state are written only on the way to what it becomes.
                may_take = leads_to.get(node) is owner.get(old, old)
            else:
                is_made = old in self.made_by and not OPS[old.op].is_construct
                may_take = is_made and node not in results
            if may_take and old not in kept and self._take(node, old):
                owner[node] = owner.get(old, old)
        broken = [
            state
            for state, value in self.graph.updates
            if owner.get(value) is not state and not self._take(value, state)
        ]
        return Overwriting(self.takes, dict(self.after), tuple(broken))

    def _chains(self) -> dict[Node, Node]:
        """The state that each of the updates one after another leads to."""
        found: dict[Node, Node] = {}
        for state, value in self.graph.updates:
            chain = []
            while OPS[value.op].overwrites:
                chain.append(value)
                value = value.inputs[0]
            if value is state:
                found |= dict.fromkeys(chain, state)
        return found

    def _take(self, new: Node, old: Node) -> bool:
        """Write `new` over `old`, if everybody else who reads `old` can come before."""
        writer = self.made_by[new]
        readers = self._all_readers(old)
        is_update = OPS[new.op].overwrites and new.inputs[0] is old
        if writer in readers and not is_update and not self.is_in_place(new, old):
            return False
        readers.discard(writer)
        if self._depend(readers, writer):
            return False
        self.after[writer] |= readers
        self.takes[new] = old
        return True

    def _all_readers(self, node: Node) -> set[int]:
        found: set[int] = set()
        pending, seen = [node], {node}
        while pending:
            one = pending.pop()
            found.update(self._readers[one])
            new = [alias for alias in self._aliases.get(one, ()) if alias not in seen]
            seen.update(new)
            pending += new
        return found

    def _depend(self, works: set[int], on: int) -> bool:
        """Whether one of the works comes after another, by whatever way."""
        # What that one waits for cannot wait for it.
        seen = self._before(on)
        pending = works - seen
        seen |= works
        while pending:
            current = pending.pop()
            if current == on:
                return True
            new = self._before(current) - seen
            seen |= new
            pending |= new
        return False

    def _before(self, work: int) -> set[int]:
        """What a work waits for, at first hand."""
        made = {self.made_by[node] for node in self.reads[work] if node in self.made_by}
        return made | self.after.get(work, set())
