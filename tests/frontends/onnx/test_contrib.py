"""Operators of com.microsoft against what ONNX Runtime made of the same models, and against NumPy
where it has them for other devices alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.dtype import of as dtype_of
from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.translate import Argument, translate
from arenite.ir import Dim, Graph, Var, evaluate
from arenite.pipeline.program import compile_program
from tests.frontends.onnx.contrib_cases import stored
from tests.frontends.onnx.contrib_node import Case, Numbers, fed, model_of

Array = NDArray[Any]
CASES = stored()


def graph_of(case: Case, sizes: Mapping[int, Dim] | None = None) -> Graph:
    """`sizes` stay open: these of the inputs' sizes."""
    file = OnnxFile.of_bytes(model_of(case).SerializeToString(), "m.onnx")
    given = {}
    for name, one in fed(case).items():
        shape = tuple(size if sizes is None else sizes.get(size, size) for size in one.shape)
        given[name] = Argument(shape, dtype_of(one.dtype))
    return translate(file, given).graph


def referred(case: Case) -> list[Array]:
    return evaluate(graph_of(case), list(fed(case).values()))


def compiled(case: Case, graph: Graph) -> list[Array]:
    with compile_program(graph, threads=1) as program:
        return list(program(*fed(case).values()))


def compare(case: Case, results: list[Array], wanted: list[Array]) -> None:
    assert len(results) == len(wanted)
    for one, other in zip(results, wanted, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", CASES)
def test_is_what_onnx_runtime_makes_of_it(name: str) -> None:
    case, wanted = CASES[name]
    compare(case, referred(case), wanted)


@pytest.mark.parametrize("name", CASES)
def test_is_that_compiled_too(name: str) -> None:
    case, wanted = CASES[name]
    compare(case, compiled(case, graph_of(case)), wanted)


#: Cases, and which of their sizes stay open until a run.
OPEN: dict[str, dict[int, Dim]] = {
    "norms.skip": {2: Var("batch", 1, 8), 3: Var("length", 1, 64)},
    "norms.embed": {2: Var("batch", 1, 8), 4: Var("length", 1, 6)},
    "masked.mask_2d": {2: Var("batch", 1, 8), 5: Var("length", 1, 64)},
    "masked.causal_mask": {2: Var("batch", 1, 8), 5: Var("length", 1, 64)},
    "multi_head.mask": {2: Var("batch", 1, 8), 4: Var("queries", 1, 64), 6: Var("keys", 1, 64)},
    "rotary.plain": {2: Var("batch", 1, 8), 5: Var("length", 1, 64)},
    "rotary.offset": {2: Var("batch", 1, 8), 5: Var("length", 1, 64)},
    "few_bits.four_zeros": {2: Var("batch", 1, 8), 3: Var("length", 1, 64)},
}


@pytest.mark.parametrize("name", OPEN)
def test_sizes_may_be_open(name: str) -> None:
    case, wanted = CASES[name]
    compare(case, compiled(case, graph_of(case, OPEN[name])), wanted)


def test_a_cache_of_open_length() -> None:
    """With how long the sequence is as a size of another input, as models have it."""
    from onnx import helper

    case, wanted = CASES["grouped.turned_step"]
    whole = replace(case, constants=(7, 8))
    model = model_of(whole)
    # total_sequence_length is the size of a mask.
    [node] = model.graph.node
    node.input[6] = "total"
    for at, one in enumerate(model.graph.input):
        if one.name == "x6":
            one.CopyFrom(helper.make_tensor_value_info("mask", 1, [2, 7]))
            assert at == len(model.graph.input) - 1
    shape = helper.make_node("Shape", ["mask"], ["sizes"], start=1, end=2)
    number = helper.make_node("Cast", ["sizes"], ["total"], to=6)
    model.graph.node.insert(0, shape)
    model.graph.node.insert(1, number)
    file = OnnxFile.of_bytes(model.SerializeToString(), "m.onnx")
    past, total = Var("past", 1, 100), Var("total", 1, 100)
    arrays = [*list(fed(whole).values())[:-1], np.ones((2, 7), np.float32)]
    given = {}
    for name, array in zip(file.inputs, arrays, strict=True):
        sizes: dict[int, Dim] = {6: past, 7: total}
        shape_of = tuple(sizes.get(size, size) for size in array.shape)
        given[name] = Argument(shape_of, dtype_of(array.dtype))
    with compile_program(translate(file, given).graph, threads=1) as program:
        compare(case, list(program(*arrays)), wanted)


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def attended(q: Array, k: Array, v: Array) -> Array:
    """Of [batch, heads, length, width], joined."""
    made = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])) @ v
    joined = made.swapaxes(1, 2).reshape(q.shape[0], q.shape[2], -1)
    return np.asarray(joined, np.float32)


