"""The CPU allocator: alignment, pool, statistics, running out, threads and the collector."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.device import Buffer, BufferOptions, CpuAllocator, RawBuffer
from arenite.device.allocator import readable_nbytes
from arenite.device.cpu import PAGE_NBYTES
from arenite.errors import InvalidArgument, InvalidView, OutOfMemory

PAGE = PAGE_NBYTES
PLAIN = BufferOptions()


def address(raw: RawBuffer) -> int:
    assert raw.address is not None
    return raw.address


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    """Run Python source in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=120
    )


def in_daemon_thread(body: Callable[[], None]) -> bool:
    """Run `body` in a thread that a deadlock would not let end; whether it ended."""
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


# Requests


@given(
    nbytes=st.integers(0, 3 * PAGE),
    alignment=st.sampled_from([1, 8, 64, 256, PAGE, 2 * PAGE, 16 * PAGE, 2**21]),
)
def test_memory_is_aligned_as_asked_and_to_64_at_least(nbytes: int, alignment: int) -> None:
    cpu = CpuAllocator()
    raw = cpu.allocate(nbytes, BufferOptions(alignment=alignment))
    assert raw.nbytes == nbytes
    assert address(raw) % max(alignment, 64) == 0
    end = raw.owner.address + raw.owner.nbytes
    assert raw.owner.address <= address(raw) <= address(raw) + nbytes <= end


def test_zeroed_memory_is_zero_fresh_and_pooled() -> None:
    cpu = CpuAllocator()
    for _ in range(2):  # the second one comes from the pool, dirty
        raw = cpu.allocate(100, BufferOptions(zeroed=True))
        assert ctypes.string_at(address(raw), 100) == bytes(100)
        ctypes.memset(address(raw), 0xFF, 100)
        cpu.free(raw)
    assert cpu.stats.hits == 1


def test_memory_is_not_zeroed_unless_asked() -> None:
    cpu = CpuAllocator()
    dirty = cpu.allocate(100, PLAIN)
    ctypes.memset(address(dirty), 0xFF, 100)
    cpu.free(dirty)
    assert ctypes.string_at(address(cpu.allocate(100, PLAIN)), 100) == b"\xff" * 100


@pytest.mark.parametrize("alignment", [0, -64, 3, 96])
def test_an_alignment_is_a_power_of_two(alignment: int) -> None:
    with pytest.raises(InvalidArgument, match=str(alignment)):
        BufferOptions(alignment=alignment)


def test_nonsense_requests_are_invalid_arguments() -> None:
    cpu = CpuAllocator()
    with pytest.raises(InvalidArgument, match="-1"):
        BufferOptions(file_offset=-1)
    with pytest.raises(InvalidArgument, match="-5 bytes"):
        cpu.allocate(-5, PLAIN)
    with pytest.raises(InvalidArgument, match="integer"):
        cpu.allocate(cast(Any, 1.5), PLAIN)
    with pytest.raises(InvalidArgument, match="disk"):
        cpu.allocate(1, BufferOptions(file_offset=1))
    with pytest.raises(InvalidArgument, match="-1"):
        CpuAllocator(pool_cap_nbytes=-1)
    assert cpu.stats.n_live == 0


def test_copies_stay_within_the_memory() -> None:
    cpu = CpuAllocator()
    raw = cpu.allocate(8, PLAIN)
    for offset, nbytes in [(1, 8), (-1, 2), (9, 0)]:
        with pytest.raises(InvalidView, match=f"{offset}..{offset + nbytes} are not within the 8"):
            cpu.copyin(raw, offset, memoryview(bytes(nbytes)))
        with pytest.raises(InvalidView):
            cpu.copyout(raw, offset, memoryview(bytearray(nbytes)))


# Pool and statistics


def test_a_block_of_the_same_rounded_size_is_reused() -> None:
    cpu = CpuAllocator()
    first = cpu.allocate(PAGE + 1, PLAIN)
    cpu.free(first)
    again = cpu.allocate(2 * PAGE, PLAIN)
    assert address(again) == address(first)
    other = cpu.allocate(PAGE, PLAIN)
    assert address(other) != address(first)
    assert (cpu.stats.hits, cpu.stats.misses) == (1, 2)


def test_the_warmest_block_of_a_size_is_reused_first() -> None:
    cpu = CpuAllocator()
    cold, warm = cpu.allocate(1, PLAIN), cpu.allocate(1, PLAIN)
    cpu.free(cold)
    cpu.free(warm)
    assert address(cpu.allocate(1, PLAIN)) == address(warm)
    assert address(cpu.allocate(1, PLAIN)) == address(cold)


def test_statistics_count_whole_pages() -> None:
    cpu = CpuAllocator(pool_cap_nbytes=10 * PAGE)
    kept = [cpu.allocate(nbytes, PLAIN) for nbytes in (0, 1, PAGE, PAGE + 1)]
    assert cpu.stats.live_nbytes == 5 * PAGE
    assert cpu.stats.n_live == 4
    cpu.free(kept[3])
    stats = cpu.stats
    assert (stats.live_nbytes, stats.n_live, stats.pooled_nbytes) == (3 * PAGE, 3, 2 * PAGE)
    assert (stats.peak_nbytes, stats.pool_cap_nbytes) == (5 * PAGE, 10 * PAGE)


