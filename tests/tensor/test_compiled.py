"""Tensors through the real pipeline: what the recorder would see, and arrays too large to fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, pipeline
from arenite.ir import Graph, evaluate, make
from arenite.ir.ops import constant
from arenite.passes.simplify import FOLD_NBYTES
from arenite.tensor import concat, where
from arenite.tensor import realize as realization
from tests.pipeline.narrow import NARROW, narrowed
from tests.tensor.compiled import Recorder

Array = NDArray[Any]

X = np.random.default_rng(1).standard_normal((150, 170)).astype(np.float32)
PLACES = np.random.default_rng(2).integers(-150, 150, 300)


def graph_of(op: str, array: Array, **attrs: Any) -> Graph:
    return Graph.of([make(op, constant(array), **attrs)])


def test_the_recorder_names_the_test_whose_graph_differs() -> None:
    right, wrong = graph_of("exp", X[0, :9]), graph_of("sort", X[0, :9], axis=0, descending=True)
    recorder = Recorder()
    recorder.add("test_right", right, evaluate(right))
    recorder.add("test_wrong", wrong, [X[0, :9]])
    assert len(recorder.kept) == 2
    with pytest.raises(AssertionError, match="1 graphs compiled differ:\ntest_wrong") as failure:
        recorder.check()
    assert "sort" in str(failure.value)
    assert "test_right" not in str(failure.value)


def test_the_recorder_keeps_a_graph_for_each_op_dtype_and_rank() -> None:
    recorder = Recorder()
    for array, is_new in (
        (X[0, :9], True),
        (X[1, :7], False),
        (X[:2, :3], True),
        (X[0, :9].astype(np.float16), True),
        (X[:0, 0], True),
        (np.ones((300, 300), np.float32), False),
    ):
        before = len(recorder.kept)
        graph = graph_of("exp", array)
        recorder.add("test", graph, evaluate(graph))
        assert len(recorder.kept) - before == is_new, array.shape


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "elementwise": (lambda x: (x * 2 + 1).tanh(), lambda x: np.tanh(x * 2 + 1)),
    "reduction": (lambda x: x.sum(1).max(), lambda x: x.sum(1).max()),
    "product": (lambda x: x @ x.T, lambda x: x @ x.T),
    "sort": (lambda x: x.sort(0), lambda x: np.sort(x, 0)),
    "scan": (lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    "index": (lambda x: x[PLACES], lambda x: x[PLACES]),
    "movement": (lambda x: x.T.reshape(-1)[::-3], lambda x: x.T.reshape(-1)[::-3]),
    "choice": (lambda x: where(x > 0, x, -x), np.abs),
    "concat": (lambda x: concat([x, x * 2], 1), lambda x: np.concatenate([x, x * 2], 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_large_tensors_are_realized_by_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realization, "realize", pipeline.realize)
    assert X.nbytes > FOLD_NBYTES, "or it would be computed while compiling"
    ours, numpys = FUNCTIONS[name]
    made = ours(arenite.from_numpy(X))
    assert not made.is_realized
    np.testing.assert_allclose(made.numpy(), numpys(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [dtype.name for dtype in NARROW])
def test_tensors_narrower_than_a_byte(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realization, "realize", pipeline.realize)
    held = np.dtype(getattr(ml_dtypes, name))
    small = arenite.from_numpy(np.arange(99, dtype=np.float32) % 2).astype(name)
    assert small.nbytes == -(-99 * small.dtype.bits // 8)
    assert small.numpy().dtype == held
    kept = arenite.from_numpy(small.numpy())
    np.testing.assert_array_equal((small * kept).numpy().astype("f4"), np.arange(99) % 2)
    more = arenite.compile(lambda x: x.reshape(9, 11).T + 1, arenite.spec((99,), name))
    with more:
        exact = narrowed((np.arange(99) % 2).reshape(9, 11).T + 1, small.dtype)
        np.testing.assert_array_equal(more(small.numpy()).astype("f4"), exact.astype("f4"))
