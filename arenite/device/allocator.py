"""Allocator: what a device is, seen from memory, and the bookkeeping allocators share.

In: requests of so many bytes with options. Out: RawBuffers, and statistics of what is live.
What must hold: `free` may be called by the garbage collector, in any thread, at any moment, also
while that same thread is inside the allocator; so it never waits. So may `allocate`, by a finaliser
or a signal handler: it neither waits for itself nor touches what is half done. `Ledger` makes both
easy:

    free ──► pending (a deque) ──► done by whoever holds the lock, or gets it without waiting
    allocate, inside of allocate ──► pending ──► counted on the way out
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

from arenite import locks
from arenite.device.raw import RawBuffer
from arenite.dtype import DType
from arenite.errors import InvalidArgument, InvalidView, printable
from arenite.records import NamedTuple

MIN_ALIGNMENT = 64
MAX_AXES = 64  # as NumPy's arrays have them


class BufferOptions:
    """How memory is wanted. `alignment` under 64 is given as 64; a mapped file has its own.
    `file_offset` is where in the file a disk buffer starts."""

    __slots__ = ("alignment", "file_offset", "zeroed")

    def __init__(
        self, zeroed: bool = False, alignment: int = MIN_ALIGNMENT, file_offset: int = 0
    ) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise InvalidArgument(f"alignment {alignment} is not a power of two")
        if file_offset < 0:
            raise InvalidArgument(f"file_offset {file_offset} is negative")
        self.zeroed = zeroed
        self.alignment = alignment
        self.file_offset = file_offset


class AllocatorStats(NamedTuple):
    """A moment of one allocator, in bytes as the system gives them (on the CPU: whole pages)."""

    live_nbytes: int = 0
    n_live: int = 0
    peak_nbytes: int = 0  # the most that was ever live at once
    pooled_nbytes: int = 0  # freed, kept for reuse
    pool_cap_nbytes: int = 0
    hits: int = 0  # allocations served from the pool
    misses: int = 0  # allocations the system served

    def __repr__(self) -> str:
        return (
            f"AllocatorStats(live {readable_nbytes(self.live_nbytes)} in {self.n_live}, "
            f"peak {readable_nbytes(self.peak_nbytes)}, "
            f"pooled {readable_nbytes(self.pooled_nbytes)} "
            f"of at most {readable_nbytes(self.pool_cap_nbytes)}, "
            f"{self.hits} hits, {self.misses} misses)"
        )


class Allocator(ABC):
    """Makes and frees RawBuffers on one device."""

    name: str
    #: Whether its kernels compute with float16, and an arena there may have a shadow of that.
    has_float16: bool = False

    def check_request(self, nbytes: int, options: BufferOptions) -> None:
        """Raise for a request this device can never serve. Called when a Buffer is made, which
        may be long before it is allocated."""
        if as_integer("nbytes", nbytes) < 0:
            raise InvalidArgument(f"{self.name}: {nbytes} bytes were asked for")
        if options.file_offset:
            raise InvalidArgument(
                f"{self.name}: file_offset {options.file_offset} has a meaning on disk devices only"
            )

    @abstractmethod
    def allocate(self, nbytes: int, options: BufferOptions) -> RawBuffer:
        """Memory for `nbytes` bytes, or OutOfMemory."""

    @abstractmethod
    def free(self, raw: RawBuffer) -> None:
        """Take memory back. Never waits; a handle that is not live is left alone."""

    @abstractmethod
    def copyin(self, raw: RawBuffer, offset: int, source: memoryview) -> None:
        """Copy all of `source` (contiguous bytes) to `offset`; done when it returns."""

    @abstractmethod
    def copyout(self, raw: RawBuffer, offset: int, target: memoryview) -> None:
        """Fill all of `target` (contiguous, writable) from `offset`; done when it returns."""

    def read(self, raw: RawBuffer, offset: int, nbytes: int) -> bytes:
        """A copy of `nbytes` bytes from `offset` on."""
        return self.read_parts(raw, [(offset, nbytes)])[0]

    def read_parts(self, raw: RawBuffer, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """Copies of bytes, each of an offset and a length."""
        found = []
        for offset, nbytes in spans:
            copied = bytearray(nbytes)
            self.copyout(raw, offset, memoryview(copied))
            found.append(bytes(copied))
        return found

    def copy_within(
        self,
        target: RawBuffer,
        offset: int,
        source: RawBuffer,
        source_offset: int,
        nbytes: int,
    ) -> bool:
        """Copy bytes from one place on this device to another without the host; False where it has
        no way to, or not for these bytes."""
        return False

    def check(self) -> None:  # noqa: B027 - memory of most devices stays what it is
        """Raise where the memory is no longer what it was, because someone else has changed it."""

    @property
    @abstractmethod
    def stats(self) -> AllocatorStats:
        """What is live, pooled and so on, now."""

    def synchronize(self) -> None:  # noqa: B027 - devices that finish at once have nothing to do
        """Wait until everything started on this device has finished."""

    def trim(self) -> int:
        """Give pooled memory back to the system; returns how many bytes that were."""
        return 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {printable(self.name)}: {self.stats!r}>"


Raw = TypeVar("Raw", bound=RawBuffer)


class Ledger(Generic[Raw]):
    """What is live and how many bytes it takes, under one lock.

    `reclaim` is called under the lock with each handle that came back, exactly once for each
    `add`; `forget` where an exception, or a fork, left the middle of what it did: nothing that was
    kept for reuse is to be trusted then. They must not refer to whoever owns the ledger, or the two
    would need the collector to go.
    """

    def __init__(
        self, reclaim: Callable[[Raw], None], forget: Callable[[], None] = lambda: None
    ) -> None:
        self._reclaim = reclaim
        self._forget = forget
        self._lock = locks.reentrant()
        self._depth = 0  # how often the thread that has the lock is inside `locked`
        self._pending: deque[Callable[[], object]] = deque()  # steps, in order
        self._live: dict[RawBuffer, int] = {}
        self.live_nbytes = 0
        self.peak_nbytes = 0
        locks.watch(self)

    def stats(self, **more: int) -> AllocatorStats:
        """What is live, and what else its device counts."""
        with self.locked():
            return AllocatorStats(self.live_nbytes, len(self._live), self.peak_nbytes, **more)

    @property
    def n_live(self) -> int:
        """How many allocations are in use."""
        return len(self._live)

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Everything that was freed before has been taken back inside, and everything freed
        meanwhile (the collector runs where it likes) is taken back on the way out.

        True: alone. False: inside of what this same thread is in the middle of, in a finaliser or
        a signal handler; nothing but `add` and `postpone` may be used then.
        """
        try:
            with self._entered() as is_alone:
                if is_alone:
                    self._do_pending()
                yield is_alone
        finally:
            self._settle()

    @contextmanager
    def _entered(self) -> Iterator[bool]:
        with self._lock:
            outside = self._depth
            try:
                self._depth = outside + 1
                yield outside == 0
            except BaseException:
                if outside == 0:
                    self._put_in_order()
                raise
            finally:
                self._depth = outside

    def add(self, raw: Raw, nbytes: int) -> None:
        """Count a handle as live. To be called under the lock."""
        self.postpone(partial(self._add, raw, nbytes))

    def postpone(self, step: Callable[[], object]) -> None:
        """Do this under the lock: now, or at the end of what this thread is in the middle of."""
        if self._depth > 1:
            self._pending.append(step)
        else:
            step()

    def give_back(self, raw: RawBuffer) -> None:
        """Never waits: where the lock is taken, its holder settles after letting go."""
        self._pending.append(partial(self._take_back, raw))
        self._settle()

    def forget_after_fork(self) -> None:
        """In a forked process: a thread in the middle of the books is not here to go on."""
        if self._depth and not locks.is_mine(self._lock):
            self._depth = 0
            self._put_in_order()

    def _settle(self) -> None:
        while self._pending and self._lock.acquire(blocking=False):
            try:
                if self._depth:
                    return  # this very thread is inside, and settles on its way out
                with self._entered():
                    self._do_pending()
            finally:
                self._lock.release()

    def _do_pending(self) -> None:
        while self._pending:
            self._pending.popleft()()

    def _take_back(self, raw: RawBuffer) -> None:
        nbytes = self._live.pop(raw, None)
        if nbytes is not None:
            self.live_nbytes -= nbytes
            self._reclaim(raw)  # type: ignore[arg-type]  # what is live came from `add`

    def _add(self, raw: Raw, nbytes: int) -> None:
        self._live[raw] = nbytes
        self.live_nbytes += nbytes
        self.peak_nbytes = max(self.peak_nbytes, self.live_nbytes)

    def _put_in_order(self) -> None:
        self._forget()
        self.live_nbytes = sum(self._live.values())


