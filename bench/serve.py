"""`arenite serve` against llama.cpp's server, over HTTP with streams: 128 tokens in and 128 out.

    python -m bench.serve --llama-server PATH [--clients 1 4 16 32] [--rounds 15 15 15 15]

SmolLM2-135M in Q4_1, the same file in both. Each server is a process of its own that is stopped
(SIGSTOP) while the other one is asked; in each round as many clients as the case says ask both of
them at once, each for one text, prompts that no one asked before. The figure is the median over
rounds of our tokens a second over theirs, with quartiles. Waits for the first token are those of
all rounds together. An answer that a server ends by an error is told, and its tokens count as far
as they came. Memory is the most that our process ever had from when it was ready, beside its plan.
`clients` is the share of one processor that the clients themselves took.

Without --llama-server ours is measured alone. --llama-options: what else it is started with;
--llama-threads: where it does better with another number than ours.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from http.client import HTTPConnection
from statistics import median, quantiles
from types import TracebackType

import numpy as np

from bench.harness import ROUNDS
from bench.language_models import path_of
from bench.serve_clients import Load, ask

FILE = "smollm2 Q4_1"
MIB = 2**20
TICKS = os.sysconf("SC_CLK_TCK")
#: Texts are kept in float16 by both; its attention that needs least memory is its quickest here.
LLAMA_OPTIONS = "--cont-batching --no-kv-unified --flash-attn on --no-ui --cache-ram 0"
START_SECONDS = 120


class Server:
    """A process that serves, stopped while nobody asks it."""

    def __init__(self, command: Sequence[str], port: int) -> None:
        self.port = port
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            self._wait_until_ready(command)
        except BaseException:
            self.process.kill()
            raise
        # 5: the most memory so far is forgotten.
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as file:
            file.write("5")
        self.process.send_signal(signal.SIGSTOP)

    def _wait_until_ready(self, command: Sequence[str]) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                status, told = self.get("/health")
                if status == 200 and "loading" not in told:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"it does not serve: {' '.join(command)}")
            time.sleep(0.1)

    def get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def ask(self, prompts: Sequence[Sequence[int]], n_tokens: int) -> Load:
        with self:
            return ask(self.port, prompts, n_tokens)

    def __enter__(self) -> None:
        """Awake, while it is asked."""
        self.process.send_signal(signal.SIGCONT)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def seconds_worked(self) -> float:
        """Processor time of all its threads."""
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def nbytes(self, field: str = "VmRSS") -> int:
        """Memory that it has; "VmHWM": the most that it had since it was ready."""
        with open(f"/proc/{self.process.pid}/status") as file:
            found = re.search(rf"{field}:\s+(\d+)", file.read())
        assert found is not None
        return 1024 * int(found[1])

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Measurements:
    """What one server did with one number of clients."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._worked = server.seconds_worked()
        self.loads: list[Load] = []

    def add(self, prompts: Sequence[Sequence[int]], n_tokens: int) -> None:
        self.loads.append(self._server.ask(prompts, n_tokens))

    @property
    def rate(self) -> float:
        return median(load.rate for load in self.loads)

    def waits(self) -> tuple[float, float]:
        """The middle one and the 95th percentile, in milliseconds."""
        all_waits = [wait for load in self.loads for wait in load.waits]
        middle, late = np.quantile(all_waits, [0.5, 0.95]) * 1e3
        return float(middle), float(late)

    def processor(self) -> float:
        """Milliseconds of processor time a token."""
        n_tokens = sum(load.n_tokens for load in self.loads)
        return (self._server.seconds_worked() - self._worked) / n_tokens * 1e3

    def clients(self) -> float:
        """Processor time of the clients over the time that passed."""
        worked = sum(load.seconds_worked for load in self.loads)
        return worked / sum(load.seconds for load in self.loads)

    def columns(self) -> str:
        middle, late = self.waits()
        return (
            f"{self.rate:.1f} | {middle:.0f} | {late:.0f} | {self.processor():.2f} | "
            f"{self.clients():.1%}"
        )


def prompts_of(count: int, n_tokens: int, seed: Sequence[int]) -> list[list[int]]:
    """Ordinary tokens, others for each seed."""
    tokens = np.random.default_rng(seed).integers(1000, 30_000, (count, n_tokens))
    return [[int(token) for token in row] for row in tokens]


