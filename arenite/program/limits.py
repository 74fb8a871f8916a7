"""Limits: what one worker of a device, or all of it, can do at most; profiles and tunings show
shares of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cache:
    """What it holds, and how fast that is read."""

    name: str
    nbytes: int
    read_gbytes: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Of `what`; a multiply-add counts as two operations."""

    gflops: float  # float32
    float64_gflops: float
    int8_gops: float  # bytes, summed in int32
    read_gbytes: float  # a second, from memory
    caches: tuple[Cache, ...] = ()  # small ones first
    n_cores: int = 1  # that read memory at once
    what: str = "a core"

    def share(
        self, arithmetic: Mapping[str, int], nbytes: int, seconds: float, n_runs: int = 1
    ) -> tuple[float, str]:
        """What the work had to take over what it took, and its limit: where it takes longest. Of
        work that took no time, which was not measured then, there is no share.

        `arithmetic` are operations by kind; all kinds are done in the same units, one after the
        other, and bytes are moved meanwhile. Bytes that moved faster than memory is read were in a
        cache: the smallest that holds those of one run.
        """
        rates = {"float32": self.gflops, "float64": self.float64_gflops, "int8": self.int8_gops}
        needed = {name: count / rates[name] / 1e9 for name, count in arithmetic.items()}
        computing, moving, place = sum(needed.values()), nbytes / self.read_gbytes / 1e9, "memory"
        if not seconds:
            return 0.0, place
        fitting = [cache for cache in self.caches if nbytes <= cache.nbytes * n_runs]
        if moving > seconds and fitting:
            moving, place = nbytes / fitting[0].read_gbytes / 1e9, fitting[0].name
        if moving > computing or not computing:
            return moving / seconds, place
        return computing / seconds, max(needed, key=lambda name: needed[name])

    def __str__(self) -> str:
        if self.gflops == self.float64_gflops == self.int8_gops:  # one measure for all of them
            kinds = f"{self.gflops:.0f} GFLOP/s in float32"
        else:
            kinds = (
                f"{self.gflops:.0f} GFLOP/s in float32, {self.float64_gflops:.0f} in float64, "
                f"{self.int8_gops:.0f} Gop/s in int8"
            )
        caches = "".join(f"{one.read_gbytes:.0f} from {one.name}, " for one in self.caches)
        others = f" while {self.n_cores} read it" if self.n_cores > 1 else ""
        return (
            f"{self.what} does {kinds}; it reads {caches}{self.read_gbytes:.1f} GB/s from "
            f"memory{others}"
        )
