"""Mixtures of experts: each token goes through a few of many feed-forward networks."""

from __future__ import annotations

from arenite.dtype import FLOAT32
from arenite.frontends.language.builder import ModelBuilder
from arenite.ir import Node, make
from arenite.ir.compose import basic, neural
from arenite.ir.compose.reductions import reduce, top
from arenite.ir.ops.experts import matmul_experts


def mixed(m: ModelBuilder, at: str, x: Node) -> Node:
    """The networks of a layer that each row of x chooses, by their weights; and the one that all
    rows share, where there is one."""
    experts = m.description.experts
    assert experts is not None
    scores = neural.softmax(m.linear(f"{at}.ffn_gate_inp", x, experts.total), 1)
    shares, chosen = top(scores, experts.used, 1, largest=True)
    if experts.normalised:
        shares = shares / reduce("sum", shares, [1], keep=True)
    if experts.scale != 1:
        shares = shares * experts.scale
    hidden = m.hidden_size(f"{at}.ffn_gate_exps")
    width = m.description.width
    gate = neural.silu(_product(m, f"{at}.ffn_gate_exps", x, chosen, (hidden, width)))
    up = _product(m, f"{at}.ffn_up_exps", x, chosen, (hidden, width))
    down = _product(m, f"{at}.ffn_down_exps", gate * up, chosen, (width, hidden))
    result = reduce("sum", down * basic.expand_dims(shares, 2), [1])
    return result + _shared(m, at, x) if experts.shared else result


def _product(m: ModelBuilder, name: str, x: Node, chosen: Node, shape: tuple[int, int]) -> Node:
    experts = m.description.experts
    assert experts is not None
    return m.labelled(matmul_experts(x, m.stacked(name, experts.total, *shape), chosen), name)


def _shared(m: ModelBuilder, at: str, x: Node) -> Node:
    """The network that all rows use, as much as a gate of its own says."""
    # Files have it as a row or as a matrix of one row.
    row = m.row_of(f"{at}.ffn_gate_inp_shexp")
    share = make("matmul", x, basic.cast(row, FLOAT32), transpose_a=False, transpose_b=True)
    return m.gated(at, x, "_shexp") * neural.sigmoid(share)
