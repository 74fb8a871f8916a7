"""BatchBuilder: the graph of a step that reads tokens of many texts at once.

Values are rows, one a token, whichever text it is of. Keys and values of all texts are states,
`k0`, `v0`, ...: pools of pages of some rows each; a table has the pages of each text. What comes
in says of each token where it stands and where its keys go; of some rows logits come out.

    tokens[rows]  position[rows]  text[rows]        what is read, where in which text
    place[rows]                                     the row of the pools that its keys go to
    table[texts, pages]                             pages of each text, in order
    wanted[n]                                       rows whose logits come out: logits[n, tokens]
"""

from __future__ import annotations

from typing import Any, NamedTuple

from arenite.frontends.language.builder import ModelBuilder
from arenite.ir import Dim, Graph, Node, Var, graph_input, make
from arenite.ir.compose import basic


class Pool(NamedTuple):
    """Room for `texts` at once, in `n_pages` pages of `page` tokens that they share."""

    texts: int
    n_pages: int
    page: int


class BatchBuilder(ModelBuilder):
    """`context`: the most tokens of one text, `block`: the most rows of a step."""

    def __init__(self, *given: Any, pool: Pool, **sizes: Any) -> None:
        super().__init__(*given, **sizes)
        self.pool = pool
        n_pages = -(-self.context // pool.page)
        shapes: dict[str, tuple[Dim, ...]] = {
            "position": (self.rows,),
            "text": (self.rows,),
            "place": (self.rows,),
            "table": (pool.texts, n_pages),
            "wanted": (Var("wanted", 1, pool.texts),),
        }
        inputs = [
            graph_input(name, number, shape, self.index)
            for number, (name, shape) in enumerate(shapes.items(), 1)
        ]
        self.position, self.text, self.place, self.table, self.wanted = inputs

    def row_positions(self) -> Node:
        return self.position

    def attend(self, layer: int, q: Node, k: Node, v: Node) -> Node:
        kept = self.kept_rows(layer, k, v)
        heads, size = q.shape[1:]
        assert isinstance(size, int)
        seen = make(
            "attention_pages",
            q,
            *kept[:2],
            self.table,
            self.text,
            self.position,
            *kept[2:],
            scale=size**-0.5,
            window=self.description.window_of(layer) or 0,
            page=self.pool.page,
        )
        return self.labelled(basic.reshape(seen, (self.rows, heads * size)), f"blk.{layer}.attn")

    def kept(self, name: str, rows: Node) -> Node:
        shape = (self.pool.n_pages * self.pool.page, *rows.shape[1:])
        state = make("state", name=name, shape=shape, dtype=rows.dtype, copies=1)
        updated = make("update_slice", state, rows, self.place, axis=0)
        self.updates.append((state, updated))
        return updated

    def last(self, x: Node) -> Node:
        """The rows that are wanted."""
        return make("gather", x, self.wanted, axis=0)

    def graph(self, outputs: dict[str, Node]) -> Graph:
        inputs = (self.tokens, self.position, self.text, self.place, self.table, self.wanted)
        nodes, updates = tuple(outputs.values()), tuple(self.updates)
        return Graph(inputs, nodes, tuple(outputs), self.weights.origins, updates)
