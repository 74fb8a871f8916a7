"""Random numbers: functions of a seed, the node and the position, the same in every run.

A seed that is given counts; without one, each node of a model has numbers of its own. They are not
those of another runtime, which the standard does not ask for.
"""

from __future__ import annotations

import struct

from arenite.dtype import FLOAT32, INT32, UINT64, DType
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.registry import Result, operator
from arenite.ir import Dim, Node, full, make
from arenite.ir.compose import basic, random


def seed_of(call: Call) -> tuple[Node, int]:
    """(seed, counter) of a node; the counter tells nodes without a seed apart."""
    call.translator.n_random += 1
    given = call.attr("seed")
    if given is None:
        return full((), 0, UINT64), call.translator.n_random
    [bits] = struct.unpack("<I", struct.pack("<f", given))
    return full((), bits, UINT64), 0


def _like(call: Call) -> tuple[tuple[Dim, ...], DType]:
    value = call.value(0)
    return value.shape, call.dtype_attr("dtype", value.dtype)


def _given(call: Call) -> tuple[tuple[Dim, ...], DType]:
    shape = tuple(call.need_attr("shape"))
    if any(one < 0 for one in shape):
        call.fail(f"a shape of {shape}")
    return shape, call.dtype_attr("dtype", FLOAT32)


def _normal(call: Call, shape: tuple[Dim, ...], dtype: DType) -> Node:
    numbers = random.normal(*seed_of(call), shape, dtype)
    return numbers * float(call.attr("scale", 1.0)) + float(call.attr("mean", 0.0))


def _uniform(call: Call, shape: tuple[Dim, ...], dtype: DType) -> Node:
    low, high = float(call.attr("low", 0.0)), float(call.attr("high", 1.0))
    numbers = random.uniform(*seed_of(call), shape, dtype)
    return numbers * (high - low) + low


@operator("RandomNormal", pure=False)
def random_normal(call: Call) -> Result:
    return _normal(call, *_given(call))


@operator("RandomNormalLike", pure=False)
def random_normal_like(call: Call) -> Result:
    return _normal(call, *_like(call))


@operator("RandomUniform", pure=False)
def random_uniform(call: Call) -> Result:
    return _uniform(call, *_given(call))


@operator("RandomUniformLike", pure=False)
def random_uniform_like(call: Call) -> Result:
    return _uniform(call, *_like(call))


@operator("Bernoulli", since=15, pure=False)
def bernoulli(call: Call) -> Result:
    chance = call.node(0)
    numbers = random.uniform(*seed_of(call), chance.shape, chance.dtype)
    return basic.cast(numbers < chance, call.dtype_attr("dtype", chance.dtype))


@operator("Multinomial", pure=False)
def multinomial(call: Call) -> Result:
    """Classes drawn with the chances exp(x) of each row: the largest of x plus Gumbel noise."""
    x = call.node(0)
    if x.ndim != 2:
        call.fail(f"its input has {x.ndim} axes, not 2")
    count = call.attr("sample_size", 1)
    rows, classes = x.shape
    shape = (rows, count, classes)
    numbers = random.uniform(*seed_of(call), shape, FLOAT32)
    # 1 - u is never 0, and its logarithm is 0 only where u is.
    spread = -make("log", 1.0 - numbers)
    noise = -make("log", spread)
    logits = basic.broadcast_to(basic.expand_dims(basic.cast(x, FLOAT32), 1), shape)
    best = make("argmax", logits + noise, axis=2)
    return basic.cast(best, call.dtype_attr("dtype", INT32))
