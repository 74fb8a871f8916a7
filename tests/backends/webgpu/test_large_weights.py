"""Weights that no binding holds lie in several buffers, one after another: the same to the bit as
in one, which other tests judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import arenite
from arenite.dtype import BY_NAME
from arenite.generate.model import LanguageModel
from arenite.ir import Graph, Node, bounds, constant, graph_input, make
from arenite.ir.ops.blocks import matmul_blocks
from tests.backends.webgpu.runner import executable, loaded, run, webgpu
from tests.codegen.block_weights import random_blocks, weights_node
from tests.generate.gguf_models import write_tiny

F32, I64 = BY_NAME["float32"], BY_NAME["int64"]


def x(*shape: int) -> Node:
    return graph_input("x", 0, shape, F32)


def weights(*shape: int, dtype: type = np.float32) -> Node:
    return constant(np.random.default_rng(1).integers(-9, 10, shape).astype(dtype))


def product(w: Node, rows: int) -> Node:
    given = x(rows, bounds(w.shape[1])[1])
    return make("matmul", given, w, transpose_a=False, transpose_b=True)


def of_blocks(name: str, rows: int) -> Node:
    return matmul_blocks(x(rows, 512), weights_node(name, random_blocks(name, 400, 512), 512))


def taken(w: Node) -> Node:
    return make("gather", w, graph_input("x", 0, (60,), I64), axis=0)


#: What is made of weights, and the most bytes of a binding, of which they take two and more.
GRAPHS: dict[str, tuple[Callable[[], Node], int]] = {
    "a row by floats": (lambda: product(weights(700, 64), 1), 50_000),
    "a few rows by halves": (lambda: product(weights(700, 64, dtype=np.float16), 5), 30_000),
    "many rows by floats": (lambda: product(weights(700, 64), 16), 50_000),
    "rows of neither fours nor tiles": (lambda: product(weights(1310, 33), 9), 50_000),
    "a row by blocks": (lambda: of_blocks("q8_0", 1), 50_000),
    "a few rows by blocks": (lambda: of_blocks("q4_k", 6), 30_000),
    "many rows by blocks": (lambda: of_blocks("q4_0", 16), 40_000),
    "rows that indices name": (lambda: taken(weights(700, 64)), 50_000),
    "what is narrower than a word": (lambda: taken(weights(700, 63, dtype=np.int8)), 20_000),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_they_are_read_where_they_go_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = webgpu()
    make_node, largest = GRAPHS[name]
    node, rng = make_node(), np.random.default_rng(2)
    [given] = Graph.of([node]).inputs
    shape = [bounds(n)[1] for n in given.shape]
    array = rng.integers(0, 700, shape) if given.dtype == I64 else rng.standard_normal(shape)
    array = array.astype(given.dtype.to_numpy())
    [whole] = run([node], array)
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(binding_nbytes=largest))
    with executable([node]) as program:
        weights_of = loaded(program).regions.weights
        assert len(weights_of) > 1
        assert all(one.gpu.size <= largest for one in weights_of)
        for results in (program(array), program.run_checked(array)):
            assert results[0].tobytes() == whole.tobytes()
        program.verify()


def test_a_language_model_with_a_large_table_of_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, path = webgpu(), write_tiny("llama-f16", tmp_path)
    tokens, found = [5, 17, 200, 31, 255, 0], []
    for largest in (gpu.limits.binding_nbytes, 20_000):
        monkeypatch.setattr(gpu, "limits", gpu.limits._replace(binding_nbytes=largest))
        with arenite.load(path, context=16, device="webgpu") as model:
            assert isinstance(model, LanguageModel)
            found.append(model.session().feed(tokens))
            is_cut = any(one.rest for one, _ in loaded(model.executable).regions.weight_at.values())
            assert is_cut == (largest == 20_000)
    assert found[0].tobytes() == found[1].tobytes()
