"""The graphs of language models, by the architecture a file names."""

from __future__ import annotations

from collections.abc import Callable

from arenite.frontends.language.bert import bert
from arenite.frontends.language.builder import Builder
from arenite.frontends.language.llama import llama
from arenite.ir.graph import Graph
from arenite.ir.node import Node

#: How rows are computed, for architectures that are not like Llama.
ROWS: dict[str, Callable[[Builder], Node]] = {"bert": bert}


def text_graph(builder: Builder) -> Graph:
    """Of a block of tokens and the position of the first: the logits after the last token; keys and
    values of up to `context` tokens are states."""
    return builder.graph({"logits": builder.logits(builder.last(_rows(builder)))})


def embedding_graph(builder: Builder) -> Graph:
    """Of the tokens of one text: one row, pooled as the file says, of length 1."""
    return builder.graph({"embedding": builder.pooled(_rows(builder))})


def _rows(builder: Builder) -> Node:
    return ROWS.get(builder.description.architecture, llama)(builder)