def test_packed_queries_keys_and_values() -> None:
    x = Numbers(0)(2, 4, 3, 3, 5)
    q, k, v = (x[:, :, :, at].swapaxes(1, 2) for at in range(3))
    case = Case("MultiHeadAttention", [x], {"num_heads": 3})
    compare(case, referred(case), [attended(q, k, v)])


def test_packed_keys_and_values() -> None:
    n = Numbers(0)
    q, x = n(2, 4, 15), n(2, 6, 3, 2, 5)
    k, v = (x[:, :, :, at].swapaxes(1, 2) for at in range(2))
    case = Case("MultiHeadAttention", [q, x], {"num_heads": 3})
    compare(case, referred(case), [attended(q.reshape(2, 4, 3, 5).swapaxes(1, 2), k, v)])


def test_bias_split_gelu() -> None:
    n = Numbers(0)
    x, bias = n(2, 3, 10), n(10)
    left, right = np.split(x + bias, 2, -1)
    wanted = left * right * (0.5 + 0.5 * np.vectorize(math.erf)(right / math.sqrt(2)))
    case = Case("BiasSplitGelu", [x, bias])
    compare(case, referred(case), [wanted.astype(np.float32)])


def test_bias_add() -> None:
    n = Numbers(0)
    x, bias, skip = n(2, 3, 4), n(4), n(2, 3, 4)
    case = Case("BiasAdd", [x, bias, skip])
    compare(case, referred(case), [x + bias + skip])


def grouped_norm(x: Array, groups: int, gamma: Array, beta: Array) -> Array:
    """Of x[N, H, W, C], followed by silu."""
    n, h, w, c = x.shape
    split = x.reshape(n, h, w, groups, c // groups)
    away = split - split.mean((1, 2, 4), keepdims=True)
    made = away / np.sqrt((away**2).mean((1, 2, 4), keepdims=True) + 1e-3)
    y = made.reshape(x.shape) * gamma + beta
    return np.asarray(y / (1 + np.exp(-y)), np.float32)


@pytest.mark.parametrize("last", [True, False])
def test_group_norm(last: bool) -> None:
    n = Numbers(0)
    x, gamma, beta, skip, bias = n(2, 4, 3, 6), n(6), n(6), n(2, 6), n(6)
    attrs = {"groups": 2, "activation": 1, "epsilon": 1e-3, "channels_last": int(last)}
    given = x if last else x.transpose(0, 3, 1, 2)

    def shown(array: Array) -> Array:
        return array if last else array.transpose(0, 3, 1, 2)

    case = Case("GroupNorm", [given, gamma, beta], attrs)
    compare(case, referred(case), [shown(grouped_norm(x, 2, gamma, beta))])
    total = x + skip[:, None, None] + bias
    case = Case("SkipGroupNorm", [given, gamma, beta, skip, bias], attrs, ("y", "sum"))
    compare(case, referred(case), [shown(grouped_norm(total, 2, gamma, beta)), shown(total)])


def test_convolution_with_channels_last() -> None:
    case, [wanted] = CASES["products.conv_sum"]
    x, w, bias, z = case.inputs
    assert x is not None
    assert z is not None
    turned = [x.transpose(0, 2, 3, 1), w, bias, z.transpose(0, 2, 3, 1)]
    other = replace(case, op="NhwcFusedConv", inputs=turned)
    compare(other, referred(other), [wanted.transpose(0, 2, 3, 1)])


REFUSED: dict[str, tuple[Case, type[Exception], str]] = {
    "a quantised cache": (
        replace(CASES["grouped.step"][0],
                attrs={"num_heads": 4, "kv_num_heads": 2, "k_quant_type": "PER_TENSOR"}),
        NotSupported, "quantised cache",
    ),
    "heads that do not divide": (
        replace(CASES["multi_head.plain"][0], attrs={"num_heads": 5}), InvalidFile, "5 heads",
    ),
    "bits": (
        replace(CASES["few_bits.four"][0],
                attrs={"K": 40, "N": 5, "block_size": 16, "bits": 3}),
        NotSupported, "3 bits",
    ),
    "weights of another size": (
        replace(CASES["few_bits.four"][0],
                attrs={"K": 40, "N": 6, "block_size": 16, "bits": 4}),
        InvalidFile, "input 1 has shape",
    ),
    "an activation": (
        replace(CASES["products.conv"][0], attrs={"activation": "Exp"}), NotSupported, "'Exp'",
    ),
    "a metric": (
        replace(CASES["others.cdist"][0], attrs={"metric": "cosine"}), NotSupported, "'cosine'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_says_what_is_not_to_be_had(name: str) -> None:
    case, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words) as caught:
        graph_of(case)
    assert "m.onnx, node it" in str(caught.value) or "'it'" in str(caught.value)
