"""Pages lent to texts, judged by a pool that keeps the tokens of every page and looks through all
of them: no page is written while another text reads it, and what is shared is what it should be."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.errors import InvalidArgument
from arenite.serve.pages import Lease, PagePool, digests_of, page_digest

PAGE = 4


@dataclass(eq=False)
class Reader:
    """A text that reads its tokens into pages, as an engine does it."""

    lease: Lease
    tokens: list[int]
    n_read: int = 0


@dataclass
class Simulation:
    """The pool, and what is in its pages: for each its tokens with all those before them."""

    pool: PagePool
    content: dict[int, tuple[int, ...]] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    #: Pages that were given back and hold something, the first of them first.
    idle: list[int] = field(default_factory=list)
    #: All tokens up to the end of a page, and the first page that was filled with them.
    first: list[tuple[tuple[int, ...], int]] = field(default_factory=list)

    def known(self, tokens: list[int]) -> int | None:
        """The page that texts which begin with these tokens get."""
        return next((page for held, page in self.first if held == tuple(tokens)), None)

    def open(self, tokens: list[int], n_more: int) -> None:
        n_tokens = len(tokens) + n_more
        n_lent = len({page for reader in self.readers for page in reader.lease.pages})
        owed = sum(reader.lease.n_reserved for reader in self.readers)
        shared = []
        for end in range(PAGE, len(tokens) + 1, PAGE):
            page = self.known(tokens[:end])
            if page is None:
                break
            shared.append(page)
        woken = [page for page in shared if page in self.idle]
        needed = -(-n_tokens // PAGE) - len(shared)
        fits = needed <= self.pool.n_pages - n_lent - len(woken) - owed
        lease = self.pool.opened(n_tokens, digests_of(tokens, PAGE))
        assert (lease is not None) == fits
        if lease is None:
            return
        assert lease.pages == shared
        self.idle = [page for page in self.idle if page not in lease.pages]
        reader = Reader(lease, tokens, len(shared) * PAGE)
        self.readers.append(reader)
        self.check_content(reader)

    def read(self, reader: Reader, token: int) -> None:
        """One more token: one of the prompt, or else one that was made."""
        if reader.n_read == len(reader.tokens):
            if len(reader.tokens) % PAGE == 0 and not reader.lease.n_reserved:
                return
            reader.tokens.append(token)
        lease = reader.lease
        if reader.n_read == len(lease.pages) * PAGE:
            free = self.pool.n_free
            page = lease.take()
            users = [one for one in self.readers if page in one.lease.pages]
            assert users == [reader]
            if not free:
                assert page == self.idle.pop(0)
            else:
                assert page not in self.idle
            self.first = [one for one in self.first if one[1] != page]
        page = lease.pages[-1]
        others = [one for one in self.readers if one is not reader and page in one.lease.pages]
        assert not others, "a page is written that another text reads"
        reader.n_read += 1
        self.content[page] = tuple(reader.tokens[: reader.n_read])
        if reader.n_read % PAGE == 0:
            start = reader.n_read - PAGE
            before = lease.digests[-1] if lease.digests else b""
            lease.filled(page_digest(before, reader.tokens[start : reader.n_read]))
            if self.known(reader.tokens[: reader.n_read]) is None:
                self.first.append((self.content[page], page))
        self.check_content(reader)

    def close(self, reader: Reader) -> None:
        pages = [*reader.lease.pages]
        reader.lease.close()
        self.readers.remove(reader)
        lent = {page for one in self.readers for page in one.lease.pages}
        known = {page for _, page in self.first}
        self.idle += [page for page in reversed(pages) if page not in lent and page in known]

    def check_content(self, reader: Reader) -> None:
        for number, page in enumerate(reader.lease.pages):
            end = min((number + 1) * PAGE, reader.n_read)
            assert self.content[page] == tuple(reader.tokens[:end])

    def check_counts(self) -> None:
        lent = {page for reader in self.readers for page in reader.lease.pages}
        assert self.pool.n_lent == len(lent)
        assert list(self.pool._idle) == self.idle
        assert self.pool.n_free == self.pool.n_pages - len(lent) - len(self.idle)
        owed = sum(reader.lease.n_reserved for reader in self.readers)
        assert owed <= self.pool.n_free + self.pool.n_idle


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_what_texts_read_is_what_they_wrote(data: st.DataObject) -> None:
    simulation = Simulation(PagePool(data.draw(st.integers(2, 8)), PAGE))
    most = simulation.pool.n_pages * PAGE
    for _ in range(data.draw(st.integers(1, 25))):
        readers = simulation.readers
        action = data.draw(st.sampled_from(["open", "read", "read", "close"]))
        if action == "open" or not readers:
            # Few tokens: beginnings are often alike.
            tokens = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=most))
            simulation.open(tokens, data.draw(st.integers(0, most - len(tokens))))
        else:
            reader = data.draw(st.sampled_from(readers))
            if action == "read":
                for _ in range(data.draw(st.integers(1, 2 * PAGE))):
                    simulation.read(reader, data.draw(st.integers(0, 1)))
            else:
                simulation.close(reader)
        simulation.check_counts()
    for reader in [*simulation.readers]:
        simulation.close(reader)
    simulation.check_counts()
    assert simulation.pool.n_lent == 0


def test_the_page_that_was_given_back_first_goes_first() -> None:
    pool = PagePool(3, PAGE)
    for token in (1, 2, 3):
        lease = pool.opened(PAGE)
        assert lease is not None
        lease.take()
        lease.filled(page_digest(b"", [token] * PAGE))
        lease.close()
    assert (pool.n_free, pool.n_idle) == (0, 3)
    first = pool.opened(2 * PAGE, digests_of([1] * PAGE, PAGE))  # the oldest is used again
    assert first is not None
    assert len(first.pages) == 1
    first.take()  # that of token 2
    known = [pool.opened(PAGE, digests_of([token] * PAGE, PAGE)) for token in (3, 2)]
    assert known[0] is not None
    assert len(known[0].pages) == 1
    assert known[1] is None


def test_more_than_there_is_is_refused() -> None:
    pool = PagePool(3, PAGE)
    with pytest.raises(InvalidArgument, match="there are 3"):
        pool.opened(3 * PAGE + 1)
    lease = pool.opened(PAGE)
    assert lease is not None
    lease.take()
    with pytest.raises(InvalidArgument, match="reserved"):
        lease.take()
    assert pool.opened(2 * PAGE + 1) is None
    assert pool.opened(2 * PAGE) is not None
    assert "1 lent" in repr(pool)


def test_digests_tell_pages_by_all_that_is_before_them() -> None:
    one, other = digests_of([1, 2, 3, 4, 5, 6, 7, 8, 9], PAGE), digests_of([9, 2, 3, 4], PAGE)
    assert len(one) == 2
    assert one[0] != other[0]
    assert digests_of([0, 0, 0, 0, 5, 6, 7, 8], PAGE)[1] != one[1]
    assert digests_of([1, 2, 3, 4, 5, 6, 7, 8], PAGE) == one
    assert digests_of([1, 2, 3], PAGE) == []
