"""PagePool: pages of keys and values, lent to texts; those of common beginnings are lent to many.

A page holds so many tokens of one text. A full one is known by a digest of all tokens up to its
end, so a text that begins alike gets the same pages, and none of them is written again. Pages that
nobody has any more stay known until they are needed: those go first that were given back first.

    free      nobody has it, nothing in it      -> lent
    lent      to one text, or shared by many    -> idle where it is known, else free
    idle      nobody has it, its content known  -> lent, or written over

A text is lent pages only if all it may ever need can be had: what it has not taken yet is reserved.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from arenite.digests import digest_of
from arenite.errors import InvalidArgument


class Lease:
    """The pages of one text, in order."""

    __slots__ = ("digests", "n_reserved", "pages", "pool")

    def __init__(self, pool: PagePool, n_reserved: int) -> None:
        self.pool = pool
        self.pages: list[int] = []
        self.digests: list[bytes] = []  # of the pages that are full
        self.n_reserved = n_reserved  # pages it may still take

    def take(self) -> int:
        """One more page, of those that were reserved."""
        return self.pool.taken(self)

    def share(self, digest: bytes) -> bool:
        """Have the page that is known by a digest as the next one, if there is such."""
        return self.pool.shared(self, digest)

    def filled(self, digest: bytes) -> None:
        """The next page that was not full is, and is known by a digest from now on."""
        self.pool.know(self, digest)

    def close(self) -> None:
        """Give all pages back."""
        self.pool.closed(self)


class PagePool:
    """`n_pages` pages of `page` tokens."""

    def __init__(self, n_pages: int, page: int) -> None:
        self.n_pages, self.page = n_pages, page
        self._free = list(range(n_pages - 1, -1, -1))
        self._n_users = [0] * n_pages
        self._known: dict[bytes, int] = {}
        self._digest_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._n_reserved = 0

    @property
    def n_free(self) -> int:
        """Pages with nothing in them."""
        return len(self._free)

    @property
    def n_idle(self) -> int:
        """Pages that nobody has, whose content is known."""
        return len(self._idle)

    @property
    def n_lent(self) -> int:
        """Pages that texts have."""
        return self.n_pages - self.n_free - self.n_idle

    def pages_for(self, n_tokens: int) -> int:
        """Pages that so many tokens take."""
        return -(-n_tokens // self.page)

    def opened(self, n_tokens: int, digests: Sequence[bytes] = ()) -> Lease | None:
        """Pages for a text of up to so many tokens that begins with pages of these digests, of
        which it has those that are known; None where that may be more than there is now."""
        needed = self.pages_for(n_tokens)
        if needed > self.n_pages:
            raise InvalidArgument(
                f"{n_tokens} tokens take {needed} pages of {self.page}; there are {self.n_pages}"
            )
        known = self._beginning(digests[:needed])
        n_woken = sum(page in self._idle for page in known)
        n_there = self.n_free + self.n_idle - n_woken - self._n_reserved
        if needed - len(known) > n_there:
            return None
        lease = Lease(self, needed)
        self._n_reserved += needed
        for digest in digests[: len(known)]:
            self.shared(lease, digest)
        return lease

    def _beginning(self, digests: Sequence[bytes]) -> list[int]:
        found: list[int] = []
        for digest in digests:
            page = self._known.get(digest)
            if page is None:
                break
            found.append(page)
        return found

    def taken(self, lease: Lease) -> int:
        """One more page for a text; of the idle ones that which was given back first."""
        self._use_reserved(lease)
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._idle.popitem(last=False)
            del self._known[self._digest_of.pop(page)]
        self._n_users[page] = 1
        lease.pages.append(page)
        return page

    def shared(self, lease: Lease, digest: bytes) -> bool:
        """Let a text have a known page as its next one."""
        page = self._known.get(digest)
        if page is None or len(lease.digests) < len(lease.pages):
            return False
        self._use_reserved(lease)
        self._idle.pop(page, None)
        self._n_users[page] += 1
        lease.pages.append(page)
        lease.digests.append(digest)
        return True

    def know(self, lease: Lease, digest: bytes) -> None:
        """A page of a text is full; the first page of a digest is the one that others get."""
        page = lease.pages[len(lease.digests)]
        lease.digests.append(digest)
        if digest not in self._known:
            self._known[digest] = page
            self._digest_of[page] = digest

    def closed(self, lease: Lease) -> None:
        """Take the pages of a text back, the last first: what comes before is wanted by more."""
        self._n_reserved -= lease.n_reserved
        lease.n_reserved = 0
        for page in reversed(lease.pages):
            self._n_users[page] -= 1
            if self._n_users[page] == 0:
                if page in self._digest_of:
                    self._idle[page] = None
                else:
                    self._free.append(page)
        lease.pages.clear()
        lease.digests.clear()

    def _use_reserved(self, lease: Lease) -> None:
        if not lease.n_reserved:
            raise InvalidArgument("a text asks for more pages than were reserved for it")
        lease.n_reserved -= 1
        self._n_reserved -= 1

    def __repr__(self) -> str:
        return (
            f"<PagePool of {self.n_pages} pages of {self.page} tokens: {self.n_lent} lent, "
            f"{self.n_idle} idle, {self.n_free} free>"
        )


def page_digest(before: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of a page with these tokens, behind one with a digest; b"" for the first."""
    return digest_of(before + np.array(tokens, np.int32).tobytes())


def digests_of(tokens: Sequence[int], page: int) -> list[bytes]:
    """Those of all full pages of a text, in order."""
    found: list[bytes] = []
    before = b""
    for start in range(0, len(tokens) - page + 1, page):
        before = page_digest(before, tokens[start : start + page])
        found.append(before)
    return found
