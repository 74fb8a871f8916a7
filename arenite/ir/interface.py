"""GraphInterface: what a run needs to know of a graph, without the graph.

Inputs and states with their types, the sizes that are variables, and the arrays the graph brings
along, in the order that programs count them by. It is made of a graph, or it was kept from one: the
graph itself is then built when someone asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from arenite.records import NamedTuple

if TYPE_CHECKING:
    from arenite.dtype import DType
    from arenite.ir.data import BufferSource, ConstantData
    from arenite.ir.dim import Var
    from arenite.ir.graph import Graph
    from arenite.ir.node import Shape

Constant: TypeAlias = "ConstantData | BufferSource"


class Port(NamedTuple):
    """An input or a state."""

    name: str
    shape: Shape
    dtype: DType


class GraphInterface:
    """`build` makes the graph, `digest` is the graph's; `kept_as` is the key in the cache of one
    that was not made of a graph."""

    def __init__(
        self,
        inputs: tuple[Port, ...],
        states: tuple[Port, ...],
        variables: tuple[Var, ...],
        constants: Sequence[Constant],
        digest: str | None,
        build: Callable[[], Graph],
        kept_as: str | None = None,
    ) -> None:
        self.inputs = inputs
        self.states = states  # by name
        self.vars = variables  # by name
        self.constants = constants
        self.kept_as = kept_as
        self._digest = digest
        self._build = build
        self._graph: Graph | None = None

    @classmethod
    def of(cls, graph: Graph | GraphInterface) -> GraphInterface:
        """That of a graph; a graph interface stays what it is."""
        if isinstance(graph, GraphInterface):
            return graph
        made = cls(
            tuple(Port(node.attr("name"), node.shape, node.dtype) for node in graph.inputs),
            tuple(Port(node.attr("name"), node.shape, node.dtype) for node in graph.states),
            graph.vars,
            [node.attr("data" if node.op == "constant" else "source") for node in graph.constants],
            None,
            lambda: graph,
        )
        made._graph = graph
        return made

    @property
    def graph(self) -> Graph:
        """The whole graph, built when it is asked for the first time."""
        if self._graph is None:
            self._graph = self._build()
        return self._graph

    def digest(self) -> str:
        """What the graph computes, hashed."""
        if self._digest is None:
            self._digest = self.graph.digest()
        return self._digest
