"""What a tile of an AttentionKernel runs: the form that fits the number of queries."""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.micro.attention_few import Few
from arenite.codegen.micro.attention_form import ROOM
from arenite.codegen.micro.attention_kernel import TILE, Attention, in_blocks, in_few_blocks
from arenite.codegen.micro.attention_panels import Panels


def program(made: Attention) -> ir.Block:
    if not made.few_up_to:
        body = in_blocks(made, Panels(made).block())
    elif not made.has_panels:
        body = in_few_blocks(made, Few(made).block())
    else:
        is_few = ir.Binary("le", made.n_queries, ir.index(made.few_up_to))
        few = in_few_blocks(made, Few(made).block())
        body = (ir.If(is_few, few, in_blocks(made, Panels(made).block())),)
    return (ir.Let(ROOM.name, TILE * made.rooms.length), *body)
