"""The bytes of a state that a kernel touches, held against the elements NumPy finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import dtype
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops import full, graph_input, make
from arenite.schedule import fuse

INT64 = dtype.of("int64")


def state(shape: tuple[int, ...]) -> Node:
    return make("state", name="s", shape=shape, dtype=INT64)


@st.composite
def pieces(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[slice, ...], tuple[int, ...]]:
    """A shape, a slice of each axis that is not empty, and an order of axes."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    slices = []
    for size in shape:
        start = draw(st.integers(0, size - 1))
        if draw(st.booleans()):
            slices.append(slice(start, draw(st.integers(start + 1, size)), draw(st.integers(1, 3))))
        else:
            slices.append(slice(start, draw(st.integers(-1, start - 1)), -draw(st.integers(1, 2))))
    return shape, tuple(slices), tuple(draw(st.permutations(range(len(shape)))))


def numbers_of(shape: tuple[int, ...], slices: tuple[slice, ...]) -> NDArray[Any]:
    numbered = np.arange(np.prod(shape)).reshape(shape)
    # NumPy reads a stop of -1 as the last element.
    wanted = (slice(s.start, None if s.stop < 0 else s.stop, s.step) for s in slices)
    return numbered[tuple(wanted)]


@given(pieces())
@settings(deadline=None)
def test_a_kernel_reads_exactly_the_hull_of_its_elements(
    drawn: tuple[tuple[int, ...], tuple[slice, ...], tuple[int, ...]],
) -> None:
    shape, slices, axes = drawn
    piece = make(
        "slice",
        state(shape),
        start=tuple(s.start for s in slices),
        stop=tuple(s.stop for s in slices),
        step=tuple(s.step for s in slices),
    )
    [kernel] = fuse(Graph.of([make("neg", make("permute", piece, axes=axes))])).kernels
    elements = numbers_of(shape, slices)
    hull = 8 * int(elements.min()), 8 * (int(elements.max()) + 1)
    whole = 0, 8 * int(np.prod(shape))
    assert kernel.parts == (() if hull == whole else ((0, *hull),))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
@settings(deadline=None)
def test_an_update_touches_exactly_the_hull_of_the_rows_it_replaces(
    sizes: list[int], data: st.DataObject
) -> None:
    shape = tuple(sizes)
    axis = data.draw(st.integers(0, len(shape) - 1))
    at = data.draw(st.integers(0, shape[axis] - 1))
    count = data.draw(st.integers(1, shape[axis] - at))
    old = state(shape)
    rows = graph_input("rows", 0, (*shape[:axis], count, *shape[axis + 1 :]), INT64)
    new = make("update_slice", old, rows, full((), at, INT64), axis=axis)
    [kernel] = [
        one
        for one in fuse(Graph((rows,), (), (), updates=((old, new),))).kernels
        if rows in one.inputs
    ]
    where = [slice(0, size) for size in shape]
    where[axis] = slice(at, at + count)
    elements = numbers_of(shape, tuple(slice(s.start, s.stop, 1) for s in where))
    hull = 8 * int(elements.min()), 8 * (int(elements.max()) + 1)
    touched = [k for k, node in enumerate((*kernel.inputs, *kernel.outputs)) if node in (old, new)]
    assert len(touched) == 2
    is_whole = hull == (0, 8 * int(np.prod(shape)))
    assert kernel.parts == (() if is_whole else tuple((k, *hull) for k in touched))


@pytest.mark.parametrize("at", [-1, 3, None])
def test_rows_that_are_not_known_or_lie_outside_are_the_whole_value(at: int | None) -> None:
    old = state((4, 3))
    rows = graph_input("rows", 0, (2, 3), INT64)
    start = graph_input("at", 1, (), INT64) if at is None else full((), at, INT64)
    new = make("update_slice", old, rows, start, axis=0)
    inputs = (rows, start) if at is None else (rows,)
    kernels = fuse(Graph(inputs, (), (), updates=((old, new),))).kernels
    assert not any(kernel.parts for kernel in kernels)


def test_a_state_that_is_put_into_itself_is_read_as_a_whole() -> None:
    old = state((4, 3))
    first = make("slice", old, start=(0, 0), stop=(1, 3), step=(1, 1))
    new = make("update_slice", old, first, full((), 2, INT64), axis=0)
    [copy, *_, update] = fuse(Graph((), (), (), updates=((old, new),))).kernels
    assert copy.parts == ((0, 0, 24),)
    assert {part[1:] for part in update.parts} == {(48, 72)}
    again = make("update_slice", old, old, full((), 0, INT64), axis=0)
    assert not any(k.parts for k in fuse(Graph((), (), (), updates=((old, again),))).kernels)
