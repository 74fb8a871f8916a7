"""Recipe: one graph of a file, known before it is built.

In: a file, and what the graph is to be made for. Out: a key that differs whenever the graph may,
the graph itself when it is asked for, and the tensors it reads, by name. A graph depends on what
the file says of the model and on names, shapes and types of tensors; on no content.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from arenite.errors import InvalidArgument

if TYPE_CHECKING:
    from typing import NotRequired, TypedDict, Unpack

    from arenite.dtype import DType
    from arenite.frontends.language.batch import Pool
    from arenite.frontends.language.file import LanguageFile
    from arenite.ir import BufferSource, Graph

    class Sizes(TypedDict):
        """What a graph is made for: the most tokens of a text, and of those that come in at once;
        what keys and values are kept as, and of how many texts at the same time; whether a device
        has memory of its own."""

        context: int
        block: int
        kv: DType
        sessions: NotRequired[int]
        offloaded: NotRequired[bool]


class Recipe:
    """How a graph for these sizes is made. With a `pool` blocks are of many texts: see
    `BatchBuilder`."""

    def __init__(
        self, file: LanguageFile, pool: Pool | None = None, **sizes: Unpack[Sizes]
    ) -> None:
        context, block = sizes["context"], sizes["block"]
        if block < 1 or (pool is None and block > context):
            raise InvalidArgument(f"blocks of {block} tokens do not fit a context of {context}")
        self.file = file
        self.pool = pool
        self.sizes = sizes
        self._names: dict[int, str] = {}

    @cached_property
    def key(self) -> str:
        """Everything that decides the graph."""
        sizes = {"sessions": 1, "offloaded": False, **self.sizes, "kv": self.sizes["kv"].name}
        return repr((self.file.key, sorted(sizes.items()), self.pool))

    def build(self) -> Graph:
        """The graph; InvalidFile where the file lacks something that it needs."""
        from arenite.frontends.language.batch import BatchBuilder
        from arenite.frontends.language.builder import ModelBuilder
        from arenite.frontends.language.graphs import embedding_graph, text_graph
        from arenite.frontends.language.weights import Weights

        weights = Weights(self.file.path, self.file.tensors)
        make: type[ModelBuilder] | partial[BatchBuilder] = ModelBuilder
        if self.pool is not None:
            make = partial(BatchBuilder, pool=self.pool)
        builder = make(self.file.description, weights, **self.sizes)
        graph = (embedding_graph if self.file.is_embedding else text_graph)(builder)
        self._names = {source.id: name for name, source in weights.used.items()}
        return graph

    def name_of(self, source: BufferSource) -> str | None:
        """The name of a tensor that the graph, which was built, reads."""
        return self._names.get(source.id)
