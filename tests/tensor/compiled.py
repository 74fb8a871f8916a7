"""The graphs that tests of tensors make, compiled.

Tensors are realized by the oracle, op by op; NumPy and PyTorch judge what it says. A Recorder keeps
of these graphs one for every op and dtypes it meets, turns their arrays into inputs (constants
would be folded while compiling), joins them into a few programs, and compares what kernels make of
them with what the oracle said: on one thread and on two, and launch by launch with every byte
watched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import DType, Kind
from arenite.ir import Graph, Node, graph_input
from arenite.ir.dim import bounds
from arenite.pipeline import compile_graph

Array = NDArray[Any]

#: Nodes in one program, about: compiling costs more than running.
NODES_A_PROGRAM = 400
#: Elements of a graph that is worth compiling; more show nothing new.
MAX_ELEMENTS = 20_000
_SOURCES = ("constant", "buffer")


@dataclass(frozen=True)
class Recorded:
    """A graph without inputs, what the oracle says of it, and the test that made it."""

    test: str
    graph: Graph
    expected: tuple[Array, ...]


class Recorder:
    """Graphs worth compiling, in the order they came."""

    def __init__(self) -> None:
        self._seen: set[tuple[object, ...]] = set()
        self.kept: list[Recorded] = []

    def add(self, test: str, graph: Graph, expected: Sequence[Array]) -> None:
        if any(not is_held(node.dtype) for node in graph.nodes):
            return
        if sum(n_elements(node) for node in graph.nodes) > MAX_ELEMENTS:
            return
        new = {signature(node) for node in graph.nodes if node.op not in _SOURCES} - self._seen
        if new:
            self._seen |= new
            self.kept.append(Recorded(test, graph, tuple(np.array(one) for one in expected)))

    def check(self) -> None:
        """Compile and compare; AssertionError with every graph that came out wrong."""
        wrong = []
        for group in self._groups():
            if self._failure(group) is not None:
                for one in group:
                    failure = self._failure([one])
                    if failure is not None:
                        wrong.append(f"{one.test}: {failure}\n{one.graph}")
        assert not wrong, f"{len(wrong)} graphs compiled differ:\n" + "\n\n".join(wrong[:20])

    def _groups(self) -> Iterator[list[Recorded]]:
        group: list[Recorded] = []
        for one in self.kept:
            group.append(one)
            if sum(len(one.graph) for one in group) > NODES_A_PROGRAM:
                yield group
                group = []
        if group:
            yield group

    def _failure(self, group: list[Recorded]) -> str | None:
        graph, arrays = joined([one.graph for one in group])
        expected = [array for one in group for array in one.expected]
        try:
            results = []
            for threads in (1, 2):
                with compile_graph(graph, threads=threads) as program:
                    program.verify()
                    results.append(program(*arrays))
            with compile_graph(graph) as program:
                results.append(program.run_checked(*arrays))
        except Exception as error:  # reported with the graph that caused it
            return f"{type(error).__name__}: {error}"
        for *found, wanted in zip(*results, expected, strict=True):
            wrong = difference(found[0], wanted)
            if wrong is not None:
                return wrong
            if len({bits(one) for one in found}) > 1:
                return "one thread, two and a checked run differ"
        return None


def is_held(dtype: DType) -> bool:
    """Whether kernels compute with its elements."""
    return dtype.kind is not Kind.BLOCK


def signature(node: Node) -> tuple[object, ...]:
    """What makes a node worth compiling once more."""
    dtypes = (node.dtype, *(value.dtype for value in node.inputs))
    return node.op, dtypes, node.ndim, n_elements(node) > 0


def n_elements(node: Node) -> int:
    """At most, where sizes are found while running."""
    return prod(bounds(size)[1] for size in node.shape)


def bits(array: Array) -> bytes:
    """The bytes of an array, with one NaN for all."""
    if array.dtype.kind in "biu":
        return array.tobytes()
    if array.dtype.kind == "c":
        return bits(array.real) + bits(array.imag)
    wide = array.astype(np.float64)
    return np.where(np.isnan(wide), np.nan, wide).tobytes()


def joined(graphs: Sequence[Graph]) -> tuple[Graph, list[Array]]:
    """One graph of them all, with inputs where they have arrays."""
    inputs: list[Node] = []
    arrays: list[Array] = []
    outputs: list[Node] = []
    for graph in graphs:
        mapping: dict[Node, Node] = {}
        for node in graph.nodes:
            if node.op in _SOURCES:
                source = node.attr("data" if node.op == "constant" else "source")
                array = source.array if node.op == "constant" else source.array()
                k = len(inputs)
                mapping[node] = graph_input(f"x{k}", k, node.shape, node.dtype)
                inputs.append(mapping[node])
                arrays.append(array)
        outputs += graph.replace(mapping).outputs
    return Graph(tuple(inputs), tuple(outputs)), arrays


def difference(result: Array, wanted: Array) -> str | None:
    """What is wrong with a result; None where it is as near as rounding lets it be."""
    if result.dtype != wanted.dtype or result.shape != wanted.shape:
        return f"{result.dtype}{result.shape} for {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind in "biu":
        return None if (result == wanted).all() else f"{result} for {wanted}"
    if wanted.dtype.kind == "c":
        parts = ((result.real, wanted.real), (result.imag, wanted.imag))
        return next(filter(None, (difference(*part) for part in parts)), None)
    one, other = result.astype(np.float64), wanted.astype(np.float64)
    bits = {8: 52, 4: 23, 2: 7, 1: 2}[wanted.dtype.itemsize]
    if wanted.dtype.name == "float16":
        bits = 10
    tolerance = 64 * 2.0**-bits
    with np.errstate(all="ignore"):
        near = np.isclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    return None if near.all() else f"{one[~near][:4]} for {other[~near][:4]}"
