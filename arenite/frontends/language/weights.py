"""Weights of a language model by the names that GGUF gives them, as nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping

from arenite.dtype import Kind
from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.stored_tensor import StoredTensor, quoted
from arenite.ir import BufferSource, Node, Origin, Origins, make


class Weights:
    """Tensors of a file; each becomes one node, over the mapped bytes, when it is asked for."""

    def __init__(self, path: str, tensors: Mapping[str, StoredTensor]) -> None:
        self.path = path
        self.tensors = tensors
        self.origins = Origins()
        #: The tensors that were asked for.
        self.used: dict[str, BufferSource] = {}

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def get(self, name: str, shape: tuple[int, ...], *, blocks: bool = False) -> Node:
        """The tensor of this name, which has this shape; `blocks`: it may be of a block type."""
        stored = self.tensors.get(name)
        if stored is None:
            raise InvalidFile(
                f"{self.path}: tensor {quoted(name)} is missing, which this architecture needs"
            )
        if stored.shape != shape or 0 in shape:
            raise InvalidFile(
                f"{self.path}: tensor {quoted(stored.name)} has shape {stored.shape}; the metadata "
                f"ask for {shape}"
            )
        if not (stored.dtype.kind is Kind.FLOAT or (blocks and stored.dtype.is_block)):
            raise NotSupported(
                f"{self.path}: tensor {quoted(stored.name)} is of {stored.dtype}; it should hold "
                "floating-point numbers"
            )
        source = self.used[name] = stored.source
        node = make("buffer", source=source)
        self.origins.add(node, Origin(self.path, name=stored.name))
        return node
