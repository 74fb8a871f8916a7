"""What one core of this machine can do at most: multiply-adds a second, and bytes it reads.

Measured by two small kernels, when first asked for: a loop of independent fused multiply-adds that
touches no memory, and a sum over more bytes than the caches hold. Everything a profile or a
benchmark reports as a share is a share of these.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from arenite import device
from arenite.codegen.identity import compiler_identity, host_identity
from arenite.device import Buffer
from arenite.dtype import uint8
from arenite.runtime import cache
from arenite.runtime.loader import load_code
from arenite.runtime.model_file import code_sections, parse_code

if TYPE_CHECKING:
    from arenite.codegen.target import Target

#: Multiply-adds in flight: enough for any core's latency times its units.
N_CHAINS = 12
TURNS = 20_000
READ_NBYTES = 96 * 2**20
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one core."""

    gflops: float  # float32, a multiply-add counted as two
    read_gbytes: float  # a second, from memory

    def share(self, gflops: float, gbytes: float) -> tuple[float, str]:
        """The larger of the shares of both limits, and of which: what a kernel is bound by."""
        arithmetic, memory = gflops / self.gflops, gbytes / self.read_gbytes
        return (arithmetic, "arithmetic") if arithmetic >= memory else (memory, "memory")


@lru_cache(maxsize=1)
def limits() -> Limits:
    """Measured now, in some 0.1 s; the same for the rest of the process."""
    source = Path(__file__).read_bytes()
    key = cache.key_of("limits", source, compiler_identity(), host_identity())
    code, entries = parse_code(cache.default().obtain(key, _build))
    loaded = load_code(code)
    try:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        fma, read = (call(loaded.address(entries[name])) for name in ("fma", "read"))
        lanes = ctypes.c_int64()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address(entries["lanes"]))(
            ctypes.addressof(lanes)
        )
        out = (ctypes.c_float * 64)()
        seconds = _best(lambda: fma(ctypes.addressof(out), TURNS))
        gflops = 2 * lanes.value * N_CHAINS * TURNS / seconds / 1e9
        memory = Buffer.allocate(device.get("cpu"), uint8, (READ_NBYTES,))
        memory.as_array_mut()[...] = 0  # so that there are pages
        seconds = _best(lambda: read(memory.raw_ptr, READ_NBYTES // 256))
        return Limits(gflops, READ_NBYTES / seconds / 1e9)
    finally:
        loaded.close()


def _best(work: Callable[[], None]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _build() -> dict[str, bytes]:
    from arenite.runtime.compile_pool import compile_modules, host_target
    from arenite.runtime.link import link_objects

    target = host_target()
    image = link_objects(compile_modules([_module(target)], target))
    return code_sections(image.image, image.entries)


def _module(target: Target) -> str:
    """fma: N_CHAINS sums, each its own multiply-add a turn. read: 256 bytes a turn, summed."""
    lanes = target.vector_bits // 32
    vector = f"<{lanes} x float>"
    name = f"llvm.{'fma' if target.has_fma else 'fmuladd'}.v{lanes}f32"
    chains, parts = range(N_CHAINS), range(256 // (lanes * 4))

    def lines(text: str, numbers: range) -> str:
        return "\n".join(text.format(k=k, at=k * lanes * 4) for k in numbers)

    def turns(before: str, body: str, after: str, phis: str) -> str:
        return f"""{{
entry:
{before}
  br label %turn
turn:
  %n = phi i64 [ %turns, %entry ], [ %left, %turn ]
{phis}
{body}
  %left = sub i64 %n, 1
  %more = icmp ne i64 %left, 0
  br i1 %more, label %turn, label %done
done:
{after}
  ret void
}}"""

    # Chains that begin alike would be one to LLVM.
    sums = f"  %s{{k}} = phi {vector} [ splat (float {{k}}.0), %entry ], [ %t{{k}}, %turn ]"
    step = f"  %t{{k}} = call {vector} @{name}({vector} %x, {vector} %x, {vector} %s{{k}})"
    load = (
        "  %p{k} = getelementptr i8, ptr %at, i64 {at}\n"
        f"  %v{{k}} = load {vector}, ptr %p{{k}}, align 4\n"
        f"  %t{{k}} = fadd {vector} %s{{k}}, %v{{k}}"
    )
    keep = f"  store volatile {vector} %t{{k}}, ptr %slot"
    slot = f"  %slot = alloca {vector}, align 64"
    walk = "  %at = phi ptr [ %from, %entry ], [ %behind, %turn ]"
    move = "  %behind = getelementptr i8, ptr %at, i64 256"
    return f"""declare {vector} @{name}({vector}, {vector}, {vector})
define hidden void @lanes(ptr %out) nounwind {{
  store i64 {lanes}, ptr %out
  ret void
}}
define hidden void @fma(ptr %from, i64 %turns) nounwind {
        turns(
            f"{slot}{chr(10)}  %x = load volatile {vector}, ptr %from, align 4",
            lines(step, chains),
            lines(keep, chains),
            lines(sums, chains),
        )
    }
define hidden void @read(ptr %from, i64 %turns) nounwind {
        turns(
            slot,
            f"{lines(load, parts)}{chr(10)}{move}",
            lines(keep, parts),
            f"{walk}{chr(10)}{lines(sums, parts)}",
        )
    }
"""