def test_statistics_read_well() -> None:
    cpu = CpuAllocator(pool_cap_nbytes=3 * 2**20)
    raw = cpu.allocate(6 * 1024, PLAIN)
    assert repr(cpu.stats) == (
        "AllocatorStats(live 8 KiB in 1, peak 8 KiB, pooled 0 bytes of at most 3 MiB, "
        "0 hits, 1 misses)"
    )
    assert "cpu" in repr(cpu)
    cpu.free(raw)


def test_sizes_read_well() -> None:
    assert readable_nbytes(1023) == "1023 bytes"
    assert readable_nbytes(1536) == "1.5 KiB"
    assert readable_nbytes(5 * 2**30) == "5 GiB"
    assert readable_nbytes(2**70) == "1.074e+09 TiB"


def test_the_least_recently_used_goes_first() -> None:
    cpu = CpuAllocator(pool_cap_nbytes=6 * PAGE)
    one, two, three = (cpu.allocate(n * PAGE, PLAIN) for n in (1, 2, 3))
    for raw in (one, two, three):
        cpu.free(raw)
    cpu.free(cpu.allocate(PAGE, PLAIN))  # now `two` is the oldest
    four = cpu.allocate(4 * PAGE, PLAIN)
    assert cpu.stats.pooled_nbytes == 6 * PAGE
    cpu.free(four)  # 10 pages would be pooled: two and three have to go
    assert cpu.stats.pooled_nbytes == 5 * PAGE
    before = cpu.stats
    for n in (1, 4):
        cpu.allocate(n * PAGE, PLAIN)
    assert cpu.stats.hits == before.hits + 2
    for n in (2, 3):
        cpu.allocate(n * PAGE, PLAIN)
    assert cpu.stats.misses == before.misses + 2


def test_the_cap_holds_for_any_sequence_of_frees() -> None:
    cpu = CpuAllocator(pool_cap_nbytes=7 * PAGE)
    for round_ in range(5):
        for raw in [cpu.allocate((n * 5 + round_) % 9 * PAGE, PLAIN) for n in range(9)]:
            cpu.free(raw)
            assert cpu.stats.pooled_nbytes <= 7 * PAGE


def test_a_block_over_the_cap_does_not_empty_the_pool() -> None:
    cpu = CpuAllocator(pool_cap_nbytes=2 * PAGE)
    small, large = cpu.allocate(1, PLAIN), cpu.allocate(3 * PAGE, PLAIN)
    cpu.free(small)
    cpu.free(large)
    assert cpu.stats.pooled_nbytes == PAGE


def test_trim_gives_everything_pooled_back() -> None:
    cpu = CpuAllocator()
    live = cpu.allocate(1, PLAIN)
    cpu.free(cpu.allocate(3 * PAGE, PLAIN))
    assert cpu.trim() == 3 * PAGE
    assert cpu.trim() == 0
    assert (cpu.stats.pooled_nbytes, cpu.stats.live_nbytes) == (0, PAGE)
    cpu.free(live)


def test_lowering_the_cap_gives_back_at_once() -> None:
    cpu = CpuAllocator()
    for raw in [cpu.allocate(1, PLAIN) for _ in range(4)]:
        cpu.free(raw)
    cpu.pool_cap_nbytes = 3 * PAGE
    assert cpu.pool_cap_nbytes == cpu.stats.pool_cap_nbytes == 3 * PAGE
    assert cpu.stats.pooled_nbytes == 3 * PAGE
    with pytest.raises(InvalidArgument):
        cpu.pool_cap_nbytes = -1


def test_freeing_twice_counts_once_also_after_reuse() -> None:
    cpu = CpuAllocator()
    first = cpu.allocate(1, PLAIN)
    cpu.free(first)
    cpu.free(first)
    second, third = cpu.allocate(1, PLAIN), cpu.allocate(1, PLAIN)
    assert address(second) != address(third)
    cpu.free(first)  # its block is now `second`'s
    assert cpu.stats.n_live == 2


def test_trimmed_memory_is_unmapped() -> None:
    def mapped() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * PAGE

    cpu = CpuAllocator(pool_cap_nbytes=2**40)
    cpu.free(cpu.allocate(2**28, PLAIN))
    before = mapped()
    cpu.trim()
    assert mapped() <= before - 2**28


# Running out


@pytest.mark.parametrize("nbytes", [2**62, 2**63 - 1, 2**63, 2**70])
def test_absurd_sizes_are_out_of_memory(nbytes: int) -> None:
    cpu = CpuAllocator()
    cpu.free(cpu.allocate(1, PLAIN))
    live = cpu.allocate(5 * PAGE, PLAIN)
    with pytest.raises(OutOfMemory) as caught:
        cpu.allocate(nbytes, PLAIN)
    message = str(caught.value)
    assert message.startswith("cpu: ")
    assert f"request of {nbytes}" in message
    assert f"Live here: {5 * PAGE} bytes" in message
    assert f"the {PAGE} bytes that were pooled" in message
    assert cpu.stats.n_live == 1
    cpu.free(live)


