"""The graphs of language models, by the architecture a file names."""

from __future__ import annotations

from importlib import import_module

from arenite.frontends.language.builder import ModelBuilder
from arenite.frontends.language.file import ARCHITECTURES
from arenite.ir import Graph, Node


def text_graph(builder: ModelBuilder) -> Graph:
    """Of a block of tokens and the position of the first: the logits after the last token; keys and
    values of up to `context` tokens are states."""
    return builder.graph({"logits": builder.logits(builder.last(_rows(builder)))})


def embedding_graph(builder: ModelBuilder) -> Graph:
    """Of the tokens of one text: one row, pooled as the file says, of length 1."""
    return builder.graph({"embedding": builder.pooled(_rows(builder))})


def _rows(builder: ModelBuilder) -> Node:
    name = ARCHITECTURES[builder.description.architecture]
    rows: Node = getattr(import_module(f"arenite.frontends.language.{name}"), name)(builder)
    return rows
