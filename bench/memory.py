"""How fast memory is read: many caches full, by lines of one stream or of some side by side.

A side of its own for `bench.harness`: the case is ignored. How many streams, and whether lines are
asked for before they are read, is what is fastest at the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from arenite.backends.cpu.gemm.tile import moved, prefetch
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.backends.cpu.target import host
from bench.gemm_ours import native

READ_NBYTES = 1 << 28
#: Ways to read: streams side by side, and how far before a line is asked for.
WAYS = ((1, 0), (4, 0), (8, 0), (8, 2048))
TRIES = 3
LINE_NBYTES = 64


def prepare(case: str, threads: int) -> Callable[[], None]:
    """All of some memory read once, by so many threads."""
    memory = np.ones(READ_NBYTES + LINE_NBYTES, np.uint8)
    start = -(-memory.ctypes.data // LINE_NBYTES) * LINE_NBYTES
    places = [start + k * READ_NBYTES // threads for k in range(threads)]
    pool = ThreadPoolExecutor(threads)
    calls = [native(_reader(READ_NBYTES // threads, *way)) for way in WAYS]

    def read(call: Callable[[int], None]) -> None:
        list(pool.map(call, places))
        assert memory[LINE_NBYTES] == 1  # it is still there

    def seconds(call: Callable[[int], None]) -> float:
        began = time.perf_counter()
        read(call)
        return time.perf_counter() - began

    fastest = min(calls, key=lambda call: min(seconds(call) for _ in range(TRIES)))
    return lambda: read(fastest)


def _reader(nbytes: int, n_streams: int, ahead: int) -> Builder:
    """Reads `nbytes` from `window` on."""
    stream_nbytes = nbytes // n_streams
    b = Builder(host())
    t = VType("i", 32, LINE_NBYTES // 4)
    front, head, done = b.block, b.new_block("loop"), b.new_block("done")
    front.end = f"br label %{head.name}"
    b.block = head
    at, seen = Vec(b, b.new_name(), I64), Vec(b, b.new_name(), t)
    made = seen
    for stream in range(n_streams):
        line = moved(b, b.offset("%window", stream * stream_nbytes), at)
        if ahead:
            prefetch(b, b.offset(line, ahead))
        made = made | b.emit(f"load {t}, ptr {line}, align {LINE_NBYTES}", t)
    after = at + LINE_NBYTES
    again = after.lt(b.constant(stream_nbytes, I64))
    head.end = f"br i1 {again.text}, label %{head.name}, label %{done.name}"
    b.set_phi(head, at.text, [(b.constant(0, I64), front), (after, head)])
    b.set_phi(head, seen.text, [(b.constant(0, t), front), (made, head)])
    b.block = done
    b.emit_void(f"store {t} {made.text}, ptr %window, align {LINE_NBYTES}")
    done.end = "ret void"
    return b
