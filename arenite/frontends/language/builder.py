"""ModelBuilder: what the graphs of language models are made of, one block of tokens at a time.

Values are rows, one a token: x[tokens, width]. Keys and values of earlier tokens are states of the
graph, `k0`, `v0`, ...: rows by position, of which the first `position` are known when a block
comes in. Names of weights are those of GGUF, without ".weight".
"""

from __future__ import annotations

import numpy as np

from arenite.dtype import FLOAT16, FLOAT32, INT8, INT32, INT64, UINT8, DType
from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.language.description import Description
from arenite.frontends.language.weights import Weights
from arenite.ir import Graph, Node, Origin, Var, constant, graph_input, make, size
from arenite.ir.compose import basic, neural
from arenite.ir.compose.reductions import mean, reduce
from arenite.ir.ops.blocks import matmul_blocks, rows_of_blocks
from arenite.ir.ops.control import cut


class ModelBuilder:
    """One graph in the making. `block`: the most tokens that come in at once.

    Where it is `offloaded` the program runs on a device with memory of its own, whose integers
    have 32 bits, and the host, which knows how many keys there are, says so ahead of a run: by
    the shape of an input without elements. Else the program finds that out while it runs.
    """

    def __init__(
        self,
        description: Description,
        weights: Weights,
        *,
        context: int,
        block: int,
        kv: DType,
        sessions: int = 1,
        offloaded: bool = False,
    ) -> None:
        self.description = description
        self.weights = weights
        self.context = context
        self.kv = kv
        self.sessions = sessions
        self.rows = Var("tokens", 1, block)
        self.index = INT32 if offloaded else INT64
        self.tokens = graph_input("tokens", 0, (self.rows,), self.index)
        self.position = graph_input("position", 1, (), self.index)
        self.keys: Node | None = None
        if offloaded:
            self.keys = graph_input("keys", 2, (Var("keys", 1, context), 0), UINT8)
        self.updates: list[tuple[Node, Node]] = []
        self._turn: tuple[Node, Node] | None = None

    # Weights.

    def layers(self) -> range:
        """The numbers of the layers."""
        return range(self.description.n_layers)

    def weight(self, name: str, *shape: int, blocks: bool = False) -> Node:
        """A tensor of this shape; `blocks`: it may be of a block type."""
        return self.weights.get(f"{name}.weight", shape, blocks=blocks)

    def stacked(self, name: str, count: int, rows: int, columns: int) -> Node:
        """Matrices of one shape: one tensor of the file, or one for each."""
        if f"{name}.weight" in self.weights:
            return self.weight(name, count, rows, columns, blocks=True)
        parts = [self.weight(f"{name}.{k}", rows, columns) for k in range(count)]
        if len({part.dtype for part in parts}) > 1:
            raise NotSupported(f"{self.weights.path}: parts of '{name}' are of different dtypes")
        return basic.concat([basic.expand_dims(part, 0) for part in parts], 0)

    def row_of(self, name: str) -> Node:
        """A row of weights as [1, width]."""
        width = self.description.width
        stored = self.weights.tensors.get(f"{name}.weight")
        is_row = stored is not None and len(stored.shape) == 1
        return basic.reshape(self.weight(name, *((width,) if is_row else (1, width))), (1, width))

    def labelled(self, node: Node, name: str) -> Node:
        """The node, known in kernels, errors and profiles by a name of the model."""
        self.weights.origins.add(node, Origin(self.weights.path, name=name))
        return node

    # Parts.

    def embedding(self, name: str) -> Node:
        """Rows of a table by token."""
        d = self.description
        return self.labelled(self._rows_of(name, d.n_tokens, self.tokens), name)

    def _rows_of(self, name: str, count: int, indices: Node) -> Node:
        table = self.weight(name, count, self.description.width, blocks=True)
        if table.dtype.is_block:
            return rows_of_blocks(table, indices)
        return basic.cast(make("gather", table, indices, axis=0), FLOAT32)

    def places(self, name: str, count: int) -> Node:
        """Rows of a table by place in the block."""
        return self._rows_of(name, count, basic.iota(self.rows, self.index))

    def row(self, name: str, number: int) -> Node:
        """One row of a small table, as [1, width]."""
        stored = self.weights.tensors.get(f"{name}.weight")
        count = stored.shape[0] if stored is not None and stored.shape else 1
        return self._rows_of(name, count, constant(np.array([number], self.index.to_numpy())))

    def linear(self, name: str, x: Node, columns: int) -> Node:
        """x times the transposed weights, plus the bias where the file has one."""
        rows = x.shape[-1]
        assert isinstance(rows, int)
        w = self.weight(name, columns, rows, blocks=True)
        if w.dtype.is_block:
            result = matmul_blocks(x, w)
        else:
            result = make("matmul", x, basic.cast(w, FLOAT32), transpose_a=False, transpose_b=True)
        bias = f"{name}.bias"
        if bias in self.weights:
            result = result + basic.cast(self.weights.get(bias, (columns,)), FLOAT32)
        return self.labelled(result, name)

    def rms_norm(self, name: str, x: Node) -> Node:
        """Over the last axis."""
        width = x.shape[-1]
        assert isinstance(width, int)
        weight = basic.cast(self.weight(name, width), FLOAT32)
        return self.labelled(neural.rms_norm(x, 1, weight, self.description.eps), name)

    def layer_norm(self, name: str, x: Node) -> Node:
        width = x.shape[-1]
        assert isinstance(width, int)
        weight = basic.cast(self.weight(name, width), FLOAT32)
        bias = basic.cast(self.weights.get(f"{name}.bias", (width,)), FLOAT32)
        return self.labelled(neural.layer_norm(x, 1, weight, bias, self.description.eps), name)

    def heads(self, x: Node, count: int) -> Node:
        """x[tokens, count * head size] as x[tokens, count, head size]."""
        return basic.reshape(x, (x.shape[0], count, self.description.head_size))

    def gated(self, at: str, x: Node, suffix: str = "") -> Node:
        """The feed-forward network of a layer: down(silu(gate(x)) * up(x))."""
        hidden = self.hidden_size(f"{at}.ffn_gate{suffix}")
        gate = neural.silu(self.linear(f"{at}.ffn_gate{suffix}", x, hidden))
        up = self.linear(f"{at}.ffn_up{suffix}", x, hidden)
        return self.linear(f"{at}.ffn_down{suffix}", gate * up, self.description.width)

    def hidden_size(self, name: str) -> int:
        """Rows of a matrix of the file, where the metadata do not say them for sure."""
        tensors = self.weights.tensors
        stored = tensors.get(f"{name}.weight") or tensors.get(f"{name}.0.weight")
        if stored is None or len(stored.shape) < 2:
            raise InvalidFile(
                f"{self.weights.path}: matrix '{name}.weight' is missing, which this architecture "
                "needs"
            )
        return stored.shape[-2]

    # Positions.

    def turned(self, x: Node) -> Node:
        """x[tokens, heads, head size], turned by the position of each token.

        Pairs come out as two halves: queries and keys are in one order then, which is all that
        their products need.
        """
        rope = self.description.rope
        if rope is None:
            return x
        cos, sin = self._cos_and_sin()
        half = rope.size // 2
        if rope.pairs:
            first, second = (basic.slice_axis(x, 2, k, rope.size, 2) for k in (0, 1))
        else:
            first, second = (basic.slice_axis(x, 2, k * half, (k + 1) * half) for k in (0, 1))
        parts = [
            first * cos - second * sin,
            first * sin + second * cos,
        ]
        if rope.size < self.description.head_size:
            parts.append(basic.slice_axis(x, 2, rope.size, self.description.head_size))
        return basic.concat(parts, 2)

    def _cos_and_sin(self) -> tuple[Node, Node]:
        """[tokens, 1, half]: the same for all layers."""
        rope = self.description.rope
        assert rope is not None
        if self._turn is None:
            steps = constant(rope.frequencies().astype(np.float32))
            if "rope_freqs.weight" in self.weights:
                divisors = self.weight("rope_freqs", rope.size // 2)
                steps = steps / basic.cast(divisors, FLOAT32)
            places = basic.reshape(basic.cast(self.row_positions(), FLOAT32), (self.rows, 1, 1))
            angles = places * basic.reshape(steps, (1, 1, rope.size // 2))
            cos, sin = (make(name, angles) for name in ("cos", "sin"))
            if rope.magnitude() != 1:
                cos, sin = (x * rope.magnitude() for x in (cos, sin))
            self._turn = (cos, sin)
        return self._turn

    def row_positions(self) -> Node:
        """The position of each token."""
        return basic.iota(self.rows, self.index) + self.position

    # Attention.

    def attend(self, layer: int, q: Node, k: Node, v: Node) -> Node:
        """Of q[tokens, heads, size] over the new k and v and those of earlier tokens: rows."""
        kept = self.kept_rows(layer, k, v)
        keys, values = (basic.permute(x, (1, 0, 2)) for x in kept[:2])
        scales = [basic.permute(x, (1, 0)) for x in kept[2:]]
        k_scale, v_scale = scales or (None, None)
        seen = neural.attention(
            basic.permute(q, (1, 0, 2)),
            keys,
            values,
            causal=True,
            offset=keys.shape[1] - self.rows,
            window=self.description.window_of(layer),
            k_scale=k_scale,
            v_scale=v_scale,
        )
        return self.labelled(self._as_rows(seen), f"blk.{layer}.attn")

    def kept_rows(self, layer: int, k: Node, v: Node) -> list[Node]:
        """Keys and values, the new ones among them, as they are kept; behind them their scales,
        where there are such."""
        scales: dict[str, Node] = {}
        if self.kv == INT8:
            (k, k_scale), (v, v_scale) = (neural.quantised_rows(x, FLOAT16) for x in (k, v))
            scales = {f"k{layer}_scale": k_scale, f"v{layer}_scale": v_scale}
        else:
            k, v = (basic.cast(x, self.kv) for x in (k, v))
        parts = {f"k{layer}": k, f"v{layer}": v} | scales
        return [self.kept(name, rows) for name, rows in parts.items()]

    def kept(self, name: str, rows: Node) -> Node:
        """The rows of a state up to the new ones, which are written to it."""
        shape = (self.context, *rows.shape[1:])
        state = make("state", name=name, shape=shape, dtype=rows.dtype, copies=self.sessions)
        updated = make("update_slice", state, rows, self.position, axis=0)
        self.updates.append((state, updated))
        if self.keys is not None:
            return basic.slice_axis(updated, 0, 0, self.keys.shape[0])
        return cut(updated, self.position + size(self.rows, INT64))

    def attend_all(self, layer: int, q: Node, k: Node, v: Node) -> Node:
        """Every token sees every other one of the block; nothing is kept."""
        seen = neural.attention(*(basic.permute(x, (1, 0, 2)) for x in (q, k, v)))
        return self.labelled(self._as_rows(seen), f"blk.{layer}.attn")

    def _as_rows(self, seen: Node) -> Node:
        """[heads, tokens, size] as [tokens, heads * size]."""
        heads, tokens, width = seen.shape
        return basic.reshape(basic.permute(seen, (1, 0, 2)), (tokens, heads * width))

    # Ends.

    def last(self, x: Node) -> Node:
        """The row of the last token."""
        return basic.slice_axis(x, 0, self.rows - 1, self.rows)

    def logits(self, x: Node) -> Node:
        """Of each row; by the table of tokens where that is asked for, or there is no other."""
        is_tied = self.description.is_tied
        if is_tied is None:
            is_tied = "output.weight" not in self.weights
        name = "token_embd" if is_tied else "output"
        return self.linear(name, x, self.description.n_tokens)

    def pooled(self, x: Node) -> Node:
        """One row of all rows, of length 1."""
        kind = self.description.pooling
        if kind == "mean":
            row = mean(x, [0], keep=True)
        else:
            row = self.last(x) if kind == "last" else basic.slice_axis(x, 0, 0, 1)
        squares = reduce("sum", row * row, [1], keep=True)
        # A row of zeros stays one: it has no direction.
        length = basic.binary("maximum", make("sqrt", squares), 1e-12)
        return row / length

    def graph(self, outputs: dict[str, Node]) -> Graph:
        """The graph of what was built."""
        nodes = tuple(outputs.values())
        inputs = [self.tokens]
        if self.updates:
            inputs += [self.position, *([] if self.keys is None else [self.keys])]
        updates = tuple(self.updates)
        return Graph(tuple(inputs), nodes, tuple(outputs), self.weights.origins, updates)
