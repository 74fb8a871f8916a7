"""What a call of an AttentionKernel runs: the form that fits the number of queries."""

from __future__ import annotations

from arenite.backends.cpu.attention.few_queries import Few
from arenite.backends.cpu.attention.form import ROOM
from arenite.backends.cpu.attention.kernel import (
    FIRST_TILE,
    LAST_TILE,
    TILE,
    Attention,
    in_blocks,
    in_few_blocks,
)
from arenite.backends.cpu.attention.panels import Panels
from arenite.codegen import loop_ir as ir


def program(made: Attention) -> ir.Block:
    if not made.few_up_to:
        return _panels(made)
    if not made.has_panels:
        return _few(made)
    is_few = ir.Binary("le", made.n_queries, ir.index(made.few_up_to))
    return (ir.If(is_few, _few(made), _panels(made)),)


def _few(made: Attention) -> ir.Block:
    room = ir.Let(ROOM.name, FIRST_TILE * made.few_rooms.length)
    return (room, *in_few_blocks(made, Few(made).block()))


def _panels(made: Attention) -> ir.Block:
    room = ir.Let(ROOM.name, TILE * made.rooms.length)
    body = (room, *in_blocks(made, Panels(made).block()))
    return (ir.For(TILE.name, FIRST_TILE, LAST_TILE, body),)
