"""The CPU device: page-aligned anonymous memory, with a pool of what was freed.

In: requests in bytes. Out: HostMemory, zeroed only where that was asked for. Sizes are rounded up
to whole pages, which is what the system gives and what the statistics count; a request of 0 bytes
takes one page. Freed mappings wait in the pool, keyed by their exact size, for the next request of
that size; all of them together stay under one cap, and the least recently used goes first.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections import OrderedDict, deque
from collections.abc import Iterable
from functools import partial

from arenite.device.allocator import (
    MIN_ALIGNMENT,
    Allocator,
    AllocatorStats,
    BufferOptions,
    Ledger,
    as_integer,
    readable_nbytes,
)
from arenite.device.host import host_address, mapping_of, read_host, write_host
from arenite.device.raw import HostMemory, Mapping, RawBuffer
from arenite.errors import InvalidArgument, OutOfMemory

PAGE_NBYTES = mmap.PAGESIZE
#: Mappings from this size on ask for large pages, which the system gives inside a mapping only.
HUGE_FROM_NBYTES = 4 * 2**20
DEFAULT_POOL_CAP_NBYTES = 256 * 2**20


class Pool:
    """Freed mappings in the order they came back. Not locked: the ledger's lock guards it."""

    def __init__(self, cap_nbytes: int) -> None:
        self.cap_nbytes = cap_nbytes
        self.nbytes = 0
        self._oldest_first: OrderedDict[Mapping, None] = OrderedDict()
        self._by_nbytes: dict[int, deque[Mapping]] = {}  # each oldest first too

    def put(self, raw: HostMemory) -> None:
        mapping = raw.owner
        if mapping.nbytes > self.cap_nbytes:
            return  # emptying the pool would not make room for it
        self._oldest_first[mapping] = None
        self._by_nbytes.setdefault(mapping.nbytes, deque()).append(mapping)
        self.nbytes += mapping.nbytes
        self.shrink(self.cap_nbytes)

    def take(self, nbytes: int) -> Mapping | None:
        """The most recently used mapping of exactly this size: its pages are the warmest."""
        same = self._by_nbytes.get(nbytes)
        if not same:
            return None
        mapping = same.pop()
        del self._oldest_first[mapping]
        self._forget(mapping)
        return mapping

    def limit(self, cap_nbytes: int) -> None:
        """Keep at most so many bytes from now on."""
        self.cap_nbytes = cap_nbytes
        self.shrink(cap_nbytes)

    def clear(self) -> None:
        """Unmap everything, also where another method ended in the middle."""
        self._oldest_first, self._by_nbytes, self.nbytes = OrderedDict(), {}, 0

    def shrink(self, to_nbytes: int) -> int:
        """Unmap the oldest until at most `to_nbytes` are left; returns the bytes unmapped."""
        before = self.nbytes
        while self.nbytes > to_nbytes:
            mapping, _ = self._oldest_first.popitem(last=False)
            self._by_nbytes[mapping.nbytes].popleft()
            self._forget(mapping)
        return before - self.nbytes

    def _forget(self, mapping: Mapping) -> None:
        self.nbytes -= mapping.nbytes
        if not self._by_nbytes[mapping.nbytes]:
            del self._by_nbytes[mapping.nbytes]