def test_a_lazy_buffer_of_an_absurd_size_fails_when_allocated() -> None:
    buffer = Buffer(CpuAllocator(), "uint8", (2**70,))
    with pytest.raises(MemoryError):
        buffer.ensure_allocated()
    assert not buffer.is_allocated


def test_pooled_memory_is_given_back_before_an_allocation_fails() -> None:
    done = run_script("""
import resource
from arenite.device import BufferOptions, CpuAllocator
from arenite.errors import OutOfMemory

MIB = 2**20
cpu = CpuAllocator(pool_cap_nbytes=1024 * MIB)
cpu.free(cpu.allocate(256 * MIB, BufferOptions()))
with open("/proc/self/statm") as file:
    mapped = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + 64 * MIB,) * 2)
assert cpu.stats.pooled_nbytes == 256 * MIB
raw = cpu.allocate(128 * MIB, BufferOptions())  # only fits once the pool is gone
assert cpu.stats.pooled_nbytes == 0 and cpu.stats.live_nbytes == 128 * MIB
try:
    cpu.allocate(1024 * MIB, BufferOptions())
except OutOfMemory as error:
    print(error)
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{1024 * 2**20} bytes (1 GiB)" in done.stdout
    assert f"Live here: {128 * 2**20} bytes (128 MiB) in 1" in done.stdout


# Threads, forks and the collector


def test_freeing_while_this_thread_is_inside_the_allocator_does_not_wait() -> None:
    cpu = CpuAllocator()
    buffers = [Buffer.allocate(cpu, "uint8", (8,)) for _ in range(3)]

    def collect_inside() -> None:
        with cpu.ledger.locked():
            buffers.clear()  # as the collector may do at any point in there

    assert in_daemon_thread(collect_inside)
    assert cpu.ledger.n_live == 0  # settled on the way out, by whoever was inside
    assert cpu.stats.pooled_nbytes == 3 * PAGE


def test_freeing_while_another_thread_is_inside_does_not_wait() -> None:
    cpu = CpuAllocator()
    buffers = [Buffer.allocate(cpu, "uint8", (8,))]
    with cpu.ledger.locked():
        assert in_daemon_thread(buffers.clear)
        assert cpu.ledger.n_live == 1
    assert cpu.ledger.n_live == 0


def test_books_balance_under_threads_and_collections() -> None:
    cpu = CpuAllocator(pool_cap_nbytes=20 * PAGE)
    start = threading.Barrier(5)

    class Cycle:
        def __init__(self, buffer: Buffer) -> None:
            self.me = self
            self.buffer = buffer

    def churn(seed: int) -> None:
        start.wait()
        for n in range(300):
            buffer = Buffer.allocate(cpu, "uint8", ((seed + n) % 7 * 1000,))
            Cycle(buffer.view(0, buffer.nbytes))  # only the collector can free this one

    def collect() -> None:
        start.wait()
        for _ in range(40):
            gc.collect()

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(4)]
    threads.append(threading.Thread(target=collect))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    stats = cpu.stats
    assert (stats.n_live, stats.live_nbytes) == (0, 0)
    assert stats.hits + stats.misses == 1200
    assert stats.pooled_nbytes <= 20 * PAGE


def test_a_forked_child_can_allocate() -> None:
    done = run_script("""
import os, threading
from arenite import device
from arenite.device import Buffer

cpu = device.get("cpu")
over = threading.Event()

def churn():
    while not over.is_set():
        Buffer.allocate(cpu, "uint8", (1,))

for _ in range(3):
    threading.Thread(target=churn).start()
for _ in range(60):
    child = os.fork()
    if child == 0:
        Buffer.allocate(cpu, "uint8", (1,)).copyin(b"x")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
over.set()
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_is_private_to_a_forked_child() -> None:
    done = run_script("""
import os
from arenite import device
from arenite.device import Buffer

buffer = Buffer.allocate(device.get("cpu"), "uint8", (1,))
buffer.copyin(b"p")
child = os.fork()
if child == 0:
    buffer.copyin(b"c")
    os._exit(0)
os.waitpid(child, 0)
assert buffer.copyout() == b"p"
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_is_the_systems() -> None:
    assert os.sysconf("SC_PAGE_SIZE") == PAGE


LARGE_BLOCKS = """
from pathlib import Path
from arenite.device.cpu import share_heap

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

share_heap()
nbytes = 2**24
b"x" * nbytes  # after it, glibc alone would take blocks of its size from the heap
nbytes, few = 2**20, 2000
before = resident()
pairs = [(b"x" * nbytes, b"y" * few) for _ in range(32)]
small = [second for _, second in pairs]
assert resident() - before > 30 * 2**20
del pairs
assert resident() - before < 4 * 2**20, resident() - before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self")
def test_large_blocks_of_a_shared_heap_go_back_to_the_system() -> None:
    """Also where small ones that stay were made between them."""
    subprocess.run([sys.executable, "-c", LARGE_BLOCKS], check=True)
