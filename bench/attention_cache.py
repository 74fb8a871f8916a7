"""Attention over caches of keys and values on the CPU, as language models read them.

    python -m bench.attention_cache [word ...]      only cases with one of these words in their name

A program has so many layers that their caches do not fit the machine's, each [context, heads, 64]
by position, and reads as much of them as there is text. The least time of each layer's kernel over
many profiled runs: microseconds a layer, bytes of keys and values a second, and operations on
scores that are seen. Then what the plan sets aside beside the caches.
"""

from __future__ import annotations

import sys

import numpy as np

from arenite import ir
from arenite.dtype import BY_NAME, DType
from arenite.ir.compose import basic
from arenite.ir.compose.neural import attention, quantised_rows
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.control import cut
from arenite.pipeline import compile_graph
from arenite.runtime.executable import Executable

SIZE, CONTEXT, BLOCK = 64, 2048, 512
#: Heads of queries and of keys; bytes that no cache holds; runs that are profiled.
HEADS = ((9, 3), (32, 8))
MANY_NBYTES = 48 * 2**20
N_RUNS = 25
#: Queries, and keys before them.
BLOCKS = ((1, 127), (1, 511), (1, 2047), (8, 2040), (128, 0), (512, 0), (512, 1536))
KINDS = ("float16", "int8", "float32")


def main(words: list[str]) -> None:
    print("| heads | kept as | window | queries | keys | µs a layer | GB/s | GFLOP/s |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for heads, groups in HEADS:
        for kind in KINDS:
            for window in (None, 512):
                case = f"{heads}/{groups} {kind} window {window}"
                if all(word in case for word in words):
                    _measure(heads, groups, kind, window)


def _measure(heads: int, groups: int, kind: str, window: int | None) -> None:
    nbytes = 2 * CONTEXT * groups * SIZE * BY_NAME[kind].bits // 8
    n_layers = max(1, MANY_NBYTES // nbytes)
    graph = _graph(heads, groups, BY_NAME[kind], window, n_layers)
    with compile_graph(graph, threads=1) as exe:
        for queries, before in BLOCKS:
            seconds = _least_seconds(exe, heads, queries, before) / n_layers
            seen = [min(before + k + 1, window or CONTEXT) for k in range(queries)]
            keys = min(before + queries, queries + (window or CONTEXT) - 1)
            operations = 4 * SIZE * heads * sum(seen)
            print(
                f"| {heads}/{groups} | {kind} | {window or ''} | {queries} | {before + queries} "
                f"| {seconds * 1e6:.1f} | {nbytes * keys / CONTEXT / seconds / 1e9:.1f} "
                f"| {operations / seconds / 1e9:.0f} |",
                flush=True,
            )
        work = exe.plan.regions["work"].nbytes / 2**20
    print(f"| {heads}/{groups} | {kind} | work of the plan: {work:.1f} MiB | | | | | |")


def _least_seconds(exe: Executable, heads: int, queries: int, before: int) -> float:
    """Of all kernels of attention together, each the fastest it ever was."""
    rows = np.random.default_rng(0).standard_normal((queries, heads, SIZE)).astype(np.float32)
    least: dict[str, float] = {}
    for _ in range(N_RUNS):
        for kernel in exe.profile(rows, np.array(before)).kernels:
            if "attention" in kernel.name:
                so_far = least.get(kernel.name, kernel.seconds)
                least[kernel.name] = min(so_far, kernel.seconds)
    return sum(least.values())


def _graph(heads: int, groups: int, kind: DType, window: int | None, n_layers: int) -> Graph:
    rows = Var("rows", 1, BLOCK)
    first = ir.graph_input("x", 0, (rows, heads, SIZE), BY_NAME["float32"])
    at = ir.graph_input("at", 1, (), BY_NAME["int64"])
    end = at + ir.size(rows, at.dtype)
    updates: list[tuple[Node, Node]] = []
    x = first
    for layer in range(n_layers):
        new = basic.slice_axis(x, 1, 0, groups)
        parts = quantised_rows(new) if kind.name == "int8" else (basic.cast(new, kind),)
        seen: list[list[Node]] = []
        for name in "kv":
            own: list[Node] = []
            for number, part in enumerate(parts):
                shape = (CONTEXT, *part.shape[1:])
                state = ir.make(
                    "state", name=f"{name}{number} {layer}", shape=shape, dtype=part.dtype
                )
                updated = ir.make("update_slice", state, part, at, axis=0)
                updates.append((state, updated))
                kept = cut(updated, end)
                own.append(basic.permute(kept, (1, 0, *range(2, kept.ndim))))
            seen.append(own)
        (k, *k_scale), (v, *v_scale) = seen
        made = attention(
            basic.permute(x, (1, 0, 2)),
            k,
            v,
            causal=True,
            offset=k.shape[1] - rows,
            window=window,
            k_scale=k_scale[0] if k_scale else None,
            v_scale=v_scale[0] if v_scale else None,
        )
        x = basic.permute(made, (1, 0, 2)) + first
    return Graph((first, at), (x,), updates=tuple(updates))


if __name__ == "__main__":
    main(sys.argv[1:])
