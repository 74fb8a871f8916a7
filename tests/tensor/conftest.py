"""Tensors are realized by the oracle here, from graphs that the verifier has passed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from numpy.typing import NDArray

from arenite.ir import Graph, Node, evaluate, verify
from arenite.tensor import ORIGINS
from arenite.tensor import realize as realization


@pytest.fixture(autouse=True)
def _oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    def realize(nodes: Sequence[Node]) -> list[NDArray[Any]]:
        graph = Graph.of(nodes, ORIGINS)
        verify(graph)
        return evaluate(graph)

    monkeypatch.setattr(realization, "realize", realize)
