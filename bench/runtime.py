"""What the runtime itself costs: launches, calls, the team, loading.

    python -m bench.runtime

Prints a markdown table. Times are the best of several, so that other programs on the machine
count as little as they can; latencies of the team also as median.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import arenite
from arenite.backends.cpu.compiling.link import CodeImage, link_objects
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.compiling.pool import compile_modules
from arenite.backends.cpu.driver import native
from arenite.backends.cpu.driver.ir_text import Module
from arenite.backends.cpu.driver.layout import Team
from arenite.backends.cpu.driver.native import BoundTable
from arenite.backends.cpu.target import host
from arenite.program.model_file import (
    code_sections,
    model_bytes,
    parse_code,
    read_model_file,
    write_atomically,
)
from arenite.program.table import Ins, aligned_empty
from tests.runtime.table_builder import TableBuilder

N_LAUNCHES = 200
REPEATS = 300


def kernels() -> CodeImage:
    """`increment`: 64 floats += 1. `empty`. `meet`: wait for all tiles to have begun."""
    module = Module()
    names = {"window": "ptr", "first": "i64", "last": "i64", "worker": "ptr"}
    f = module.function("increment", "void", exported=True, **names)
    array = f.load("ptr", f["window"])
    for i in range(0, 256, 64):
        vector = "<16 x float>"
        old = f.op(vector, f"load {vector}, ptr {f.at(array, i).text}, align 4")
        new = f.op(vector, f"fadd {vector} {old.text}, splat (float 1.0)")
        f.store(new, array, i)
    module.function("empty", "void", exported=True, **names)
    f = module.function("meet", "void", exported=True, **names)
    arrived, wanted = f.load("ptr", f["window"]), f.load("i64", f["window"], 8)
    f.exchange("add", arrived, 0, f.as_type(1, "i64"))
    with (
        f.count(0, f.as_type(10**9, "i64")),
        f.if_(f.le(wanted, f.load("i64", arrived, order="acquire"))),
    ):
        f.break_()
    return link_objects(compile_modules([module.text()], host()))


def best(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds of the best of several."""
    found = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - start)
    return found


def chain(kernel: int, array: NDArray[np.float32]) -> BoundTable:
    build = TableBuilder()
    window = build.window([array.__array_interface__["data"][0]])
    with build.block():
        for _ in range(N_LAUNCHES):
            build.launch(kernel, window, 1, cost_ns=10)
    return BoundTable(*build.finish())


def loop(instructions: int) -> BoundTable:
    build = TableBuilder()
    counter, trips, total = build.register(), build.constant(10_000), build.register()
    with build.loop(counter, trips):
        build.eval(*[(Ins.ADD, total, total, 1)] * instructions)
    return BoundTable(*build.finish())


def shared(kernel: int, n_tiles: int, n_launches: int) -> BoundTable:
    build = TableBuilder()
    counter, trips = build.register(), build.constant(100)
    window, tiles = build.window([0, 0]), build.constant(n_tiles)
    with build.loop(counter, trips), build.block(parallel=True):
        before: list[int] = []
        for _ in range(n_launches):
            before = [build.launch(kernel, window, tiles, shared=True, waits=before)]
    return BoundTable(*build.finish())


def meeting(kernel: int, n_threads: int) -> tuple[BoundTable, NDArray[np.int64]]:
    """A run that ends when all threads have come: the time to gather them, and to let them go."""
    arrived = np.zeros(8, np.int64)
    build = TableBuilder()
    with build.block(parallel=True):
        window = [arrived.__array_interface__["data"][0], n_threads]
        build.launch(kernel, window, build.constant(n_threads), shared=True)
    return BoundTable(*build.finish()), arrived


def gather_times(kernel: int, pause: float, repeats: int) -> list[float]:
    model, arrived = meeting(kernel, 2)
    found = []
    for _ in range(repeats):
        arrived[0] = 0
        if pause:
            time.sleep(pause)
        start = time.perf_counter()
        model.run(threads=2)
        found.append(time.perf_counter() - start)
    return found


def first_load() -> list[float]:
    """Milliseconds in new processes: the runtime image from the cache, beyond all imports."""
    code = (
        "import time; from arenite.backends.cpu.driver import native; t = time.perf_counter(); "
        "native.runtime(); print((time.perf_counter() - t) * 1e3); "
        "import sys; assert 'llvmlite' not in sys.modules"
    )
    return [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(5)
    ]


