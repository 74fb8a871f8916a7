"""Who touched each byte of one storage last: its last writer and its readers since.

In come the reads and writes of launches in order; out come, for each, the earlier launches it
directly conflicts with. The bytes are cut into segments within which all bytes have one history:

    bytes     0        64        96       160           256
              |  w3    |   w5    |   w5   |     -       |  ...
    readers   | 4, 6   |    -    |   7    |     6       |

A read finds the writers (RAW) and joins the readers; a write finds the readers since, or the last
writer where there are none (a reader is already ordered after it), and becomes the one segment of
all its bytes. Must hold: segments are disjoint, in rising order and cover [0, infinity).

Segments live in pages of bounded length, for the sake of launches that read very wide: such a
read is noted once on a page it covers, not on each segment. The note is handed down when
something touches a part of that page.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from arenite.hazards.history import Readers, Seen, push, stack
from arenite.hazards.ranges import BufferRange, Role

_PAGE_SEGMENTS = 192  # a page longer than this is split


class Page:
    """A run of segments: segment i has `starts[i]`, `writers[i]`, `readers[i]`."""

    __slots__ = ("latest", "note", "readers", "starts", "writer_bits", "writers")

    def __init__(
        self,
        starts: list[int],
        writers: list[Seen | None],
        readers: list[Readers | None],
        latest: int = -1,
    ) -> None:
        self.starts = starts
        self.writers = writers
        self.readers = readers
        self.note: Readers | None = None  # readers of all segments, later than those noted there
        self.latest = latest  # no writer here has a higher position
        self.writer_bits: int | None = None  # one bit a position; None = not known

    def unfold_note(self) -> None:
        """Hand the note down to the segments."""
        note = self.note
        if note is None:
            return
        self.note = None
        # What a reader in the note is ordered after need not be remembered beside it. The latest
        # one may be the launch at work, whose ancestors are not known yet: ask the one before.
        latest = note[0] if note[1] is None else note[1][0]
        for i, readers in enumerate(self.readers):
            while readers is not None and latest.is_after(readers[0]):
                readers = readers[1]
            self.readers[i] = note if readers is None else stack(note, readers)

    def has_writer_among(self, launches: int) -> bool:
        """Whether a writer here is one of these launches, given as one bit a position."""
        if self.writer_bits is None:
            self.writer_bits = 0
            for writer in set(self.writers):
                if writer is not None:
                    self.writer_bits |= 1 << writer.position
        return bool(self.writer_bits & launches)

    def half(self) -> Page:
        """Cut off the upper half as a page of its own; there is no note to share."""
        middle = len(self.starts) // 2
        upper = Page(
            self.starts[middle:], self.writers[middle:], self.readers[middle:], self.latest
        )
        del self.starts[middle:], self.writers[middle:], self.readers[middle:]
        self.writer_bits = None
        return upper


class ByteMap:
    """The segments of one storage."""

    __slots__ = ("firsts", "pages")

    def __init__(self) -> None:
        self.pages = [Page([0], [None], [None])]
        self.firsts = [0]  # firsts[p] == pages[p].starts[0]

    def is_open(self, touched: BufferRange) -> bool:
        """Whether a launch that touches these bytes, of which there is one, must wait."""
        writes = touched.role is Role.WRITE
        first = bisect_right(self.firsts, touched.start) - 1
        stop = bisect_left(self.firsts, touched.end, first + 1)
        for page in self.pages[first:stop]:
            if writes and page.note is not None:
                return True
            if not writes and page.latest < 0:
                continue
            i = max(0, bisect_right(page.starts, touched.start) - 1)
            j = bisect_left(page.starts, touched.end, i + 1)
            if any(page.writers[i:j]) or (writes and any(page.readers[i:j])):
                return True
        return False

    def read(
        self, start: int, end: int, seen: Seen, found: dict[int, Seen], wide: list[Page]
    ) -> None:
        """Note `seen` as a reader of [start, end).

        Writers of these bytes go into `found`, by position; pages that lie inside as a whole go
        into `wide` for the caller to look through.
        """
        firsts = self.firsts
        known: Readers | None = None
        pushed: Readers = (seen, None, 1)
        p = bisect_right(firsts, start) - 1
        while True:
            page = self.pages[p]
            # Past the last page there is nothing but the end of the range to stop at.
            page_end = firsts[p + 1] if p + 1 < len(firsts) else end + 1
            if start <= firsts[p] and page_end <= end:
                if page.note is not known:
                    known = page.note
                    pushed = push(seen, known)
                page.note = pushed
                wide.append(page)
            else:
                low, high = max(start, firsts[p]), min(end, page_end)
                self._read_part(page, low, high, page_end, seen, found)
                if len(page.starts) > _PAGE_SEGMENTS:
                    p += 1
                    self.pages.insert(p, page.half())
                    firsts.insert(p, self.pages[p].starts[0])
            if page_end >= end:
                return
            p += 1

    @staticmethod
    def _read_part(
        page: Page, start: int, end: int, page_end: int, seen: Seen, found: dict[int, Seen]
    ) -> None:
        page.unfold_note()
        starts, writers, readers = page.starts, page.writers, page.readers
        i = bisect_right(starts, start) - 1
        j = bisect_left(starts, end, i + 1)
        if end < (starts[j] if j < len(starts) else page_end):
            starts.insert(j, end)
            writers.insert(j, writers[j - 1])
            readers.insert(j, readers[j - 1])
        if starts[i] < start:
            i += 1
            j += 1
            starts.insert(i, start)
            writers.insert(i, writers[i - 1])
            readers.insert(i, readers[i - 1])
        for writer in writers[i:j]:
            if writer is not None:
                found[writer.position] = writer
        known: Readers | None = None
        pushed: Readers = (seen, None, 1)
        for k in range(i, j):
            if readers[k] is not known:  # neighbours often share their readers
                known = readers[k]
                pushed = push(seen, known)
            readers[k] = pushed

    def write(self, start: int, end: int, seen: Seen, found: dict[int, Seen]) -> None:
        """Make `seen` the writer of [start, end); the launches it must wait for go into `found`."""
        firsts, pages = self.firsts, self.pages
        p = bisect_right(firsts, start) - 1
        q = bisect_left(firsts, end, p + 1)
        page = pages[p]
        page_end = firsts[p + 1] if p + 1 < len(firsts) else end + 1
        # The first page takes the new segment, which reaches on over the pages behind it: those
        # it covers go, and the last one loses its head.
        for behind in pages[p + 1 : q - 1]:
            self._find(behind, 0, len(behind.starts), found)
        if q > p + 1:
            last = pages[q - 1]
            last_end = firsts[q] if q < len(firsts) else end + 1
            stop = bisect_left(last.starts, end)
            self._find(last, 0, stop, found)
            tail_end = last.starts[stop] if stop < len(last.starts) else last_end
            if end < tail_end:
                stop -= 1
                last.starts[stop] = end
            del last.starts[:stop], last.writers[:stop], last.readers[:stop]
            last.writer_bits = None
            keep = q - 1 if last.starts else q
            del pages[p + 1 : keep], firsts[p + 1 : keep]
            if last.starts:
                firsts[p + 1] = last.starts[0]
            end_here = page_end
        else:
            end_here = end
        starts, writers, readers = page.starts, page.writers, page.readers
        i = bisect_right(starts, start) - 1
        j = bisect_left(starts, end_here, i + 1)
        self._find(page, i, j, found)
        new_starts: list[int] = [start]
        new_writers: list[Seen | None] = [seen]
        new_readers: list[Readers | None] = [None]
        if starts[i] < start:
            i += 1
        if end_here < (starts[j] if j < len(starts) else page_end):
            new_starts.append(end_here)
            new_writers.append(writers[j - 1])
            new_readers.append(readers[j - 1])
        starts[i:j] = new_starts
        writers[i:j] = new_writers
        readers[i:j] = new_readers
        page.latest = seen.position
        page.writer_bits = None
        if len(starts) > _PAGE_SEGMENTS:
            pages.insert(p + 1, page.half())
            firsts.insert(p + 1, pages[p + 1].starts[0])

    @staticmethod
    def _find(page: Page, i: int, j: int, found: dict[int, Seen]) -> None:
        """What a write to the segments [i, j) must wait for."""
        page.unfold_note()
        before: Readers | None = None
        for k in range(i, j):
            readers = page.readers[k]
            if readers is None:
                writer = page.writers[k]
                if writer is not None:
                    found[writer.position] = writer
            elif readers is not before:
                before = readers
                while readers is not None:
                    found[readers[0].position] = readers[0]
                    readers = readers[1]