def as_integer(what: str, value: object) -> int:
    """`value` as an int (NumPy's integers too), or InvalidArgument."""
    try:
        return operator.index(value)  # type: ignore[arg-type]  # the TypeError is the answer
    except TypeError:
        raise InvalidArgument(f"{what} must be an integer, not {value!r}") from None


def readable_nbytes(nbytes: int) -> str:
    """1536 -> '1.5 KiB'."""
    if nbytes < 1024:
        return f"{nbytes} bytes"
    power = min((nbytes.bit_length() - 1) // 10, 4)
    return f"{nbytes / 1024**power:.4g} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as a caller gives it; of sizes that are negative the dtype complains."""
    try:
        sizes = tuple(map(operator.index, shape))
    except TypeError:
        raise InvalidArgument(f"a shape is a sequence of integers, not {shape!r}") from None
    if len(sizes) > MAX_AXES:
        raise InvalidArgument(f"a shape has at most {MAX_AXES} sizes, not {len(sizes)}")
    return sizes


def flat_shape(dtype: DType, nbytes: int) -> tuple[int]:
    """All elements that so many bytes hold, in one dimension."""
    count, rest = divmod(nbytes * 8, dtype.bits)
    if rest:
        raise InvalidView(
            f"{nbytes} bytes are no whole number of {dtype} "
            f"{'blocks' if dtype.is_block else 'elements'} of {dtype.bits} bits"
        )
    return (count * dtype.block_length,)