def load_times(folder: Path) -> tuple[float, float]:
    """(ms to read, check and map a file of 1 MiB of code; MiB/s)"""
    image = bytes(2**20)
    path = folder / "bench.arenite"
    write_atomically(path, model_bytes(code_sections(image, {"kernel": 0})))

    def load() -> None:
        code, _ = parse_code(read_model_file(path))
        load_code(code).close()

    seconds = best(load, 20)
    path.unlink()
    return seconds * 1e3, 1 / seconds


def call_seconds(n_launches: int) -> float:
    """Of a whole call of a program: so many running sums of 64 floats, which do not fuse."""

    def sums(x: arenite.Tensor) -> arenite.Tensor:
        for _ in range(n_launches):
            x = x.cumsum(0)
        return x

    x = np.zeros(64, np.float32)
    with arenite.compile(sums, x, threads=1) as program:
        program(x)
        return best(lambda: program(x), 3000)


def rows() -> list[tuple[str, str]]:
    image = kernels()
    code = load_code(image.image, permanent=True)
    at = {name: code.address(offset) for name, offset in image.entries.items()}
    array = aligned_empty(64, np.float32)
    array[:] = 0
    found = []

    model = chain(at["increment"], array)
    whole = best(lambda: model.run(keep_gil=True))
    free = best(model.run)
    nothing = best(BoundTable(*TableBuilder().finish()).run, 3000)
    found += [
        ("200 dependent launches, 64 floats: whole `run()`", f"{whole * 1e6:.2f} µs"),
        ("the same, a launch", f"{whole / N_LAUNCHES * 1e9:.1f} ns"),
        ("the same, the GIL given up", f"{free * 1e6:.2f} µs"),
        ("`run()` of an empty table", f"{nothing * 1e6:.2f} µs"),
        ("`exe()` of one running sum of 64 floats", f"{call_seconds(1) * 1e6:.2f} µs"),
        ("`exe()` of 200, one after the other", f"{call_seconds(N_LAUNCHES) * 1e6:.2f} µs"),
    ]
    empty = chain(at["empty"], array)
    seconds = best(lambda: empty.run(keep_gil=True))
    found.append(("empty launch", f"{(seconds - nothing) / N_LAUNCHES * 1e9:.1f} ns"))
    iteration = best(loop(1).run, 30) / 10_000
    more = best(loop(101).run, 30) / 10_000
    found += [
        ("loop iteration with one instruction", f"{iteration * 1e9:.1f} ns"),
        ("instruction", f"{(more - iteration) / 100 * 1e9:.2f} ns"),
    ]

    start = time.perf_counter()
    native.team()
    with native.team().lock:
        native.team().grow(2)
    found.append(("start of a team of two", f"{(time.perf_counter() - start) * 1e6:.0f} µs"))
    crowd = shared(at["empty"], 2, 10)
    seconds = best(lambda: crowd.run(threads=2), 100)
    found.append(("SHARED empty launch of 2 tiles, both claiming", f"{seconds * 1e6:.0f} ns"))
    spinning = gather_times(at["meet"], 0, 3000)
    asleep = gather_times(at["meet"], 0.002, 200)
    found += [
        (
            "run that needs both threads, awake: best, median",
            f"{min(spinning) * 1e6:.2f} µs, {statistics.median(spinning) * 1e6:.2f} µs",
        ),
        (
            "the same, worker asleep: best, median",
            f"{min(asleep) * 1e6:.0f} µs, {statistics.median(asleep) * 1e6:.0f} µs",
        ),
    ]
    loads = first_load()
    file_ms, rate = load_times(Path("/tmp"))
    found += [
        ("runtime image from the cache, new process: best, median",
         f"{min(loads):.1f} ms, {statistics.median(loads):.1f} ms"),
        ("1 MiB of code: read, check, map, unmap", f"{file_ms:.2f} ms ({rate:.0f} MiB/s)"),
        ("bytes of the runtime image", f"{native.runtime().code.nbytes}"),
        ("bytes of a team's control block, without workers", f"{Team.WORKERS}"),
    ]  # fmt: skip
    return found


def main() -> None:
    lines = [("what", "measured"), ("---", "---:"), *rows()]
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"| {name.ljust(width)} | {value} |")


if __name__ == "__main__":
    main()
