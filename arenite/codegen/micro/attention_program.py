"""What a tile of an AttentionKernel runs: for each block of queries, the form that fits it."""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.micro.attention_few import Few
from arenite.codegen.micro.attention_form import ROOM
from arenite.codegen.micro.attention_kernel import N_ROWS, TILE, Attention, in_blocks
from arenite.codegen.micro.attention_panels import Panels


def program(made: Attention) -> ir.Block:
    if not made.few_up_to:
        body = Panels(made).block()
    elif not made.has_panels:
        body = Few(made).block()
    else:
        is_few = ir.Binary("le", N_ROWS, ir.index(made.few_up_to))
        body = (ir.If(is_few, Few(made).block(), Panels(made).block()),)
    return (ir.Let(ROOM.name, TILE * made.rooms.length), *in_blocks(made, body))
