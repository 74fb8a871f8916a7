"""Batch: texts that are read and written together, one step of the program after the other.

A step reads one token of each text that is being written, and a block of those prompts that are
still to be read, first come, first served. Texts join and leave between steps. What a row gives
depends on its own text alone, so neither the blocks nor the neighbours of a text change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from arenite.errors import RunFailed
from arenite.generate.continuation import Continuation
from arenite.serve.pages import Lease, PagePool, digests_of, page_digest

if TYPE_CHECKING:
    from arenite.runtime.executable import Executable
    from arenite.runtime.profile import Profile
    from arenite.serve.settings import EngineSettings


class Text:
    """A text in the making: its tokens, and how far they have been read."""

    def __init__(self, continuation: Continuation, n_tokens: int, page: int) -> None:
        """`n_tokens`: how many have to be read at the most."""
        self.continuation = continuation
        self.n_tokens = n_tokens
        self.n_read = 0  # tokens whose keys are in the pages
        self.n_reused = 0  # of them, that others had read
        self.slot = -1
        #: Of the pages of the prompt that it may share: its last token is read for its logits.
        self.digests = digests_of(continuation.tokens[:-1], page)
        self._lease: Lease | None = None

    @property
    def lease(self) -> Lease:
        """Its pages, while it is in a batch."""
        assert self._lease is not None
        return self._lease

    @lease.setter
    def lease(self, lease: Lease | None) -> None:
        self._lease = lease

    @property
    def tokens(self) -> list[int]:
        return self.continuation.tokens

    @property
    def is_written(self) -> bool:
        """Whether its prompt has been read."""
        return self.n_read >= self.continuation.n_prompt


class Batch:
    """The slots of a program and the pages of its pool."""

    def __init__(self, settings: EngineSettings, executable: Executable) -> None:
        self.executable = executable
        self.pages = PagePool(settings.pool.n_pages, settings.pool.page)
        self.texts: list[Text] = []  # in the order they came
        self.run_seconds = 0.0  # in the program, of all steps
        self._block, self._page = settings.block, settings.pool.page
        self._free_slots = list(range(settings.slots))
        index = np.int32 if settings.offloaded else np.int64
        rows = np.zeros((4, settings.most_rows), index)
        self._tokens, self._positions, self._slots, self._places = rows
        self._table = np.zeros((settings.slots, settings.pages_a_text), index)
        self._wanted = np.zeros(settings.slots, index)
        self._logits = np.empty((settings.slots, settings.file.description.n_tokens), np.float32)
        self._last: list[NDArray[np.integer]] | None = None

    def admit(self, text: Text) -> bool:
        """Give a text a slot, and pages for all it may need; False where there are none now."""
        if not self._free_slots:
            return False
        lease = self.pages.opened(text.n_tokens, text.digests)
        if lease is None:
            return False
        text.lease, text.slot = lease, self._free_slots.pop()
        text.n_read = text.n_reused = len(lease.pages) * self._page
        self._table[text.slot, : len(lease.pages)] = lease.pages
        self.texts.append(text)
        return True

    def release(self, text: Text) -> None:
        """Take slot and pages back."""
        self.texts.remove(text)
        text.lease.close()
        self._free_slots.append(text.slot)

    def forget(self) -> None:
        """Of what the pages hold nothing is known."""
        for text in [*self.texts]:
            self.release(text)
        self.pages = PagePool(self.pages.n_pages, self.pages.page)

    def step(self) -> list[tuple[Text, NDArray[np.float32]]]:
        """Read what comes next; the texts all of whose tokens have been read, with the logits
        after the last of them, which are good until the next step."""
        parts = list(self._parts())
        ready: list[Text] = []
        # Lists: filling arrays text by text would cost more than all else between two steps.
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        wanted: list[int] = []
        for text, count in parts:
            first, last = text.n_read, text.n_read + count
            tokens += text.tokens[first:last]
            positions += range(first, last)
            slots += [text.slot] * count
            self._reach(text, last)
            if last == len(text.tokens):
                wanted.append(len(tokens) - 1)
                ready.append(text)
        if not tokens:
            return []
        n_rows = len(tokens)
        self._tokens[:n_rows], self._positions[:n_rows] = tokens, positions
        self._slots[:n_rows] = slots
        wanted = wanted or [0]  # a program has logits of some row
        self._wanted[: len(wanted)] = wanted
        self._run(n_rows, len(wanted))
        for text, count in parts:
            text.n_read += count
            self._know_filled(text)
        return list(zip(ready, self._logits, strict=False))

    def _parts(self) -> Iterator[tuple[Text, int]]:
        """The texts that a step reads of, and how many tokens of each."""
        for text in self.texts:
            if text.is_written:
                yield text, 1
        left = self._block
        expected: set[bytes] = set()
        for text in self.texts:
            if text.is_written or not left:
                continue
            self._share(text)
            ahead = text.digests[len(text.lease.digests) :]
            # Of pages that another one is about to fill, it waits for them.
            if not expected.isdisjoint(ahead[:1]):
                continue
            expected.update(ahead)
            count = min(left, len(text.tokens) - text.n_read)
            left -= count
            yield text, count

    def _share(self, text: Text) -> None:
        """Go past pages of the prompt that others have filled meanwhile."""
        lease = text.lease
        while text.n_read == len(lease.pages) * self._page:
            number = len(lease.pages)
            if number >= len(text.digests) or not lease.share(text.digests[number]):
                return
            self._table[text.slot, number] = lease.pages[number]
            text.n_read += self._page
            text.n_reused += self._page

    def _reach(self, text: Text, n_tokens: int) -> None:
        """Have pages for so many tokens."""
        while len(text.lease.pages) * self._page < n_tokens:
            number = len(text.lease.pages)
            self._table[text.slot, number] = text.lease.take()

    def _know_filled(self, text: Text) -> None:
        digests = text.lease.digests
        while (len(digests) + 1) * self._page <= text.n_read:
            number = len(digests)
            if number < len(text.digests):
                digest = text.digests[number]
            else:
                start = number * self._page
                before = digests[-1] if digests else b""
                digest = page_digest(before, text.tokens[start : start + self._page])
            text.lease.filled(digest)

    def _run(self, n_rows: int, n_wanted: int) -> None:
        page, positions, slots = self._page, self._positions[:n_rows], self._slots[:n_rows]
        places = self._places[:n_rows]
        np.multiply(self._table[slots, positions // page], page, out=places)
        places += positions % page
        given = [
            self._tokens[:n_rows],
            positions,
            slots,
            places,
            self._table,
            self._wanted[:n_wanted],
        ]
        self._last = given
        started = perf_counter()
        self.executable(*given, out=[self._logits[:n_wanted]])
        self.run_seconds += perf_counter() - started

    def profile(self) -> Profile:
        """Run the last step once more, with time stamps: it writes what it wrote before."""
        return self.executable.profile(*self._last_step())

    def kernel_seconds(self) -> dict[str, float]:
        """What each kernel takes of it alone."""
        return self.executable.kernel_seconds(*self._last_step())

    def _last_step(self) -> list[NDArray[np.integer]]:
        if self._last is None:
            raise RunFailed("there is no step to profile yet: submit a text first")
        return self._last
