"""Language models on the CPU against llama.cpp.

    python -m bench.language [word ...] [--threads N ...] [--rounds N] [--only speed|start]

Only cases with all the words in their name, such as `smollm2 Q4_0 decode`. Needs llama-cpp-python
and gguf beside Arenite; `bench.language_models` makes the files (6 GB for all).

Speed: each side in its own process, taking turns, the idle one stopped. Tokens a second, the median
over rounds of our rate over theirs with its quartiles, and for decoding the share of what as many
threads read from memory (`bench.memory`) that our bytes of weights a token come to. Bars: 1.5 and
2.8 of llama.cpp for decoding and prompts in Q4_1, 1.2 for the other files of this model, 1.0 for
the large one.

Start: seconds to the first token with warm caches, with and without imports; memory above what
the imports took.
"""

from __future__ import annotations

import argparse
from statistics import geometric_mean

from bench.harness import ROUNDS, Side, compare
from bench.language_cases import CASES, Case
from bench.language_models import FILES, path_of, weight_nbytes
from bench.language_start import start_of
from bench.memory import READ_NBYTES


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=["speed", "start"])
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    if given.only != "start":
        cases = [case for case in CASES if all(word in str(case) for word in given.words)]
        speed(cases, given.threads, given.rounds)
    if given.only != "speed":
        files = [file for file in FILES if all(word in file for word in given.words)]
        start(files, given.threads)


def speed(cases: list[Case], threads: list[int], rounds: int) -> None:
    print(
        "| case | threads | ours tok/s | llama.cpp tok/s | ratio | quartiles | bar | of reading |"
    )
    print("|---|---:|---:|---:|---:|---|---:|---:|")
    ratios: dict[str, list[float]] = {}
    for n_threads in threads:
        for file in dict.fromkeys(case.file for case in cases):
            path_of(file)  # made before anyone is measured
            # New processes: what a file left in memory is no burden to the next.
            names = ("bench.language_ours", "bench.language_llama", "bench.memory")
            sides = [Side(name) for name in names]
            try:
                sides[-1].ask(prepare="", threads=n_threads)
                for case in cases:
                    if case.file == file:
                        ratio = _speed_row(sides, case, n_threads, rounds)
                        ratios.setdefault(case.kind, []).append(ratio)
            finally:
                for side in sides:
                    side.close()
    for kind, found in ratios.items():
        print(f"\n{kind}: geometric mean {geometric_mean(found):.2f}, least {min(found):.2f}")


def _speed_row(sides: list[Side], case: Case, threads: int, rounds: int) -> float:
    ours, theirs, memory = sides
    result = compare(ours, theirs, str(case), threads, rounds=rounds)
    rate = case.n_tokens / result.ours_seconds
    share = "-"
    if case.kind == "decode":
        limit = READ_NBYTES / min(memory.ask()["seconds"] for _ in range(3))
        share = f"{rate * weight_nbytes(case.file) / limit:.0%}"
    print(
        f"| {case} | {threads} | {rate:.1f} | {case.n_tokens / result.theirs_seconds:.1f} "
        f"| {result.ratio:.2f} | {result.low:.2f} to {result.high:.2f} | {case.bar} | {share} |",
        flush=True,
    )
    return result.ratio


def start(files: list[str], threads: list[int]) -> None:
    print(
        "\n| file | threads | side | first token s | beyond import s | memory MB | of the file |\n"
        "|---|---:|---|---:|---:|---:|---:|"
    )
    for file in files:
        path = path_of(file)
        nbytes = path.stat().st_size
        for n_threads in threads:
            for side in ("ours", "llama.cpp"):
                found = start_of(side, path, n_threads)
                print(
                    f"| {file} | {n_threads} | {side} | {found.seconds:.3f} "
                    f"| {found.beyond_import:.3f} | {found.nbytes / 1e6:.0f} "
                    f"| {found.nbytes / nbytes:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
