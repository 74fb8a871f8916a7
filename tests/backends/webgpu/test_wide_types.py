"""Numbers of 64 bits on a device that has none: pairs of words, held to the reference, and a page
that says of every op where it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.device import webgpu as module
from arenite.device.webgpu import WebGpuAllocator
from arenite.device.webgpu_adapters import adapters_for
from arenite.ir import reference
from arenite.ir.dim import bounds
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.pipeline.program import compile_program
from arenite.program.options import Options
from tests.backends.webgpu.runner import devices_of, webgpu
from tests.backends.webgpu.wide_types import PAGE, TYPES, page, wide_examples
from tests.ir.op_examples import numbers


def cells() -> dict[tuple[str, str], str]:
    """Where an op of a type runs, as the page has it."""
    found: dict[tuple[str, str], str] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            op, *words = (cell.strip(" `") for cell in line.strip("|").split("|"))
            found |= {(op, dtype): word for dtype, word in zip(TYPES, words, strict=True)}
    return found


def test_the_page_is_what_is_built() -> None:
    assert page() == PAGE.read_text()
    assert {*cells().values()} == {"device", "feature", "CPU", ""}


@pytest.fixture(scope="module")
def bare() -> Iterator[Options]:
    """A device of WGSL's core alone."""
    webgpu()
    adapter = adapters_for("webgpu")[0]
    module._opened["bare"] = WebGpuAllocator("webgpu:bare", adapter, features=())
    yield Options(device="webgpu:bare")
    del module._opened["bare"]


def sizes(node: Node) -> tuple[int, ...]:
    return tuple(bounds(size)[1] for size in node.shape)


def edges(node: Node) -> NDArray[Any]:
    """Numbers up to the ends of a type, and many that are alike in one word."""
    if node.dtype.name not in TYPES:
        return numbers(node)
    rng, shape = np.random.default_rng(node.attr("index")), sizes(node)
    if node.dtype.name == "float64":
        return rng.normal(size=shape) * 10.0 ** rng.integers(-300, 300, shape)
    bits = rng.integers(0, 2**64, shape, np.uint64)
    parts = [
        bits,
        bits & np.uint64(0xFFFFFFFF),
        bits | np.uint64(0xFFFFFFFF00000000),
        np.array([0, 1, 2**63, 2**64 - 1], np.uint64)[rng.integers(0, 4, shape)],
    ]
    chosen: NDArray[Any] = np.array(parts)[rng.integers(0, len(parts), shape), *np.indices(shape)]
    return chosen.view(np.int64) if node.dtype.name == "int64" else chosen


OF_CORE = sorted(place for place, word in cells().items() if word == "device")


@pytest.mark.parametrize("place", OF_CORE, ids=" ".join)
def test_without_such_numbers_they_are_pairs_of_words(
    place: tuple[str, str], bare: Options
) -> None:
    node = wide_examples(place[1])[place[0]]
    graph = Graph.of([node])
    arrays = [edges(one) for one in graph.inputs]
    with np.errstate(all="ignore"):
        [wanted] = reference.evaluate(graph, list(arrays))
    with compile_program(graph, bare) as program:
        [found] = program(*arrays)
        assert devices_of(program) == {"webgpu:bare"}
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("place", [("sum", "int64"), ("floordiv", "uint64"), ("exp", "float64")])
def test_what_is_not_done_so_runs_on_the_cpu_and_is_listed(
    place: tuple[str, str], bare: Options
) -> None:
    assert cells()[place] == "feature"
    graph = Graph.of([wide_examples(place[1])[place[0]]])
    arrays = [np.full(sizes(one), 2, place[1]) for one in graph.inputs]
    [wanted] = reference.evaluate(graph, list(arrays))
    with compile_program(graph, bare) as program:
        [found] = program(*arrays)
        assert devices_of(program) == {"cpu"}
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
