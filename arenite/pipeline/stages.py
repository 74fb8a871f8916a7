"""A graph that native code must leave is cut into stages: a segment, then what ends it.

    stage 0   segment: native code       calls: a size is read, a loop grows, structure is known
    stage 1   segment over the results   ...

In: a graph with ops that no plan can be made for beforehand (`ir/ops/unbounded.py`), in regions
too. Out: a StagedGraph. What a segment makes is handed on as arrays; what takes nothing to make up
again (constants, numbers, views) is made up where it is read.

A mixed program has ops that its device refuses. Stages then take turns: even ones are the device's,
odd ones the CPU's, and a node is made in the first of its kind behind what it reads. Branches and
loops are called between segments, so that their bodies are mixed too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from arenite.ir import OPS, Dim, Graph, Node, Origins, Region
from arenite.ir.dim import Found, found_in
from arenite.ir.graph import everything, found_sizes
from arenite.ir.ops.control import regions_of
from arenite.ir.ops.unbounded import CUTTING, sizes_made
from arenite.ir.size_substitution import needs, sized_order
from arenite.pipeline.growth import Growth, growing_axes
from arenite.schedule import branches_of_ifs


def _is_given(node: Node) -> bool:
    """Whether a frame is given it."""
    return OPS[node.op].storage == "given"


def _is_made_here(node: Node) -> bool:
    """Whether every segment that reads it makes it: a constant, what takes no memory, a view."""
    op = OPS[node.op]
    is_shown = op.is_free or node.op == "permute"
    return op.storage in ("constant", "made up") or is_shown or node.op == "arange"


@dataclass(frozen=True, slots=True)
class FoundSize:
    """A size that a segment finds: the least of some counts, and no more than there are rows."""

    size: Found
    counts: tuple[Node, ...]
    rows: Dim


@dataclass(eq=False, slots=True)
class Segment:
    """Native code between two cuts: `outputs` of `inputs`, and sizes it finds that others need.
    `on_host`: made by the CPU, whatever device the program is for."""

    number: int
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    found: tuple[FoundSize, ...]
    origins: Origins
    on_host: bool = False


AnySegment: TypeAlias = Segment | Growth


@dataclass(eq=False, slots=True)
class Call:
    """What ends a segment: nodes that differ in their index alone, with the frames of bodies."""

    nodes: tuple[Node, ...]
    frames: tuple[StagedGraph, ...]
    growth: Growth | None = None  # the loop, where native code can run it, and there is no frame

    @property
    def node(self) -> Node:
        return self.nodes[0]


@dataclass(eq=False, slots=True)
class Stage:
    """A segment, if there is native work, the calls behind it, and the values nobody needs then."""

    segment: Segment | None
    calls: tuple[Call, ...]
    dropped: tuple[Node, ...] = ()


@dataclass(eq=False, slots=True)
class StagedGraph:
    """A graph, a body or a branch, in stages."""

    inputs: tuple[Node, ...]
    results: tuple[Node, ...]
    stages: tuple[Stage, ...]

    @property
    def calls(self) -> list[Call]:
        """Those of bodies too."""
        own = [call for stage in self.stages for call in stage.calls]
        return own + [one for call in own for frame in call.frames for one in frame.calls]

    @property
    def segments(self) -> list[AnySegment]:
        """Those of bodies too."""
        found: list[AnySegment] = []
        for stage in self.stages:
            found += [stage.segment] if stage.segment is not None else []
            for call in stage.calls:
                found += [call.growth] if call.growth is not None else []
                found += [one for frame in call.frames for one in frame.segments]
        return found


class Staging:
    """Makes frames; segments are numbered through all of them. Of a mixed program it is given what
    tells the nodes that run on the CPU."""

    def __init__(self, on_host: Callable[[Node], bool] | None = None) -> None:
        self._n_segments = 0
        self._is_cut: dict[Region, bool] = {}
        self.on_host = on_host

    def frame(self, graph: Graph) -> StagedGraph:
        """The stages of a graph; its states are inputs, what they become are results."""
        if any(node.op == "if" for node in graph.nodes):
            graph = branches_of_ifs(graph)
        return _Stages(self, graph).frame()

    def is_called(self, node: Node) -> bool:
        """Whether native code returns for a node."""
        return node.op in CUTTING - {"arange"} or any(map(self._cuts, regions_of(node)))

    def _cuts(self, region: Region) -> bool:
        if region not in self._is_cut:
            inside = everything((*region.parameters, *region.results))
            is_cut = any(node.op in CUTTING for node in inside)
            self._is_cut[region] = is_cut or any(map(self._is_on_device, inside))
        return self._is_cut[region]

    def _is_on_device(self, node: Node) -> bool:
        """Whether a node of a body is worth it that the host runs the loop around it."""
        if self.on_host is None or _is_given(node) or _is_made_here(node):
            return False
        return not self.on_host(node)

    def next_number(self) -> int:
        self._n_segments += 1
        return self._n_segments - 1


@dataclass(eq=False, slots=True)
class _Wanted:
    """What a stage is to hand on."""

    outputs: dict[Node, None] = field(default_factory=dict)
    found: dict[str, FoundSize] = field(default_factory=dict)  # sizes that others need
    inputs: dict[Node, None] = field(default_factory=dict)  # what its segment reads
    calls: list[Call] = field(default_factory=list)


class _Stages:
    def __init__(self, staging: Staging, graph: Graph) -> None:
        self._staging = staging
        self._graph = graph
        self._inputs = (*graph.inputs, *graph.states)
        self._order = sized_order(graph.results)
        self._makers: dict[str, Node] = {
            size.name: node for node in reversed(self._order) for size in sizes_made(node)
        }
        self._called = {node for node in self._order if staging.is_called(node)}
        self._stage_of = self._staged()
        n_stages = 1 + max(self._stage_of.values(), default=0)
        self._wanted = [_Wanted() for _ in range(n_stages)]

    def _staged(self) -> dict[Node, int]:
        """The stage whose segment makes a node, or whose calls do."""
        stage_of: dict[Node, int] = {}
        for node in self._order:
            stage = 0
            for value in needs(node, self._makers):
                stage = max(stage, stage_of[value] + (value in self._called))
            # A range is made up behind the cut at which its size is read.
            stage_of[node] = stage + (node.op == "arange")
            on_host = self._staging.on_host
            if on_host is not None and node not in self._called and not _is_given(node):
                is_host = on_host(node)
                if is_host or node.op == "arange" or not _is_made_here(node):
                    stage_of[node] += (stage_of[node] % 2 == 1) != is_host
        return stage_of

    def frame(self) -> StagedGraph:
        for node in self._graph.results:
            self._want(node)
        groups: dict[object, list[Node]] = {}
        for node in self._order:
            if node in self._called:
                attrs = tuple(item for item in node.attrs if item[0] != "index")
                groups.setdefault((node.op, node.inputs, attrs), []).append(node)
            elif node.op == "arange":
                groups[node] = [node]
        for nodes in groups.values():
            stage = self._stage_of[nodes[0]] - (nodes[0].op == "arange")
            self._wanted[stage].calls.append(self._call(nodes))
            for value in nodes[0].inputs:
                self._want(value)
            for node in (nodes[0], *nodes[0].inputs):
                self._want_sizes(node, stage + 1)
        for stage in reversed(range(len(self._wanted))):
            self._trace(stage)
        return StagedGraph(self._inputs, self._graph.results, self._stages())

    def _call(self, nodes: list[Node]) -> Call:
        node = nodes[0]
        is_native = node.op == "growing_loop" and self._staging.on_host is None
        axes = growing_axes(node) if is_native else None
        if axes is not None:
            number = self._staging.next_number()
            return Call(tuple(nodes), (), Growth(number, node, axes, self._graph.origins))
        bodies = (self._graph.of_region(region) for region in regions_of(node))
        return Call(tuple(nodes), tuple(self._staging.frame(body) for body in bodies))

    def _want(self, node: Node) -> None:
        """Have a value handed on as an array."""
        if not _is_given(node) and node not in self._called:
            self._wanted[self._stage_of[node]].outputs[node] = None

    def _trace(self, stage: int) -> None:
        """Find what the segment of a stage reads, and have the stages before hand it on."""
        wanted = self._wanted[stage]
        pending = [*wanted.outputs, *(n for one in wanted.found.values() for n in one.counts)]
        seen: set[Node] = set()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in self._called or _is_given(node):
                wanted.inputs[node] = None
                continue
            is_here = self._stage_of[node] == stage
            if not is_here and not _is_made_here(node):
                wanted.inputs[node] = None
                self._want(node)
                continue
            self._want_sizes(node, stage)
            if node.op != "arange":
                pending += node.inputs
        for node in wanted.inputs:
            self._want_sizes(node, stage)
        for one in wanted.found.values():
            self._want_found(found_in(one.rows), stage)

    def _want_sizes(self, node: Node, stage: int) -> None:
        """Have the stages before tell the sizes that a node has."""
        for one in (node, *(one for r in regions_of(node) for one in everything(r.results))):
            self._want_found(found_sizes(one), stage)

    def _want_found(self, sizes: Iterable[Found], stage: int) -> None:
        for size in sizes:
            maker = self._makers.get(size.name)
            if maker is not None and maker.op == "cut" and self._stage_of[maker] < stage:
                found = self._wanted[self._stage_of[maker]].found
                found.setdefault(size.name, self._found_size(maker))

    def _found_size(self, cut: Node) -> FoundSize:
        """What a cut finds, over what is there before its stage."""
        counts = [cut.inputs[1]]
        rows = cut.inputs[0].shape[0]
        while isinstance(rows, Found):
            inner = self._makers.get(rows.name)
            if inner is None or inner.op != "cut" or self._stage_of[inner] < self._stage_of[cut]:
                break
            counts.append(inner.inputs[1])
            rows = inner.inputs[0].shape[0]
        return FoundSize(cut.attr("size"), tuple(counts), rows)

    def _stages(self) -> tuple[Stage, ...]:
        last_use: dict[Node, int] = {}
        for k, wanted in enumerate(self._wanted):
            values = (*wanted.inputs, *(v for call in wanted.calls for v in call.node.inputs))
            last_use |= dict.fromkeys(values, k)
            for node in (*wanted.outputs, *(node for call in wanted.calls for node in call.nodes)):
                last_use.setdefault(node, k)
        kept = set(self._graph.results)
        stages = []
        for k, wanted in enumerate(self._wanted):
            segment = None
            if wanted.outputs or wanted.found:
                segment = Segment(
                    self._staging.next_number(),
                    tuple(wanted.inputs),
                    tuple(wanted.outputs),
                    tuple(wanted.found.values()),
                    self._graph.origins,
                    self._staging.on_host is not None and k % 2 == 1,
                )
            dropped = (node for node, end in last_use.items() if end == k and node not in kept)
            stages.append(Stage(segment, tuple(wanted.calls), tuple(dropped)))
        return tuple(stages)
