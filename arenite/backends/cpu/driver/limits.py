"""What one core of this machine can do at most: multiply-adds a second, and bytes it reads.

Measured by small loops, when first asked for: multiply-adds that wait for no memory, in each kind
of number that kernels compute in, and reading of what each cache holds and of more than all hold.
Cores may share their way to memory: what one has of it depends on how many read at once.
Everything a profile or a tuning reports as a share is a share of these.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from threading import Barrier

from arenite import device
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.driver import limits_ir
from arenite.backends.cpu.identity import compiler_identity, host_identity, sources
from arenite.backends.cpu.target import Target
from arenite.device import Buffer
from arenite.dtype import UINT8
from arenite.program import cache
from arenite.program.limits import Cache, Limits
from arenite.program.model_file import code_sections, parse_code

TURNS = 20_000
#: Bytes that are read from memory: twice the last cache, within these.
LEAST_READ_NBYTES, MOST_READ_NBYTES = 96 * 2**20, 512 * 2**20
ROUNDS = 5
#: Ways to read memory, the faster of which counts: which one that is depends on its pages.
_WAYS = ("read", "read_strided")
#: What is multiplied: numbers that are small and plain, whatever they are read as.
PLAIN_BYTE = 0x3F


def limits(n_cores: int = 1) -> Limits:
    """Of a core when as many read memory at once, which they may have to share. Measured when first
    asked for, in some 0.1 s; the same for the rest of the process."""
    return measured(n_cores)


@lru_cache(maxsize=8)
def measured(n_cores: int) -> Limits:
    """`limits`, whose results it keeps."""
    with _loops() as loops:
        if n_cores == 1:
            return loops.one()
        return replace(limits(), read_gbytes=loops.together(n_cores) / n_cores, n_cores=n_cores)


class _Loops:
    """The loops in machine code, and memory to read: more than all caches hold."""

    def __init__(self, target: Target, loops: Mapping[str, Callable[..., None]]) -> None:
        self._target, self._loops = target, loops
        self._nbytes = max(LEAST_READ_NBYTES, min(MOST_READ_NBYTES, 2 * target.l3_nbytes))
        self._memory = Buffer.allocate(device.get("cpu"), UINT8, (self._nbytes,))
        self._memory.as_array_mut()[...] = PLAIN_BYTE  # so that there are pages

    def one(self) -> Limits:
        target = self._target
        sizes = {"L1": target.l1d_nbytes, "L2": target.l2_nbytes, "L3": target.l3_nbytes}
        return Limits(
            self._gops("float32"),
            self._gops("float64"),
            self._gops("int8"),
            self.together(1),
            tuple(
                Cache(name, nbytes, self._cached_gbytes(_half(nbytes) - 1))
                for name, nbytes in sizes.items()
            ),
        )

    def together(self, n_cores: int) -> float:
        """What so many read of memory in a second, each a part of its own."""
        piece = limits_ir.READ_NBYTES * limits_ir.PLACES
        nbytes = self._nbytes // n_cores // piece * piece
        ready = Barrier(n_cores)

        def read(name: str, k: int) -> tuple[float, float]:
            ready.wait()
            began = time.perf_counter()
            self._read(name, nbytes, first=k * nbytes)
            return began, time.perf_counter()

        def once(name: str) -> float:
            spans = list(pool.map(partial(read, name), range(n_cores)))
            return max(ended for _, ended in spans) - min(began for began, _ in spans)

        with ThreadPoolExecutor(n_cores) as pool:
            least = min(once(name) for name in _WAYS for _ in range(ROUNDS))
            return n_cores * nbytes / least / 1e9

    def _gops(self, name: str) -> float:
        count = limits_ir.OPERATIONS[name] * self._target.vector_bits // 32 * TURNS
        return count / _best(lambda: self._call(name, TURNS)) / 1e9

    def _cached_gbytes(self, mask: int) -> float:
        turns = self._nbytes // limits_ir.READ_NBYTES
        return self._nbytes / _best(lambda: self._call("read", turns, mask)) / 1e9

    def _read(self, name: str, nbytes: int, first: int) -> None:
        """So many bytes from the first on, once."""
        turns = nbytes // limits_ir.READ_NBYTES
        self._call(name, turns, -1 if name == "read" else nbytes // limits_ir.PLACES, first)

    def _call(self, name: str, turns: int, mask: int = -1, first: int = 0) -> None:
        into = (ctypes.c_uint8 * 64)()
        self._loops[name](self._memory.raw_ptr + first, ctypes.addressof(into), turns, mask)


@contextmanager
def _loops() -> Iterator[_Loops]:
    from arenite.backends.cpu.compiling.pool import host_target

    text = sources(__file__, limits_ir.__file__)
    key = cache.key_of("limits", text, compiler_identity(), host_identity())
    code, entries = parse_code(cache.default().obtain(key, _build))
    loaded = load_code(code)
    try:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 2)
        loops = {name: call(loaded.address(entry)) for name, entry in entries.items()}
        yield _Loops(host_target(), loops)
    finally:
        loaded.close()


def _half(nbytes: int) -> int:
    """A power of two, about half of a size."""
    power: int = 1 << max(1, nbytes // 2).bit_length() - 1
    return power


def _best(work: Callable[[], None]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _build() -> dict[str, bytes]:
    from arenite.backends.cpu.compiling.link import link_objects
    from arenite.backends.cpu.compiling.pool import compile_modules, host_target

    target = host_target()
    image = link_objects(compile_modules([limits_ir.limits_module(target)], target))
    return code_sections(image.image, image.entries)