class CpuAllocator(Allocator):
    """Host memory. `device.get("cpu")` is one of these, shared by the whole process."""

    name = "cpu"

    def __init__(self, pool_cap_nbytes: int = DEFAULT_POOL_CAP_NBYTES) -> None:
        self._pool = Pool(_checked_cap(pool_cap_nbytes))
        self.ledger: Ledger[HostMemory] = Ledger(self._pool.put, self._pool.clear)
        self._hits = 0
        self._misses = 0

    def allocate(self, nbytes: int, options: BufferOptions) -> HostMemory:
        self.check_request(nbytes, options)
        alignment = max(options.alignment, MIN_ALIGNMENT)
        mapped_nbytes = max(1, -(-nbytes // PAGE_NBYTES)) * PAGE_NBYTES
        if alignment > PAGE_NBYTES:
            mapped_nbytes += alignment - PAGE_NBYTES  # an aligned address is somewhere within
        with self.ledger.locked() as is_alone:
            mapping = self._pool.take(mapped_nbytes) if is_alone else None
            is_fresh = mapping is None
            if mapping is None:
                mapping = self._map(nbytes, mapped_nbytes, is_alone)
            self.ledger.postpone(partial(self._count, is_fresh))
            address = -(-mapping.address // alignment) * alignment
            raw = HostMemory(nbytes, address, True, False, mapping)
            self.ledger.add(raw, mapped_nbytes)
        if options.zeroed and not is_fresh:  # the system's pages come zeroed
            ctypes.memset(address, 0, nbytes)
        return raw

    def free(self, raw: RawBuffer) -> None:
        self.ledger.give_back(raw)

    def copyin(self, raw: RawBuffer, offset: int, source: memoryview) -> None:
        write_host(raw, offset, source)

    def copyout(self, raw: RawBuffer, offset: int, target: memoryview) -> None:
        read_host(raw, offset, target)

    def read_parts(self, raw: RawBuffer, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        return [ctypes.string_at(host_address(raw, *span), span[1]) for span in spans]

    def trim(self) -> int:
        """Give pooled memory back to the system; returns how many bytes that were (0 from within
        the allocator, which then does it on the way out)."""
        with self.ledger.locked() as is_alone:
            if is_alone:
                return self._pool.shrink(0)
            self.ledger.postpone(partial(self._pool.shrink, 0))
            return 0

    @property
    def pool_cap_nbytes(self) -> int:
        """The most bytes the pool may keep; lowering it gives back what is over at once."""
        return self._pool.cap_nbytes

    @pool_cap_nbytes.setter
    def pool_cap_nbytes(self, cap_nbytes: int) -> None:
        cap_nbytes = _checked_cap(cap_nbytes)
        with self.ledger.locked():
            self.ledger.postpone(partial(self._pool.limit, cap_nbytes))

    @property
    def stats(self) -> AllocatorStats:
        """What is allocated now, and what was at the most."""
        with self.ledger.locked():
            return self.ledger.stats(
                pooled_nbytes=self._pool.nbytes,
                pool_cap_nbytes=self._pool.cap_nbytes,
                hits=self._hits,
                misses=self._misses,
            )

    def _count(self, is_fresh: bool) -> None:
        if is_fresh:
            self._misses += 1
        else:
            self._hits += 1

    def _map(self, nbytes: int, mapped_nbytes: int, may_shrink: bool) -> Mapping:
        try:
            return _new_mapping(mapped_nbytes)
        except (OSError, OverflowError):
            given_back = self._pool.shrink(0) if may_shrink else 0
        try:
            return _new_mapping(mapped_nbytes)
        except (OSError, OverflowError) as error:
            live_nbytes, n_live = self.ledger.live_nbytes, self.ledger.n_live
            raise OutOfMemory(
                f"{self.name}: the system did not give {mapped_nbytes} bytes "
                f"({readable_nbytes(mapped_nbytes)}) for a request of {nbytes}: {error}. "
                f"Live here: {live_nbytes} bytes ({readable_nbytes(live_nbytes)}) in {n_live} "
                f"allocations; the {given_back} bytes that were pooled have been given back. "
                "Ask for less, or let go of buffers first"
            ) from None


def _new_mapping(nbytes: int) -> Mapping:
    # Private: the module's default, shared memory, would be one with forked children.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, nbytes, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    if nbytes >= HUGE_FROM_NBYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        # Walks over rows 4 KiB apart, and first touches, are twice as fast on large pages.
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return mapping_of(memory)


def use_small_pages(address: int, nbytes: int) -> None:
    """The whole pages of a region come one by one as they are touched, never as part of a large
    page: for memory of which much may stay unused."""
    first = -(-address // PAGE_NBYTES) * PAGE_NBYTES
    last = (address + nbytes) // PAGE_NBYTES * PAGE_NBYTES
    if first < last and hasattr(mmap, "MADV_NOHUGEPAGE"):
        # Advice: where the system does not take it, memory is only touched earlier.
        ctypes.CDLL(None).madvise(
            ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_NOHUGEPAGE
        )


def drop_pages_at(address: int, nbytes: int) -> None:
    """The system has the whole pages of memory that nobody reads any more."""
    first = -(-address // PAGE_NBYTES) * PAGE_NBYTES
    last = (address + nbytes) // PAGE_NBYTES * PAGE_NBYTES
    if first < last and hasattr(mmap, "MADV_DONTNEED"):
        ctypes.CDLL(None).madvise(
            ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED
        )


#: glibc's numbers of options; other C libraries with a `mallopt` pass over what they don't know.
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
#: Blocks from this size on are mappings of their own, which go back to the system when freed.
MAPPED_FROM_NBYTES = 2**18


def give_back_heap() -> None:
    """Let the system have what the C library was given back and keeps for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
    if trim is not None:
        trim(0)


def share_heap() -> None:
    """All threads begun from now on take from one heap, and large blocks from the system.

    With a heap for each thread, what one has used once stays with it, also when it does nothing any
    more. Large blocks among small ones leave gaps that never close: left alone, glibc takes larger
    and larger ones from the heap."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_ARENA_MAX, 1)
        set_option(M_MMAP_THRESHOLD, MAPPED_FROM_NBYTES)


def _checked_cap(cap_nbytes: int) -> int:
    if as_integer("pool_cap_nbytes", cap_nbytes) < 0:
        raise InvalidArgument(f"a pool cannot keep {cap_nbytes} bytes; 0 keeps nothing")
    return cap_nbytes


CPU = CpuAllocator()
