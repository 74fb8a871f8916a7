"""Who wrote each byte last, judged byte by byte."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.backends.cpu.execution.dataflow import _Memory

SPANS = st.tuples(st.integers(0, 20), st.integers(0, 20))


@settings(max_examples=100, deadline=None)
@given(
    writes=st.lists(st.tuples(SPANS, st.integers(0, 3)), max_size=8),
    asked=st.lists(st.tuples(SPANS, st.none() | st.integers(0, 3)), max_size=4),
)
def test_the_first_byte_of_another_writer_is_found(
    writes: list[tuple[tuple[int, int], int]], asked: list[tuple[tuple[int, int], int | None]]
) -> None:
    memory = _Memory()
    bytes_of: dict[int, int] = {}
    for (start, end), writer in writes:
        memory.write(start, end, writer)
        bytes_of |= dict.fromkeys(range(start, end), writer)
    for (start, end), meant in asked:
        others = [at for at in range(start, end) if bytes_of.get(at) != meant]
        found = (others[0], bytes_of.get(others[0])) if others else (end, meant)
        assert memory.stranger(start, end, meant) == found
