"""Products with block-quantised weights inside whole language models, against llama.cpp's.

    python -m bench.layers [word ...] [--threads N ...] [--rows N ...] [--rounds N]

Only cases with all the words in their name, such as `smollm2 Q4_0`. Each side profiles its own run
of the model, one token or a prompt of 128, in a process of its own; they take turns. A row is the
median over the layers of one kind, in microseconds; activations are quantised on both sides.
The bar is 1.2 for each row.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from statistics import geometric_mean, median

import gguf

from bench.harness import ROUNDS
from bench.language_models import LARGE, SMOLLM2, path_of
from bench.nodes_side import NodeSide, Times

FILES = tuple(f"{model} {kind}" for model in (SMOLLM2, LARGE) for kind in ("Q4_0", "Q8_0"))
N_ROWS = (1, 128)


def kinds(file: str) -> dict[str, tuple[str, list[str]]]:
    """Kinds of layers by name: their sizes, and the names of the weights of each."""
    found: dict[str, tuple[str, list[str]]] = {}
    for tensor in gguf.GGUFReader(path_of(file)).tensors:
        if len(tensor.shape) == 2 and not tensor.name.startswith("token_embd"):
            name = tensor.name.removesuffix(".weight")
            sizes = "x".join(str(int(size)) for size in tensor.shape)
            found.setdefault(name.rpartition(".")[2], (sizes, []))[1].append(name)
    return found


def by_kind(times: Times, kinds: dict[str, tuple[str, list[str]]]) -> dict[str, float]:
    """The median over the layers of a kind: after a prompt the last layer has one row only."""
    return {kind: median(times[name] for name in names) for kind, (_, names) in kinds.items()}


def compare_layers(file: str, n_rows: int, threads: int, rounds: int) -> list[float]:
    """Print the rows of one file; the ratios."""
    known = kinds(file)
    sides = [NodeSide("bench.layers_ours"), NodeSide("bench.layers_llama")]
    turns: list[defaultdict[str, list[float]]] = [defaultdict(list), defaultdict(list)]
    try:
        for side in sides:
            side.ask(prepare=f"{file}, {n_rows}", threads=threads)
        for _ in range(rounds):
            for side, found in zip(sides, turns, strict=True):
                for kind, seconds in by_kind(side.ask(), known).items():
                    found[kind].append(seconds)
    finally:
        for side in sides:
            side.close()
    ratios = []
    for kind, (sizes, _) in known.items():
        ours, theirs = (found[kind] for found in turns)
        ratios.append(median(b / a for a, b in zip(ours, theirs, strict=True)))
        print(
            f"| {file} {kind} | {sizes} | {n_rows} | {threads} | {median(ours) * 1e6:.1f} "
            f"| {median(theirs) * 1e6:.1f} | {ratios[-1]:.2f} |",
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
    print("| layers | K x N | rows | threads | ours µs | llama.cpp µs | ratio |")
    print("|---|---|---:|---:|---:|---:|---:|")
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