def compare(servers: dict[str, Server], n_clients: int, rounds: int, n_tokens: int) -> None:
    """Print a row of the table for each server."""
    found = {name: Measurements(server) for name, server in servers.items()}
    for number in range(-1, rounds):
        prompts = prompts_of(n_clients, n_tokens, [n_clients, number + 1])
        # Who is first takes turns too.
        for name in list(found)[:: 1 if number % 2 else -1]:
            found[name].add(prompts, n_tokens)
            if number < 0:  # the first round warms both
                found[name] = Measurements(servers[name])
    ours = found["ours"]
    for name, side in found.items():
        errors = [error for load in side.loads for error in load.errors]
        if errors:
            print(f"{name}: {len(errors)} answers ended early: {errors[0][:200]}", flush=True)
        ratio = ""
        if name != "ours":
            pairs = zip(ours.loads, side.loads, strict=True)
            ratios = [mine.rate / their.rate for mine, their in pairs]
            low, middle, high = quantiles(ratios, n=4)
            late = side.waits()[1] / ours.waits()[1]
            ratio = f"{middle:.2f} ({low:.2f} to {high:.2f}) | {late:.2f}"
        print(f"| {n_clients} | {name} | {side.columns()} | {ratio or ' | '} |", flush=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def our_command(port: int, slots: int, context: int, threads: int) -> list[str]:
    given = {"port": port, "slots": slots, "context": context, "threads": threads}
    options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    return [sys.executable, "-m", "arenite.cli.main", "serve", str(path_of(FILE)), *options]


def their_command(program: str, port: int, slots: int, context: int, threads: int) -> list[str]:
    given = {"port": port, "parallel": slots, "ctx-size": slots * context, "threads": threads}
    options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    return [program, "--model", str(path_of(FILE)), *options]


def print_memory(server: Server) -> None:
    """The most that our process had, and its plan."""
    with server:
        status, text = server.get("/metrics")
    assert status == 200
    told = dict(re.findall(r"^arenite_(\w+)_bytes (\S+)", text, re.MULTILINE))
    names = ("planned", "program", "grammar")
    planned, program, grammar = (float(told[name]) / MIB for name in names)
    most = server.nbytes("VmHWM") / MIB
    rest = most - planned - program - grammar
    print(
        f"our memory, MiB: {planned:.1f} planned, {program:.1f} of the server itself, "
        f"{grammar:.1f} of grammar tables, at the most {most:.1f}: {rest:+.1f}"
    )


HEAD = """
| clients | server | tokens/s | first token ms | 95 % | processor ms a token | clients' share
| ours over theirs | 95 %, theirs over ours |
""".replace("\n", " ").strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-server", metavar="PATH")
    parser.add_argument("--llama-options", default=LLAMA_OPTIONS)
    parser.add_argument("--llama-threads", type=int)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument("--rounds", type=int, nargs="+", default=[ROUNDS], help="of each, or all")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    slots, context = max(asked.clients), 2 * asked.tokens
    # Asked to end, it ends what it has started too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        port = free_port()
        servers = {"ours": Server(our_command(port, slots, context, asked.threads), port)}
        stack.callback(servers["ours"].close)
        if asked.llama_server:
            port, threads = free_port(), asked.llama_threads or asked.threads
            command = their_command(asked.llama_server, port, slots, context, threads)
            servers["llama.cpp"] = Server([*command, *asked.llama_options.split()], port)
            stack.callback(servers["llama.cpp"].close)
        print(f"{HEAD}\n{re.sub(r'[^|]+', '---', HEAD)}", flush=True)
        rounds = asked.rounds * len(asked.clients) if len(asked.rounds) == 1 else asked.rounds
        told = []
        for n_clients, n_rounds in zip(asked.clients, rounds, strict=True):
            began = time.monotonic()
            compare(servers, n_clients, n_rounds, asked.tokens)
            told.append(f"{n_rounds} rounds of {n_clients} in {time.monotonic() - began:.0f} s")
        print_memory(servers["ours"])
    print("; ".join(told))


if __name__ == "__main__":
    main()
