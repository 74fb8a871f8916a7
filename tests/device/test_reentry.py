"""A finaliser or a signal handler runs at any line, also in the middle of the allocator itself.

At each line of the device room in turn another allocation is made, or an exception raised, as a
handler would: the outer call and the inner one both come to their end, and the books balance.
"""

from __future__ import annotations

import dis
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from arenite.device import Buffer, BufferOptions, CpuAllocator, DiskAllocator
from arenite.device import buffer as room
from arenite.device.cpu import PAGE_NBYTES as PAGE

ROOM = str(Path(room.__file__).parent)


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """Ends the process with a message where something waits for itself."""
    import faulthandler

    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


#: Behind these the interpreter looks for signals.
LOOKS = ("RESUME", "CALL", "JUMP_BACKWARD")


class Points:
    """Counts the places of the room that are passed: its lines, or (`looks`) only those where the
    interpreter looks for signals, whose handlers may raise. At the n-th it calls `interrupt`."""

    def __init__(self, interrupt: Callable[[], None], number: int = 0, looks: bool = False) -> None:
        self.count = 0
        self._interrupt = interrupt
        self._number = number
        self._looks = looks
        self._last: dict[FrameType, str] = {}

    def run(self, body: Callable[[], object]) -> bool:
        """Whether `body` came to the n-th point."""
        before = sys.gettrace()
        # Python 3.12 tells of opcodes only if some frame asks for them by now.
        sys._getframe().f_trace_opcodes = self._looks
        sys.settrace(self._trace)
        try:
            body()
        finally:
            sys.settrace(before)
            self._last.clear()
        return self.count >= self._number

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(ROOM):
            return self._trace if "contextlib" in file else None
        frame.f_trace_opcodes = self._looks
        if self._looks and event == "opcode":
            now = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            before, self._last[frame] = self._last.get(frame, ""), now
            if before.startswith(LOOKS):
                self._pass()
        elif event == "line" and not self._looks:
            self._pass()
        return self._trace

    def _pass(self) -> None:
        self.count += 1
        if self.count == self._number:
            sys.settrace(None)
            self._interrupt()


def n_points(body: Callable[[], object], looks: bool = False) -> int:
    points = Points(lambda: None, looks=looks)
    points.run(body)
    return points.count


def work(cpu: CpuAllocator) -> None:
    """Everything an allocator does: fresh memory, the pool, evicting, freeing, trimming."""
    kept = [Buffer.allocate(cpu, "uint8", (PAGE * n,)) for n in (1, 2, 3)]
    del kept[0]
    kept.append(Buffer.allocate(cpu, "uint8", (PAGE,)))
    del kept
    cpu.pool_cap_nbytes = 3 * PAGE
    cpu.trim()


def test_an_allocation_at_any_line_of_the_allocator_works() -> None:
    n_lines = n_points(lambda: work(CpuAllocator()))
    assert n_lines > 100
    for number in range(1, n_lines + 1):
        cpu = CpuAllocator(pool_cap_nbytes=4 * PAGE)
        made: list[Buffer] = []

        def handler(cpu: CpuAllocator = cpu, made: list[Buffer] = made) -> None:
            made += [Buffer.allocate(cpu, "uint8", (PAGE * n,)) for n in (1, 2, 2)]
            made.pop().copyin(bytes(2 * PAGE))
            cpu.trim()
            _ = cpu.stats

        Points(handler, number).run(lambda cpu=cpu: work(cpu))  # type: ignore[misc]
        n = len(made)
        stats = cpu.stats
        assert (stats.n_live, stats.live_nbytes) == (n, 3 * PAGE * (n // 2)), number
        assert stats.hits + stats.misses == 4 + (3 if n else 0)
        made.clear()
        stats = cpu.stats
        assert (stats.n_live, stats.live_nbytes) == (0, 0)
        assert stats.pooled_nbytes == sum(m.nbytes for m in cpu._pool._oldest_first)
        assert stats.pooled_nbytes <= stats.pool_cap_nbytes


def test_an_exception_at_any_line_of_the_allocator_leaves_it_usable() -> None:
    n_looks = n_points(lambda: work(CpuAllocator()), looks=True)
    assert n_looks > 100
    for number in range(1, n_looks + 1):
        cpu = CpuAllocator(pool_cap_nbytes=4 * PAGE)

        def handler() -> None:
            raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            Points(handler, number, looks=True).run(lambda cpu=cpu: work(cpu))  # type: ignore[misc]
        done: list[bool] = []

        def use(cpu: CpuAllocator = cpu, done: list[bool] = done) -> None:
            work(cpu)
            work(cpu)
            done.append(True)

        other = threading.Thread(target=use, daemon=True)  # the lock is free for others too
        other.start()
        other.join(20)
        assert done == [True], number
        stats = cpu.stats
        assert stats.live_nbytes == sum(cpu.ledger._live.values()), number
        assert stats.pooled_nbytes == sum(m.nbytes for m in cpu._pool._oldest_first) == 0


def test_a_storage_allocated_by_a_handler_in_the_middle_of_its_allocation_is_one() -> None:
    def first() -> Buffer:
        buffer = Buffer(CpuAllocator(), "uint8", (8,))
        buffer.ensure_allocated()
        return buffer

    for number in range(1, n_points(first) + 1):
        cpu = CpuAllocator()
        buffer = Buffer(cpu, "uint8", (8,))
        seen: list[int] = []

        def handler(buffer: Buffer = buffer, seen: list[int] = seen) -> None:
            buffer.copyin(b"12345678")
            seen.append(buffer.raw_ptr)

        if Points(handler, number).run(buffer.ensure_allocated):
            assert seen == [buffer.raw_ptr], number
            assert buffer.copyout() == b"12345678"
        assert cpu.stats.n_live == 1, number
        del buffer, handler
        assert cpu.stats.n_live == 0, number


def test_finalisers_that_allocate_while_the_allocator_collects_do_not_hang() -> None:
    cpu = CpuAllocator()
    made: list[Buffer] = []

    class Allocates:
        def __init__(self) -> None:
            self.me = self  # only the collector ends this

        def __del__(self) -> None:
            made.append(Buffer.allocate(cpu, "uint8", (PAGE,)))

    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)  # the collector runs nearly everywhere
    try:
        for _ in range(30):
            Allocates()
            work(cpu)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert len(made) == 30
    assert cpu.stats.n_live == 30


def test_a_signal_that_comes_while_the_allocator_is_held_is_handled(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    cpu, disk = CpuAllocator(), DiskAllocator(tmp_path / "file")
    handled: list[bytes] = []

    def handler(*_: object) -> None:
        cpu.free(cpu.allocate(1, BufferOptions()))
        handled.append(disk.file().copyout())

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with cpu.ledger.locked(), disk._ledger.locked():
            os.kill(os.getpid(), signal.SIGUSR1)
            assert handled == [b"content"]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (cpu.stats.n_live, disk.stats.n_live) == (0, 0)
