"""Tensor itself: laziness, realization, Python's protocols, origins, depth."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arenite import pipeline
from arenite.errors import NotSupported, ShapeMismatch, SizeMismatch, TypeMismatch
from arenite.ir import Graph, Node, Var, evaluate, text
from arenite.tensor import Tensor, realize_all, spec
from arenite.tensor import realize as realization
from arenite.tensor.base import ORIGINS
from tests.tensor.examples import array, same


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Node]]:
    """What was asked to be realized."""
    asked: list[Sequence[Node]] = []
    behind = realization.realize

    def realize(nodes: Sequence[Node]) -> list[Any]:
        asked.append(nodes)
        return behind(nodes)

    monkeypatch.setattr(realization, "realize", realize)
    return asked


def test_nothing_is_computed_before_it_must_be(runs: list[Any]) -> None:
    t = (Tensor(np.arange(100.0)) + 1).reshape(10, 10).sum(0)
    assert repr(t) == "Tensor(float64[10], lazy sum)"
    assert (t.shape, t.dtype.name, t.ndim, t.size, t.nbytes, len(t)) == (
        (10,),
        "float64",
        1,
        10,
        80,
        10,
    )
    assert runs == []
    assert t.realize() is t
    numbers = "[460., 470., 480., 490., 500., 510., 520., 530., 540., 550.]"
    assert repr(t) == f"Tensor({numbers}, float64[10])"
    assert t.numpy().tolist() == t.tolist() == [460.0 + 10 * i for i in range(10)]
    assert len(runs) == 1


def test_several_are_realized_in_one_run(runs: list[Any]) -> None:
    a = Tensor([1.0, 2.0]) * 2
    b, c = a + 1, a - 1
    done = Tensor([3])
    realize_all(b, c, done)
    assert len(runs) == 1
    assert len(runs[0]) == 2
    same(b, np.array([3.0, 5.0]))
    same(c, np.array([1.0, 3.0]))
    realize_all(b, done)
    assert len(runs) == 1


def test_what_is_realized_is_not_computed_again() -> None:
    a = (Tensor([1.0, 2.0]) * 2).realize()
    assert a.node.op == "buffer"
    assert (a + 1).node.inputs[0] is a.node


def test_realization_goes_through_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    asked: list[Sequence[Node]] = []

    def realize(nodes: Sequence[Node]) -> list[Any]:
        asked.append(nodes)
        return evaluate(Graph.of(nodes))

    monkeypatch.setattr(pipeline, "realize", realize)
    t = Tensor([1, 2]) + 1
    node = t.node
    same(t, np.array([2, 3]))
    [[made]] = asked
    assert (made.op, made.inputs[0].op) == (node.op, "buffer")  # small arrays are arguments


def test_open_sizes_are_not_realized() -> None:
    with pytest.raises(NotSupported, match="sizes that are not bound: n; compile a function"):
        (spec((Var("n", 1, 4),)).argument("x", 0) + 1).numpy()
    with pytest.raises(TypeError, match="its first size is not a number yet"):
        len(spec((Var("n", 1, 4),)).argument("x", 0))


def test_one_element_becomes_a_number() -> None:
    assert Tensor([[3]]).item() == 3
    assert type(Tensor(2.5).item()) is float
    assert type(Tensor(True).item()) is bool
    assert Tensor(1 + 2j).item() == 1 + 2j
    assert type(Tensor([1.5]).astype("bfloat16").item()) is float
    assert type(Tensor([1]).astype("int4").item()) is int
    assert (int(Tensor(2.9)), float(Tensor(2)), complex(Tensor(2)), bool(Tensor([0]))) == (
        2,
        2.0,
        2 + 0j,
        False,
    )
    assert [10, 20, 30][Tensor(1)] == 20
    assert f"{Tensor(2.5).item():.1f}" == "2.5"
    with pytest.raises(SizeMismatch, match=r"int64\[2\] has 2 elements, not one"):
        Tensor([1, 2]).item()
    with pytest.raises(SizeMismatch):
        bool(Tensor([1, 2]) == Tensor([1, 2]))
    with pytest.raises(TypeMismatch, match="no real number"):
        float(Tensor(1j))
    for wrong in (Tensor(1.5), Tensor([1])):
        with pytest.raises(TypeError, match="only an integer tensor of no axes"):
            [1, 2][wrong]


def test_len_and_iteration() -> None:
    rows = list(Tensor([[1, 2], [3, 4]]))
    assert [row.tolist() for row in rows] == [[1, 2], [3, 4]]
    a, b = Tensor([5, 6])
    assert (a.item(), b.item()) == (5, 6)
    with pytest.raises(TypeError, match="has no len"):
        len(Tensor(1))
    assert 5 in [t.item() for t in Tensor([5])]


def test_numpy_takes_tensors() -> None:
    t = Tensor([1, 2]) + 1
    assert np.asarray(t).tolist() == [2, 3]
    assert not np.asarray(t).flags.writeable
    copied = np.array(t)
    copied[0] = 9
    assert t.tolist() == [2, 3]
    assert np.asarray(t, np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(t, np.float32, copy=False)
    assert t.copy() is t


def test_tensors_hash_by_identity() -> None:
    a, b = Tensor([1]), Tensor([1])
    assert len({a, b, a}) == 2


def test_errors_come_at_the_users_line_with_both_shapes() -> None:
    a, b = Tensor(np.zeros((2, 3))), Tensor(np.zeros((4, 5)))
    with pytest.raises(ShapeMismatch, match=r"add: shapes \(2, 3\) and \(4, 5\)") as caught:
        a + b
    assert Path(caught.traceback[0].path).name == "test_tensor.py"
    batch = spec((Var("batch", 1, 8), 3)).argument("x", 0)
    with pytest.raises(ShapeMismatch, match=r"shapes \(batch, 3\) and \(2, 3\)"):
        batch + a


def test_origins_are_the_users_lines() -> None:
    t = Tensor(np.arange(5.0) + 17.25)
    line = sys._getframe().f_lineno + 1
    soft = t.softmax()
    (origin,) = ORIGINS.of(soft.node)
    assert (origin.file, origin.line) == (__file__, line)
    # What softmax is made of has it too, and t keeps its own.
    inner = soft.node.inputs[0]
    assert ORIGINS.of(inner) == (origin,)
    assert ORIGINS.of(t.node)[0].line == line - 2
    again = t.softmax()
    assert again.node is soft.node
    assert [o.line for o in ORIGINS.of(soft.node)] == [line, line + 7]
    assert f"# {__file__}:{line}" in text(Graph.of([soft.node], ORIGINS))


def test_a_chain_of_100_000_tensors() -> None:
    t = Tensor(np.arange(100, dtype=np.int32))
    before = len(ORIGINS)
    last = t
    for _ in range(100_000):
        last = -last
    assert repr(last) == "Tensor(int32[100], lazy neg)"
    graph = Graph.of([last.node])
    assert len(graph) == 100_001
    same(evaluate(graph)[0], np.arange(100, dtype=np.int32))
    del last, graph
    gc.collect()
    assert len(ORIGINS) <= before + 1


def test_views_of_views_and_shared_parts() -> None:
    x = array(np.dtype("float32"), (4, 6), edges=False)
    t = Tensor(x)
    view = t[1:].T[::-1].reshape(3, -1)[:, 1:4]
    expected = x[1:].T[::-1].reshape(3, -1)[:, 1:4]
    same(view * view + view.sum(), expected * expected + expected.sum(), 1e-5)
