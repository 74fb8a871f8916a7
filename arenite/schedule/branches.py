"""Branches: each `if` becomes a branch, with what only one of its sides needs inside that side.

    y = if(c, f(x), g(x)) + x          y = branch(c, x; then: f(x), otherwise: g(x)) + x

In: a graph. Out: an equal one without `if`, in which every body and every side of a branch hands
back values of its own. What both sides need, what the graph around needs, and what several branches
need is computed before. Ifs on one condition are one branch, unless one of them needs another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from arenite.errors import NotSupported
from arenite.ir import OPS, Graph, Node, Region, make, parameter
from arenite.ir.ops.control import loop_parts, regions_of
from arenite.ir.regions import rebuilt
from arenite.passes.constants import is_known
from arenite.schedule.roots import is_in_memory, is_made_up


def branches_of_ifs(graph: Graph) -> Graph:
    """The graph with branches; what it hands back is written by itself."""
    origins = graph.origins.subset(graph.everything)
    made = _with_branches(replace(graph, origins=origins), {}, 0)
    becoming = {value for _, value in made.updates}
    outputs = [
        copied(node) if _is_elsewhere(node) or node in becoming or _is_in_state(node) else node
        for node in made.outputs
    ]
    updates: list[tuple[Node, Node]] = []
    taken = set(outputs)
    for state, value in made.updates:
        if value is not state:
            if is_in_memory(value) or OPS[value.op].is_construct:
                value = copied(value)
            while value in taken:
                value = copied(value)
            taken.add(value)
            updates.append((state, value))
    return replace(made, outputs=tuple(outputs), updates=tuple(updates))


def _is_in_state(node: Node) -> bool:
    """Whether a value is a state, with rows written anew or not."""
    while OPS[node.op].overwrites:
        node = node.inputs[0]
    return node.op == "state"


def copied(node: Node) -> Node:
    return make("reshape", node, shape=node.shape)


def _is_elsewhere(node: Node) -> bool:
    """Whether a value lies in bytes of others: in those a loop left it in, or was cut from."""
    is_carried = node.op == "loop" and node.attr("index") < node.attr("carried")
    return is_carried or node.op == "cut"


#: Regions in regions; each level is a few calls in each other, here and where they are lowered.
MAX_DEPTH = 48


@dataclass(eq=False, slots=True)
class _Group:
    """Ifs that become one branch."""

    condition: Node
    members: list[Node] = field(default_factory=list)
    needs: set[int] = field(default_factory=set)  # other groups, by number


#: Where a node is computed: None for the graph itself, else (group, side).
_Side = tuple[int, bool] | None


def _with_branches(graph: Graph, regions: dict[Region, Region], depth: int) -> Graph:
    nodes = graph.nodes
    if depth > MAX_DEPTH:
        raise NotSupported(
            f"branches and loops stand in each other more than {MAX_DEPTH} deep; let one of them "
            "choose by a number instead, as with gather or where"
        )
    if not any(
        node.op == "if" or (OPS[node.op].is_construct and regions_of(node)) for node in nodes
    ):
        return graph
    # Which ifs there are outside of all others depends on what is placed in them, and the other way
    # round: first as if all of one condition went together, then with the groups that order allows.
    by_condition = {node: id(node.inputs[0]) for node in nodes if node.op == "if"}
    outside = [node for node, place in _places(graph, by_condition).items() if place is None]
    groups = _groups(graph, {node for node in outside if node.op == "if"})
    group_of = {node: k for k, group in enumerate(groups) for node in group.members}
    for node in nodes:
        if node.op == "if" and node not in group_of:
            group_of[node] = len(groups)
            groups.append(_Group(node.inputs[0], [node]))
    places = _places(graph, group_of)
    return _Rebuilding(graph, groups, group_of, places, regions, depth).graph()


def _places(graph: Graph, group_of: dict[Node, int]) -> dict[Node, _Side]:
    """Where each node is computed; users come first, so each is looked at once."""
    wanted: defaultdict[Node, set[_Side]] = defaultdict(set)
    for node in graph.results:
        wanted[node].add(None)
    places: dict[Node, _Side] = {}
    for node in reversed(graph.nodes):
        at = wanted[node]
        place = next(iter(at)) if len(at) == 1 else None
        places[node] = place
        sides = node.op == "if" and place is None
        for k, value in enumerate(node.inputs):
            wanted[value].add((group_of[node], k == 1) if sides and k else place)
        if OPS[node.op].is_packed and is_known(node.inputs[1]):
            wanted[node.inputs[1]].add(None)  # at load, and not in each run that comes here
    return places


def _groups(graph: Graph, ifs: set[Node]) -> list[_Group]:
    """Ifs on one condition together, where none of them waits for another, by whatever way."""
    groups: list[_Group] = []
    latest: dict[Node, int] = {}
    above: dict[Node, int] = {}  # groups a node depends on, one bit each
    for node in graph.nodes:
        bits = 0
        for value in node.inputs:
            bits |= above[value]
        if node in ifs:
            condition = node.inputs[0]
            needs = _with_theirs(bits, groups)
            k = latest.get(condition)
            if k is None or k in needs:
                k = latest[condition] = len(groups)
                groups.append(_Group(condition))
            groups[k].members.append(node)
            groups[k].needs |= needs
            bits |= 1 << k
        above[node] = bits
    return groups


def _with_theirs(bits: int, groups: Sequence[_Group]) -> set[int]:
    """Groups, and those that these need by now."""
    pending = [k for k in range(bits.bit_length()) if bits >> k & 1]
    found: set[int] = set()
    while pending:
        k = pending.pop()
        if k not in found:
            found.add(k)
            pending += groups[k].needs
    return found


@dataclass(slots=True, eq=False)
class _Rebuilding:
    """The graph made anew, node by node, each after what it needs."""

    old: Graph
    groups: Sequence[_Group]
    group_of: dict[Node, int]
    places: dict[Node, _Side]
    regions: dict[Region, Region]
    depth: int
    new: dict[Node, Node] = field(default_factory=dict)
    _captures: dict[int, tuple[Node, ...]] = field(default_factory=dict)

    def graph(self) -> Graph:
        new = self.new
        pending = [*reversed(self.old.results)]
        while pending:
            node = pending[-1]
            if node in new:
                pending.pop()
                continue
            is_if = node.op == "if"
            group = self.group_of[node] if is_if else 0
            needs = (node.inputs[0], *self._captured(group)) if is_if else node.inputs
            missing = [value for value in needs if value not in new]
            if missing:
                pending += reversed(missing)
                continue
            pending.pop()
            if is_if:
                self._make_branch(group)
            else:
                new[node] = self._made(node)
            self.old.origins.add(new[node], *self.old.origins.of(node))
        return self.old.mapped(new, self.old.origins)

    def _captured(self, group: int) -> tuple[Node, ...]:
        """What the sides of a branch read from outside."""
        if group not in self._captures:
            found: dict[Node, None] = {}
            for side in (True, False):
                for node in self._inside(group, side):
                    found |= dict.fromkeys(v for v in node.inputs if self._is_outside(v))
                for root in self._roots(group, side):
                    if self._is_outside(root):
                        found[root] = None
            self._captures[group] = tuple(found)
        return self._captures[group]

    def _roots(self, group: int, side: bool) -> list[Node]:
        return [node.inputs[1 if side else 2] for node in self.groups[group].members]

    def _is_outside(self, node: Node) -> bool:
        if is_made_up(node) or node.op == "constant":
            return False
        return self.places[node] is None or is_in_memory(node)

    def _inside(self, group: int, side: bool) -> list[Node]:
        """The nodes that a side computes."""
        pending = self._roots(group, side)
        found: dict[Node, None] = {}
        while pending:
            node = pending.pop()
            if node not in found and not self._is_outside(node):
                found[node] = None
                pending += node.inputs
        return list(found)

    def _make_branch(self, group: int) -> None:
        captures = self._captured(group)
        # Both sides have the same parameters, so either may leave some unused.
        given = {node: parameter(node.shape, node.dtype) for node in captures}
        sides = [self._side(group, side, given) for side in (True, False)]
        condition = self.new[self.groups[group].condition]
        inputs = (condition, *(self.new[node] for node in captures))
        for index, node in enumerate(self.groups[group].members):
            self.new[node] = make("branch", *inputs, then=sides[0], otherwise=sides[1], index=index)

    def _side(self, group: int, side: bool, given: dict[Node, Node]) -> Region:
        roots = self._roots(group, side)
        new = rebuilt(roots, given, self.old.origins)
        parameters = tuple(given.values())
        inner = Region(parameters, tuple(new[node] for node in roots))
        return self._own(_with_branches(self.old.of_region(inner), self.regions, self.depth + 1), 0)

    def _made(self, node: Node) -> Node:
        attrs = dict(node.attrs)
        if node.op == "loop":
            attrs["body"] = self._body(node)
        elif node.op == "branch":
            attrs |= {side: self._known_side(node.attr(side)) for side in ("then", "otherwise")}
        inputs = tuple(self.new[value] for value in node.inputs)
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        return node if same and attrs == dict(node.attrs) else make(node.op, *inputs, **attrs)

    def _body(self, node: Node) -> Region:
        body: Region = node.attr("body")
        if body not in self.regions:
            inner = _with_branches(self.old.of_region(body), self.regions, self.depth + 1)
            self.regions[body] = self._own(inner, 1, loop_parts(node).carried)
        return self.regions[body]

    def _known_side(self, region: Region) -> Region:
        if region not in self.regions:
            inner = _with_branches(self.old.of_region(region), self.regions, self.depth + 1)
            self.regions[region] = self._own(inner, 0)
        return self.regions[region]

    def _own(self, graph: Graph, n_read: int, carried: Sequence[Node] = ()) -> Region:
        """Results that are each a value of their own: what belongs to others is copied.

        The first `n_read` are only looked at, and carried values may stay what they are.
        """
        results: list[Node] = []
        for k, node in enumerate(graph.outputs):
            if k < n_read or (k - n_read < len(carried) and node is carried[k - n_read]):
                results.append(node)
                continue
            if is_in_memory(node) or _is_elsewhere(node):
                node = copied(node)
            while node in results[n_read:]:
                node = copied(node)
            results.append(node)
        return Region(graph.inputs, tuple(results))
