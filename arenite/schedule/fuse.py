"""Fusion: a graph becomes kernels, with a reason for every border between two of them.

Each root, a node that is written to memory, begins as a kernel of its own, with what is inlined
into it. Then kernels are joined where a consumer reads a producer's values at the very point of
the space at which they are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count

from arenite.ir import OPS, Graph, Node, bounds
from arenite.ir.dim import found_in
from arenite.ir.graph import everything, found_sizes
from arenite.ir.ops.access import (
    Index,
    Source,
    is_elementwise,
    is_view,
    reduction_of,
    sources,
    space_vars,
)
from arenite.ir.ops.control import loop_parts, regions_of, trip_size
from arenite.schedule.branches import branches_of_ifs, copied
from arenite.schedule.constructs import construct
from arenite.schedule.draft import Draft, Fit, Reads, fit_of, in_place_of
from arenite.schedule.kernel import Kernel, Role, Schedule, Stage, Step
from arenite.schedule.order import in_order
from arenite.schedule.overwrite import Overwriting, aliases_of, overwriting
from arenite.schedule.parts import parts_of
from arenite.schedule.roots import choose_roots, computed_by, is_in_memory


def fuse(graph: Graph) -> Schedule:
    """The kernels of a graph, in order, with those of its bodies and branches in their places."""
    given = (*graph.inputs, *graph.constants, *graph.states)
    nbytes = sum(bounds(node.nbytes)[1] for node in given)
    return _fused(branches_of_ifs(graph), count(), nbytes)


def _fused(
    graph: Graph,
    numbers: Iterator[int],
    given_nbytes: int,
    carried: Mapping[Node, Node] | None = None,
) -> Schedule:
    """`given_nbytes` is for all kernels. `carried`: the values of a loop whose body this is that
    may be written over, by what follows on them."""
    last: dict[Node, Node] = {}
    while True:
        kept = {copy.inputs[0] for copy in last.values()}
        drafts = _Drafts(graph, choose_roots(graph, kept), last)
        drafts.join_all()
        over = drafts.overwriting(carried or {})
        if not over.broken:
            break
        assert last.keys().isdisjoint(over.broken), "a copy that nobody reads can come last"
        taken = {value for _, value in graph.updates}
        for state, value in graph.updates:
            if state in over.broken:
                last[state] = copied(value)
                while last[state] in taken:
                    last[state] = copied(last[state])
                taken.add(last[state])
        graph = _with_copies(graph, last)
    steps = drafts.finished(numbers, given_nbytes, over)
    return Schedule(tuple(steps), graph.inputs, graph.outputs, graph.states, graph.updates)


def _with_copies(graph: Graph, copies: Mapping[Node, Node]) -> Graph:
    """These states become copies of their values, which nobody reads, so that they come last."""
    # An output that was a copy for the sake of the state can be the value itself now.
    value_of = {copy: copy.inputs[0] for copy in copies.values()}
    outputs = tuple(value_of.get(node, node) for node in graph.outputs)
    updates = tuple((state, copies.get(state, value)) for state, value in graph.updates)
    return replace(graph, outputs=outputs, updates=updates)


class _Drafts:
    """All drafts of a graph, joined step by step."""

    def __init__(
        self, graph: Graph, roots: dict[Node, str], last: Mapping[Node, Node] | None = None
    ) -> None:
        """`last` are copies that states become, behind all who read the states."""
        self.graph = graph
        self.last = set((last or {}).values())
        self.roots = roots
        self.users = graph.users()
        self.position = {node: k for k, node in enumerate(graph.nodes)}
        # Where several cuts have one size, the first of them finds it.
        self.cuts = {node.attr("size"): node for node in reversed(graph.nodes) if node.op == "cut"}
        self.becomes = {value: state for state, value in graph.updates}
        self._in_states = aliases_of(graph) if graph.updates else {}
        self.by_node: dict[Node, Draft] = {}
        self.works: list[Draft] = []  # the drafts that are left, once all are joined
        constructs: dict[object, Draft] = {}
        for node in roots:
            if OPS[node.op].is_construct:
                # Results that differ in the index alone are of one construct.
                key = (node.op, node.inputs, *(a for a in node.attrs if a[0] != "index"))
                draft = constructs.get(key)
                if draft is None:
                    draft = constructs[key] = self._draft(node)
                else:
                    draft.stages.append(Stage(node, Role.ROW))
                self.by_node[node] = draft
            else:
                self.by_node[node] = self._draft(node)

    def _draft(self, node: Node) -> Draft:
        reduction = reduction_of(node)
        if reduction is not None:
            n_ops = 2 if OPS[node.op].is_contraction else 1  # multiply and add
            draft = Draft(reduction.space, reduction.axes, [Stage(node, Role.REDUCE)], n_ops, {})
            pending = list(reduction.factors(space_vars(reduction.space)))
        else:
            made = computed_by(node, self.roots)
            op = OPS[made.op]
            space, n_ops = node.shape, op.cost
            if op.work is not None:
                space, n_ops = op.work(made)
            elif is_elementwise(node) or is_view(node):
                n_ops = 0  # counted with what is inlined
            draft = Draft(space, (), [Stage(node, Role.ROW)], n_ops, {})
            pending = self._needed(node, space_vars(node.shape), draft)
        seen: set[tuple[Node, Index]] = set()
        while pending:
            source = pending.pop()
            if is_in_memory(source.node) or source.node in self.roots:
                indices = draft.reads.setdefault(source.node, set())
                if indices is not None:
                    indices.add(source.index)
            elif (source.node, source.index) not in seen:
                seen.add((source.node, source.index))
                pending += self._needed(source.node, source.index, draft)
        if self.cuts:
            self._wait_for_sizes(draft, [node, *(inlined for inlined, _ in seen)])
        return draft

    def _wait_for_sizes(self, draft: Draft, nodes: list[Node]) -> None:
        """A kernel begins when its sizes are found: it reads what they are found with, if no value
        of that size."""
        inside = [value for node in nodes for value in everything(_region_ends(node))]
        sizes = {size for node in (*nodes, *inside) for size in found_sizes(node)}
        sizes |= {size for dim in draft.space for size in found_in(dim)}
        for node in (*draft.reads, nodes[0]):
            if node.op == "cut" or node is not nodes[0]:
                sizes -= {size for dim in node.shape for size in found_in(dim)}
        for size in sorted(sizes, key=lambda size: size.name):
            if size in self.cuts:
                draft.reads.setdefault(self.cuts[size], set())

    def _needed(self, node: Node, index: Index, draft: Draft) -> list[Source]:
        """The elements that one element of an inlined node is made of."""
        if is_elementwise(node) or is_view(node):
            draft.n_ops += 0 if is_view(node) else 1
            found = list(sources(node, index))
            draft.n_pieces += sum(1 for source in found if source.guards)
            return found
        op, computed = OPS[node.op], []
        for k, value in enumerate(loop_parts(node).read if node.op == "loop" else node.inputs):
            if k == op.computes:
                computed.append(Source(value, space_vars(value.shape)))
            else:
                draft.reads[self._behind_views(value) if op.reads_views else value] = None
        return computed

    def _behind_views(self, node: Node) -> Node:
        """The value in memory that views show."""
        while node not in self.roots and not is_in_memory(node):
            [source] = sources(node, space_vars(node.shape))
            node = source.node
        return node

    def join_all(self) -> None:
        for node in self.roots:
            consumer = self.by_node[node].final()
            while True:
                producers = dict.fromkeys(
                    self.by_node[read].final()
                    for read in reversed(consumer.reads)
                    if read in self.by_node
                )
                producers.pop(consumer, None)
                for producer in producers:
                    if self._join(producer, consumer):
                        break
                else:
                    break

    def _join(self, producer: Draft, consumer: Draft) -> bool:
        """Join two drafts where that is possible; the consumer is what stays."""
        fit = fit_of(producer, consumer)
        if fit is None or self._path_outside(producer, consumer):
            return False
        if self.becomes and self._spoils_state(producer, fit):
            return False
        if any(stage.node in self.last for stage in consumer.stages):
            return False
        consumer.space, consumer.axes, consumer.stages = fit.space, fit.axes, fit.stages
        if fit.is_epilogue:
            consumer.n_outer_ops += consumer.n_ops
            consumer.n_ops = 0
        consumer.n_ops += producer.n_ops
        consumer.n_outer_ops += producer.n_outer_ops
        consumer.n_pieces += producer.n_pieces
        made = {stage.node for stage in fit.stages}
        reads: Reads = {}
        for some in (producer.reads, fit.consumer_reads):
            for read, indices in some.items():
                if read not in made:
                    reads.setdefault(read, set())
                    known = reads[read]
                    assert known is not None
                    assert indices is not None
                    known |= indices
        consumer.reads = reads
        producer.joined_into = consumer
        return True

    def _spoils_state(self, producer: Draft, fit: Fit) -> bool:
        """Whether the two together would write to a state that they still read elsewhere."""
        read = {**producer.reads, **fit.consumer_reads}
        for stage in fit.stages:
            state = self.becomes.get(stage.node)
            if state is None:
                continue
            if any(alias in read for alias in self._in_states.get(state, ())):
                return True
            places = [some[state] for some in (producer.reads, fit.consumer_reads) if state in some]
            is_map = not fit.axes and all(one.role is Role.ROW for one in fit.stages)
            if places and not (is_map and all(at == {space_vars(fit.space)} for at in places)):
                return True
        return False

    def overwriting(self, carried: Mapping[Node, Node]) -> Overwriting:
        """Which values are written over others."""
        needed = self._needed_works()
        drafts = dict.fromkeys(draft.final() for draft in self.by_node.values())
        self.works = [draft for draft in drafts if draft in needed]
        numbers = {id(draft): k for k, draft in enumerate(self.works)}
        made_by = {
            node: numbers[id(draft.final())]
            for node, draft in self.by_node.items()
            if draft.final() in needed
        }

        def is_in_place(value: Node, state: Node) -> bool:
            draft = self.by_node[value].final()
            here = {space_vars(draft.space)}
            return draft.is_map and draft.reads.get(state) == here and draft.space == state.shape

        reads = [draft.reads for draft in self.works]
        kept = {*self.graph.results, *(copy.inputs[0] for copy in self.last)}
        return overwriting(self.graph, made_by, reads, is_in_place, kept, carried)

    def _needed_works(self) -> set[Draft]:
        """The drafts whose values are read in the end; of some values only the size is asked."""
        found: set[Draft] = set()
        pending: list[Node] = [*self.graph.results]
        while pending:
            node = pending.pop()
            if node in self.by_node and self.by_node[node].final() not in found:
                draft = self.by_node[node].final()
                found.add(draft)
                pending += draft.reads
        return found

    def _path_outside(self, producer: Draft, consumer: Draft) -> bool:
        """Whether some third kernel lies between the two, so that joining would close a circle."""
        last = max(self.position[stage.node] for stage in consumer.stages)
        pending = [
            draft
            for stage in producer.stages
            for draft in self._consumers(stage.node, last)
            if draft is not consumer and draft is not producer
        ]
        seen: set[int] = set()
        while pending:
            draft = pending.pop()
            if draft is consumer:
                return True
            if id(draft) in seen:
                continue
            seen.add(id(draft))
            for stage in draft.stages:
                pending += self._consumers(stage.node, last)
        return False

    def _consumers(self, node: Node, last: int) -> Iterable[Draft]:
        """Kernels that read a root, through whatever is inlined between, up to a position."""
        found: dict[Draft, None] = {}
        pending = list(self.users[node])
        seen: set[Node] = set()
        while pending:
            user = pending.pop()
            if user in seen or self.position[user] > last:
                continue
            seen.add(user)
            if user in self.by_node:
                found[self.by_node[user].final()] = None
            else:
                pending += self.users[user]
        return found

    def finished(self, numbers: Iterator[int], given_nbytes: int, over: Overwriting) -> list[Step]:
        outputs = set(self.graph.results)
        readers: dict[Node, list[Draft]] = {}
        for draft in self.works:
            for read in draft.reads:
                if read in self.by_node:
                    readers.setdefault(read, []).append(draft)
        after = {
            id(self.works[k]): [self.works[before] for before in sorted(befores)]
            for k, befores in over.after.items()
        }
        shared = {*self.graph.states, *over.takes}
        steps: list[Step] = []
        for draft in in_order(self.works, self.by_node, after, outputs):
            made = [stage.node for stage in draft.stages]
            if draft.is_construct:
                inside = partial(_fused, numbers=numbers, given_nbytes=given_nbytes)
                steps.append(construct(self.graph, made, inside, numbers))
                continue
            stored = [
                node
                for node in made
                if node in outputs or any(one is not draft for one in readers.get(node, ()))
            ]
            inlined = _inlined(made, self.by_node)
            number = next(numbers)
            overwrites = tuple(
                (node, node.inputs[0])
                for node in stored
                if OPS[node.op].overwrites and over.takes.get(node) is node.inputs[0]
            )
            inputs = tuple(sorted(draft.reads, key=self.position.__getitem__))
            steps.append(
                Kernel(
                    name=_name(made, inlined, number),
                    space=overwrites[0][0].inputs[1].shape if overwrites else draft.space,
                    axes=draft.axes,
                    stages=tuple(draft.stages),
                    inputs=inputs,
                    outputs=tuple(stored),
                    n_ops=draft.n_ops,
                    n_outer_ops=draft.n_outer_ops,
                    map_cost=_cost(inlined) if draft.is_map else 0,
                    border=self.roots[made[-1]],
                    origins=tuple(
                        dict.fromkeys(o for n in inlined for o in self.graph.origins.of(n))
                    ),
                    number=number,
                    in_place=(*in_place_of(draft, stored), *overwrites),
                    overwrites=overwrites,
                    parts=tuple(parts_of(draft.reads, inputs, stored, overwrites, shared)),
                    given_nbytes=given_nbytes,
                )
            )
        return steps


def _region_ends(node: Node) -> list[Node]:
    """What a construct has inside, and the trip count it does not read. What it reads waits for
    its own sizes: all that lies behind that is not looked through."""
    if not OPS[node.op].is_construct:
        return []
    size = [loop_parts(node).trips] if node.op == "loop" else []
    trips = [one for one in size if trip_size(one) is not None]
    return [*trips, *(one for region in regions_of(node) for one in region.results)]


def _inlined(made: list[Node], by_node: dict[Node, Draft]) -> list[Node]:
    """The nodes computed in a kernel, inputs first."""
    found: dict[Node, None] = {}
    pending = list(made)
    while pending:
        node = pending.pop()
        if node in found:
            continue
        found[node] = None
        pending += [v for v in node.inputs if v not in by_node and not is_in_memory(v)]
    return list(reversed(found))


def _cost(inlined: list[Node]) -> int:
    """What all of these nodes cost for one element, counted in additions."""
    return sum(OPS[node.op].cost for node in inlined if is_elementwise(node))


def _name(made: list[Node], inlined: list[Node], number: int) -> str:
    """Names of the most telling ops, with the number that makes them unique."""
    ops = dict.fromkeys(node.op for node in made)
    if len(ops) < 4:
        ops |= dict.fromkeys(node.op for node in inlined if not is_view(node))
    return "_".join([*list(ops)[:4], str(number)])
