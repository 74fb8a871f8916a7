"""Random nests of loops, branches, accumulators and stores against the interpreter.

Everything is int32, so that any order of summation is exact. Each store has an array of its own and
an index that no two iterations share; loads go anywhere in an input.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arenite.codegen import loop_ir as ir
from tests.codegen import interpreter
from tests.codegen.building import I32, Guarded, name, same
from tests.codegen.run_kernels import RUNNABLE, compiled

MOST = 24  # iterations of a loop
INPUT_LENGTH = 800
OPS = "add sub mul max min and or xor".split()


@dataclass
class Maker:
    """Draws statements; remembers what it has named."""

    draw: Any
    outputs: list[int] = field(default_factory=list)  # lengths
    n_names: int = 0

    def fresh(self, kind: str) -> str:
        self.n_names += 1
        return f"{kind}{self.n_names}"


@dataclass(frozen=True)
class Place:
    """What surrounds a statement."""

    loops: tuple[str, ...] = ()  # variables, outermost first
    values: tuple[str, ...] = ()
    changeable: tuple[str, ...] = ()  # accumulators that may be accumulated into here
    readable: tuple[str, ...] = ()  # accumulators that may be read here
    in_vector: bool = False
    depth: int = 0


def index(maker: Maker, place: Place) -> ir.Expr:
    total: ir.Expr = ir.index(maker.draw(st.integers(0, 200)))
    for var in place.loops:
        coefficient = maker.draw(st.sampled_from([0, 1, 1, 1, 2, 3, 5, -1, -2]))
        total = total + name(var) * coefficient
        if coefficient < 0:
            total = total + MOST * -coefficient
    return total


def expression(maker: Maker, place: Place, depth: int = 3) -> ir.Expr:
    choice = maker.draw(st.integers(0, 6 if depth else 2))
    names = place.values + place.readable
    if choice == 0 and names:
        return name(maker.draw(st.sampled_from(names)), I32)
    if choice == 1 and place.loops:
        return ir.Cast(name(maker.draw(st.sampled_from(place.loops))), I32)
    if choice <= 2:
        return ir.Load("x", index(maker, place), I32)
    a, b = expression(maker, place, depth - 1), expression(maker, place, depth - 1)
    if choice == 3:
        return ir.Select(ir.Binary("lt", a, b), b, expression(maker, place, depth - 1))
    return ir.Binary(maker.draw(st.sampled_from(OPS)), a, b)


def store(maker: Maker, place: Place) -> ir.Stmt:
    at: ir.Expr = ir.index(0)
    for var in place.loops:
        at = at * MOST + name(var)
    maker.outputs.append(MOST ** len(place.loops))
    mask = None
    if maker.draw(st.booleans()):
        mask = ir.Binary("gt", expression(maker, place, 1), ir.Const(0, I32))
    return ir.Store(f"y{len(maker.outputs) - 1}", at, expression(maker, place), mask)


def block(maker: Maker, place: Place) -> ir.Block:
    statements: list[ir.Stmt] = []
    for _ in range(maker.draw(st.integers(1, 4))):
        kind = maker.draw(st.sampled_from(["let", "store", "loop", "loop", "if", "accumulate"]))
        if kind == "let":
            label = maker.fresh("v")
            statements.append(ir.Let(label, expression(maker, place)))
            place = replace(place, values=(*place.values, label))
        elif kind == "store":
            statements.append(store(maker, place))
        elif kind == "accumulate" and place.changeable:
            label = maker.draw(st.sampled_from(place.changeable))
            op = OF_ACCUMULATOR[label[0]]
            statements.append(ir.Accumulate(label, op, expression(maker, place, 2)))
        elif kind == "if" and place.depth < 3:
            cond = ir.Binary("lt", expression(maker, place, 1), expression(maker, place, 1))
            inner = replace(place, depth=place.depth + 1)
            statements.append(ir.If(cond, block(maker, inner), block(maker, inner)))
        elif kind == "loop" and len(place.loops) < 3 and place.depth < 3:
            label = maker.draw(st.sampled_from(sorted(OF_ACCUMULATOR))) + maker.fresh("")
            statements.append(ir.Accumulator(label, expression(maker, place, 1)))
            statements.append(loop(maker, place, label))
            place = replace(
                place,
                readable=(*place.readable, label),
                changeable=(*place.changeable, label),
            )
    return tuple(statements)


#: What an accumulator's first letter says it accumulates; one way each.
OF_ACCUMULATOR = {"s": "add", "p": "mul", "t": "max", "l": "min", "e": "xor"}


def loop(maker: Maker, place: Place, label: str) -> ir.Stmt:
    var = maker.fresh("i")
    is_vector = not place.in_vector and maker.draw(st.booleans())
    inner = replace(
        place,
        loops=(*place.loops, var),
        in_vector=place.in_vector or is_vector,
        depth=place.depth + 1,
        changeable=(*place.changeable, label),
        readable=() if is_vector else (*place.readable, label),
    )
    body = block(maker, inner)
    if is_vector and len(body) == 1 and isinstance(body[0], ir.For):
        body = (*body, ir.Accumulate(label, OF_ACCUMULATOR[label[0]], ir.Const(3, I32)))
    stop = ir.Name(maker.draw(st.sampled_from(["m", "n"])))
    unroll = maker.draw(st.sampled_from([0, 0, 1, 2, 3]))
    return ir.For(var, ir.index(maker.draw(st.integers(0, 3))), stop, body, is_vector, unroll)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_random_kernel_does_what_its_text_says(data: st.DataObject) -> None:
    maker = Maker(data.draw)
    body = (*block(maker, Place(("tile",))), store(maker, Place(("tile",))))
    outputs = tuple(ir.ArrayArg(f"y{at}", I32, "inout") for at in range(len(maker.outputs)))
    arrays = (ir.ArrayArg("x", I32, "in"), *outputs)
    kernel = ir.LoopKernel("random", arrays, ("m", "n"), ir.index(3), "tile", body)
    sizes = {"m": data.draw(st.integers(0, 5)), "n": data.draw(st.integers(0, MOST))}
    want = {"x": np.random.default_rng(0).integers(-9, 99, INPUT_LENGTH).astype(np.int32)}
    want |= {f"y{at}": np.full(n, -7, np.int32) for at, n in enumerate(maker.outputs)}
    given = {key: value.copy() for key, value in want.items()}
    interpreter.run(kernel, want, sizes, 3)

    for target in RUNNABLE:
        got = {key: Guarded(value) for key, value in given.items()}
        compiled(kernel, target).run({key: value.array for key, value in got.items()}, sizes, 3)
        for key, value in got.items():
            value.check()
            assert same(value.array.copy(), want[key]), (target, key)
