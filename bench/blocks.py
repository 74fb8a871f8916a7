"""Products with block-quantised weights, and with float16, on the CPU, beside what it can do.

    python -m bench.blocks [word ...]      only cases with one of these words in their name

For one row, as in decoding, a program multiplies by so many matrices that they do not fit the
caches; for 128 rows by one. Best of many runs: microseconds for one product, bytes of packed
weights a second and their share of what as many cores read from memory, multiplications and
additions a second and their share of the peak, in bytes or in float32.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from arenite.backends.cpu.driver.limits import limits
from arenite.backends.cpu.ops.block_forms import PANEL, form_of
from arenite.device import Buffer
from arenite.dtype import BY_NAME, float32
from arenite.dtype.blocks import LAYOUTS
from arenite.ir import Node, buffer, graph_input, make
from arenite.ir.graph import Graph
from arenite.ir.ops.blocks import matmul_blocks
from arenite.pipeline import compile_graph

TYPES = "q4_0 q4_1 q8_0 q4_k q6_k float16 q5_0 q5_1 q5_k q2_k q3_k iq4_nl iq4_xs".split()
SHAPES = (
    *((576, 576), (576, 1536), (1536, 576), (576, 49152)),
    *((2048, 2048), (2048, 8192), (8192, 2048)),
)
#: Bytes of weights that no cache holds, and seconds to measure for.
MANY_NBYTES = 160 * 2**20
SECONDS = 0.6


def main(words: list[str]) -> None:
    print("| K x N | type | rows | threads | µs | GB/s | of reading | GOP/s | of the peak |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in TYPES:
        for depth, columns in SHAPES:
            for rows in (1, 128):
                case = f"{depth}x{columns} {name} r{rows}"
                if depth % BY_NAME[name].block_length == 0 and all(w in case for w in words):
                    _measure(name, depth, columns, rows)


def _measure(name: str, depth: int, columns: int, rows: int) -> None:
    dtype = BY_NAME[name]
    nbytes = dtype.nbytes((columns, depth))
    if dtype.is_block:
        nbytes = -(-columns // PANEL) * form_of(dtype).panel_nbytes(depth)
    count = max(1, MANY_NBYTES // nbytes) if rows == 1 else 1
    x = graph_input("x", 0, (rows, depth), float32)
    graph = Graph.of([_product(x, w) for w in _weights(name, columns, depth, count)])
    array = np.random.default_rng(0).standard_normal((rows, depth)).astype(np.float32)
    for threads in (1, 2):
        with compile_graph(graph, threads=threads) as exe:
            exe(array)
            best, end = float("inf"), time.perf_counter() + SECONDS
            while time.perf_counter() < end:
                began = time.perf_counter()
                exe(array)
                best = min(best, time.perf_counter() - began)
        seconds = best / count
        operations = 2 * rows * depth * columns
        most = limits(threads)
        reading = most.read_gbytes * threads
        peak = (most.int8_gops if dtype.is_block else most.gflops) * threads
        print(
            f"| {depth} x {columns} | {name} | {rows} | {threads} | {seconds * 1e6:.1f} "
            f"| {nbytes / seconds / 1e9:.1f} | {nbytes / seconds / 1e9 / reading:.0%} "
            f"| {operations / seconds / 1e9:.0f} | {operations / seconds / 1e9 / peak:.0%} |",
            flush=True,
        )


def _product(x: Node, w: Node) -> Node:
    if w.dtype.is_block:
        return matmul_blocks(x, w)
    wide = make("cast", w, dtype=float32)
    return make("matmul", x, wide, transpose_a=False, transpose_b=True)


def _weights(name: str, columns: int, depth: int, count: int) -> list[Node]:
    """Nodes over the same bytes, each packed by itself; floats are read in place, so copies."""
    dtype = BY_NAME[name]
    rng = np.random.default_rng(1)
    if not dtype.is_block:
        array = rng.standard_normal((columns, depth)).astype(name)
        return [buffer(Buffer.from_array(array.copy())) for _ in range(count)]
    raw = rng.integers(0, 256, dtype.nbytes((columns, depth)), dtype=np.uint8)
    blocks = raw.view(LAYOUTS[name])
    for field in {"d", "m"} & {*(blocks.dtype.names or ())}:
        blocks[field] = rng.uniform(0.001, 0.01, len(blocks)).astype(np.float16)
    held = Buffer.from_array(raw)
    return [buffer(held.view(0, held.nbytes, dtype, (columns, depth))) for _ in range(count)]


if __name__ == "__main__":
    main(sys.argv[1:])
