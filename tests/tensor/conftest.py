"""Tensors are realized by the oracle here, from graphs that the verifier has passed; when a file of
tests is done, the graphs it made are compiled and compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from numpy.typing import NDArray

from arenite.ir import Graph, Node, evaluate, verify
from arenite.tensor import realize as realization
from arenite.tensor.base import ORIGINS
from tests.tensor.compiled import Recorder


@pytest.fixture(scope="module", autouse=True)
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    made.check()


@pytest.fixture(autouse=True)
def _oracle(
    monkeypatch: pytest.MonkeyPatch, recorder: Recorder, request: pytest.FixtureRequest
) -> None:
    def realize(nodes: Sequence[Node]) -> list[NDArray[Any]]:
        graph = Graph.of(nodes, ORIGINS)
        verify(graph)
        results = evaluate(graph)
        recorder.add(request.node.name, graph, results)
        return results

    monkeypatch.setattr(realization, "realize", realize)
