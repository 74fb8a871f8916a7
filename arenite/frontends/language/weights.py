"""Weights of a language model by the names that GGUF gives them, as nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping

from arenite.errors import InvalidFile
from arenite.frontends.stored import StoredTensor, quoted
from arenite.ir import Node, Origin, Origins, buffer


class Weights:
    """Tensors of a file; each becomes one node, over the mapped bytes, when it is asked for."""

    def __init__(self, path: str, tensors: Mapping[str, StoredTensor]) -> None:
        self.path = path
        self.tensors = tensors
        self.origins = Origins()
        self._nodes: dict[str, Node] = {}

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def get(self, name: str, shape: tuple[int, ...]) -> Node:
        """The tensor of this name, which has this shape."""
        known = self._nodes.get(name)
        if known is None:
            if name not in self.tensors:
                raise InvalidFile(
                    f"{self.path}: tensor {quoted(name)} is missing, which this architecture needs"
                )
            known = self._nodes[name] = buffer(self.tensors[name].buffer())
            self.origins.add(known, Origin(self.path, name=name))
        if known.shape != shape:
            raise InvalidFile(
                f"{self.path}: tensor {quoted(name)} has shape {known.shape}; the metadata ask for "
                f"{shape}"
            )
        return known
