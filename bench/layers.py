"""Products with block-quantised weights inside whole language models, against llama.cpp's.

    python -m bench.layers [word ...] [--threads N ...] [--rows N ...] [--rounds N]

Only cases with all the words in their name, such as `smollm2 Q4_0`. Each side profiles its own run
of the model, one token or a prompt of 128, in a process of its own; they take turns. A row is the
median over the layers of one kind, in microseconds; activations are quantised on both sides.
Beside it: the share of what the cores can do, measured before each case: of reading memory for one
row, of multiplying bytes for many. The bar is 1.2 for each row.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import geometric_mean, median

import gguf

from arenite.backends.cpu.driver.limits import limits, measured
from bench.harness import ROUNDS
from bench.language_models import LARGE, SMOLLM2, path_of
from bench.nodes_side import NodeSide, Times

FILES = tuple(f"{model} {kind}" for model in (SMOLLM2, LARGE) for kind in ("Q4_0", "Q8_0"))
N_ROWS = (1, 128)


@dataclass
class Kind:
    """Layers of one kind: their sizes, the bytes of one, and the names of the weights of all."""

    depth: int
    columns: int
    nbytes: int
    names: list[str] = field(default_factory=list)

    def least_seconds(self, n_rows: int, threads: int) -> float:
        """What one takes at the limit of so many cores."""
        most = limits(threads)
        if n_rows == 1:
            return self.nbytes / (most.read_gbytes * threads) / 1e9
        return 2 * n_rows * self.depth * self.columns / (most.int8_gops * threads) / 1e9


def kinds(file: str) -> dict[str, Kind]:
    """By name."""
    found: dict[str, Kind] = {}
    for tensor in gguf.GGUFReader(path_of(file)).tensors:
        if len(tensor.shape) == 2 and not tensor.name.startswith("token_embd"):
            name = tensor.name.removesuffix(".weight")
            depth, columns = map(int, tensor.shape)
            kind = Kind(depth, columns, int(tensor.n_bytes))
            found.setdefault(name.rpartition(".")[2], kind).names.append(name)
    return found


def by_kind(times: Times, kinds: dict[str, Kind]) -> dict[str, float]:
    """The median over the layers of a kind: after a prompt the last layer has one row only."""
    return {name: median(times[one] for one in kind.names) for name, kind in kinds.items()}


def compare_layers(file: str, n_rows: int, threads: int, rounds: int) -> list[float]:
    """Print the rows of one file; the ratios."""
    known = kinds(file)
    measured.cache_clear()
    least = {name: kind.least_seconds(n_rows, threads) for name, kind in known.items()}
    sides = [NodeSide("bench.layers_ours"), NodeSide("bench.layers_llama")]
    turns: list[defaultdict[str, list[float]]] = [defaultdict(list), defaultdict(list)]
    try:
        for side in sides:
            side.ask(prepare=f"{file}, {n_rows}", threads=threads)
        for _ in range(rounds):
            for side, found in zip(sides, turns, strict=True):
                for name, seconds in by_kind(side.ask(), known).items():
                    found[name].append(seconds)
    finally:
        for side in sides:
            side.close()
    ratios = []
    for name, kind in known.items():
        ours, theirs = (found[name] for found in turns)
        ratios.append(median(b / a for a, b in zip(ours, theirs, strict=True)))
        print(
            f"| {file} {name} | {kind.depth}x{kind.columns} | {n_rows} | {threads} "
            f"| {median(ours) * 1e6:.1f} | {median(theirs) * 1e6:.1f} | {ratios[-1]:.2f} "
            f"| {least[name] / median(ours):.0%} |",
            flush=True,
        )
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=int, nargs="+", default=N_ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    print("| layers | K x N | rows | threads | ours µs | llama.cpp µs | ratio | of limit |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    ratios = [
        ratio
        for file in FILES
        if all(word in file for word in given.words)
        for n_rows in given.rows
        for threads in given.threads
        for ratio in compare_layers(file, n_rows, threads, given.rounds)
    ]
    print(f"\ngeometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
