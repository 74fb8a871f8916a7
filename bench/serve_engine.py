"""Throughput of the engine: texts of 128 tokens in and 128 out, some at a time.

    python -m bench.serve_engine [--clients 1 4 16 32] [--tokens 128] [--rounds 3]

SmolLM2-135M in Q4_1. As many clients ask at once as the case says, each again as soon as it has its
answer, until each has asked `rounds` times; prompts differ and no token ends a text early. Told are
tokens made a second, the time to the first token, and what share of the time is not the program:
sampling, text, and the engine itself; and processor time, which on two threads counts waiting.
"""

from __future__ import annotations

import argparse
import threading
from time import perf_counter, process_time

import numpy as np

from arenite.serve import Engine
from bench.language_models import path_of

FILE = "smollm2 Q4_1"


def prompts(count: int, n_tokens: int) -> list[list[int]]:
    rng = np.random.default_rng(count)
    return [[int(t) for t in rng.integers(1000, 30_000, n_tokens)] for _ in range(count)]


def measure(engine: Engine, n_clients: int, n_tokens: int, rounds: int) -> str:
    """A line of the table."""
    ends = dict.fromkeys(engine.tokenizer.end_tokens, float("-inf"))
    waits: list[float] = []
    given = iter(prompts(n_clients * rounds, n_tokens))

    def client(seed: int) -> None:
        for _ in range(rounds):
            asked = perf_counter()
            made = engine.submit(next(given), max_tokens=n_tokens, seed=seed, logit_bias=ends)
            stream = iter(made)
            next(stream)
            waits.append(perf_counter() - asked)
            for _ in stream:
                pass

    clients = [threading.Thread(target=client, args=(seed,)) for seed in range(n_clients)]
    before, started, worked = engine.stats(), perf_counter(), process_time()
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    seconds, after = perf_counter() - started, engine.stats()
    processor = process_time() - worked
    n_made = after.generated_tokens - before.generated_tokens
    busy = after.busy_seconds - before.busy_seconds
    in_program = after.step_seconds - before.step_seconds
    n_steps = after.n_steps - before.n_steps
    middle, late = np.quantile(waits, [0.5, 0.95]) * 1e3
    return (
        f"{n_clients:7} {n_made / seconds:9.1f} {middle:10.0f} {late:10.0f} "
        f"{(busy - in_program) / busy:9.1%} {(busy - in_program) / n_made * 1e6:10.0f} "
        f"{busy / n_steps * 1e3:9.2f} {processor / n_made * 1e3:9.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    context = 2 * asked.tokens
    slots = max(asked.clients)
    with Engine(path_of(FILE), slots=slots, context=context, threads=asked.threads) as engine:
        engine.submit(prompts(1, asked.tokens)[0], max_tokens=4).text()
        print(
            "clients  tokens/s  first, ms   95 %, ms   not run  µs a token ms a step  cpu ms",
            flush=True,
        )
        for n_clients in asked.clients:
            print(measure(engine, n_clients, asked.tokens, asked.rounds), flush=True)


if __name__ == "__main__":
    main()
