"""Operators on elements: arithmetic, functions, comparisons, logic, casts."""

from __future__ import annotations

from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Handler, Result, operator
from arenite.ir import make
from arenite.ir.compose import basic

#: Operators of one input to ops of the IR.
UNARY = {
    "Abs": "abs",
    "Ceil": "ceil",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "log",
    "Neg": "neg",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}

BINARY = {"Add": "add", "Mul": "mul", "Sub": "sub"}


def _unary(op: str) -> Handler:
    return lambda call: make(op, call.node(0))


def _binary(op: str) -> Handler:
    return lambda call: basic.binary(op, call.node(0), call.node(1))


for _name, _op in UNARY.items():
    operator(_name)(_unary(_op))
for _name, _op in BINARY.items():
    operator(_name, since=7)(_binary(_op))


@operator("Identity")
def identity(call: Call) -> Result:
    return call.any(0)
