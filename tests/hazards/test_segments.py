"""ByteMap: the shape it must keep whatever is read and written."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.hazards.history import Seen
from arenite.hazards.segments import ByteMap, Page

Access = tuple[int, int, bool]

accesses = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 20), st.booleans()), max_size=30
).map(lambda drawn: [(start, start + nbytes, is_write) for start, nbytes, is_write in drawn])


def wide_writers(pages: list[Page], found: dict[int, Seen]) -> set[int]:
    inside = {writer.position for page in pages for writer in page.writers if writer is not None}
    return inside | set(found)


@pytest.mark.parametrize("page_segments", [2, 3, 192])
@given(steps=accesses)
def test_segments_stay_in_rising_order_in_bounded_pages(
    page_segments: int, steps: list[Access]
) -> None:
    bytes_of = ByteMap()
    with patch("arenite.hazards.segments._PAGE_SEGMENTS", page_segments):
        for position, (start, end, is_write) in enumerate(steps):
            seen = Seen(position, [], [])
            if is_write:
                bytes_of.write(start, end, seen, {})
            else:
                bytes_of.read(start, end, seen, {}, [])
            starts = [start for page in bytes_of.pages for start in page.starts]
            assert starts[0] == 0
            assert all(low < high for low, high in pairwise(starts))
            assert bytes_of.firsts == [page.starts[0] for page in bytes_of.pages]
            for page in bytes_of.pages:
                assert len(page.starts) == len(page.writers) == len(page.readers)
                assert len(page.starts) <= page_segments + 1
                assert all(w is None or w.position <= page.latest for w in page.writers)


@pytest.mark.parametrize("page_segments", [2, 3, 192])
@given(steps=accesses)
def test_each_access_finds_the_last_writers_or_the_readers_since(
    page_segments: int, steps: list[Access]
) -> None:
    bytes_of = ByteMap()
    writers: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    with patch("arenite.hazards.segments._PAGE_SEGMENTS", page_segments):
        for position, (start, end, is_write) in enumerate(steps):
            seen = Seen(position, [], [])
            found: dict[int, Seen] = {}
            expected = set()
            if is_write:
                bytes_of.write(start, end, seen, found)
                for byte in range(start, end):
                    last = {writers[byte]} if byte in writers else set()
                    expected |= readers.pop(byte, set()) or last
                    writers[byte] = position
                assert set(found) == expected
            else:
                wide: list[Page] = []
                bytes_of.read(start, end, seen, found, wide)
                for byte in range(start, end):
                    readers.setdefault(byte, set()).add(position)
                    expected |= {writers[byte]} if byte in writers else set()
                assert wide_writers(wide, found) == expected


def test_a_page_knows_its_writers_after_they_changed() -> None:
    bytes_of = ByteMap()
    bytes_of.write(0, 4, Seen(0, [], []), {})
    (page,) = bytes_of.pages
    assert page.has_writer_among(0b001)
    bytes_of.write(4, 8, Seen(1, [], []), {})
    assert page.has_writer_among(0b010)
    bytes_of.write(0, 8, Seen(2, [], []), {})
    assert not page.has_writer_among(0b011)
    assert page.has_writer_among(0b100)
