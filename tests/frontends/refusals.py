"""What is expected of a model file that lies: it is read, or refused by one clear error."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from arenite.errors import AreniteError, InvalidFile, NotSupported
from arenite.frontends.language import LanguageFile
from arenite.generate import Settings
from arenite.ir import Graph

#: For tests that write a file for every example.
many_files = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def graph_of(path: Path) -> Graph:
    """Read what a file says and build all of it, but read no weight."""
    graph = Settings(LanguageFile.open(path)).graph
    assert isinstance(graph, Graph)
    return graph


def refused(path: Path, reason: str) -> None:
    """One clear error with the file's name, and memory that does not follow what the file says."""
    tracemalloc.start()
    try:
        with pytest.raises((InvalidFile, NotSupported), match=reason) as caught:
            graph_of(path)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
    assert str(path.name) in str(caught.value)
    assert len(str(caught.value)) < 2000


def read_or_refused(path: Path) -> None:
    try:
        graph_of(path)
    except AreniteError as error:
        if path.name not in str(error):
            raise AssertionError(f"{path} is not named") from error
