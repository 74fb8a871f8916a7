"""A server among clients that behave badly, for as long as one likes.

    python -m bench.soak [--minutes 30] [--slots 8] [--seed 0]

Clients of all kinds ask at the same time: some as they should, and are to get the text that they
got alone, byte for byte; others hang, vanish, send rubbish, huge bodies, or wrong JSON, read a byte
now and then, ask for 10^6 tokens. Told every half minute: memory of the server beside its plan, and
counts. At the end: requests that were lost (answered neither with their text nor with one clear
JSON error), whether all slots are free again, and how memory grew. It exits with 1 where one of
these is not as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time

from bench.language_models import path_of
from bench.serve import FILE, MIB, Server, free_port, our_command, print_memory
from bench.soak_clients import Soak

#: What memory may grow by, from the first tenth of the time on.
GROWTH_NBYTES = 4 * MIB


async def watch(server: Server, soak: Soak, slots: int, seconds: float) -> list[int]:
    """Memory of the server, every now and then, while the clients ask."""
    found: list[int] = []
    await soak.fill(slots)
    clients = asyncio.ensure_future(soak.run(seconds))
    every, n_told = min(30.0, seconds / 20), 0
    while not clients.done():
        await asyncio.wait({clients}, timeout=every)
        found.append(server.nbytes())
        print(f"{soak.seconds():6.0f} s  {found[-1] / MIB:7.1f} MiB  {soak.told()}")
        sys.stdout.writelines(f"{problem}\n" for problem in soak.problems[n_told:])
        sys.stdout.flush()
        n_told = len(soak.problems)
    await clients
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    path_of(FILE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    port = free_port()
    command = our_command(port, asked.slots, asked.context, 2)
    server = Server([*command, "--queue", "8"], port)
    try:
        server.process.send_signal(signal.SIGCONT)
        soak = Soak(port, asked.seed)
        found = asyncio.run(watch(server, soak, asked.slots, asked.minutes * 60))
        time.sleep(1)
        left = server.get("/stats")[1]
        print_memory(server)
    finally:
        server.close()
    grown = max(found) - max(found[: max(1, len(found) // 10)])
    print(f"grown by {grown / MIB:.1f} MiB")
    problems = [*soak.problems]
    if grown > GROWTH_NBYTES:
        problems.append(f"memory grew by {grown / MIB:.1f} MiB")
    if '"texts":[]' not in left:
        problems.append(f"texts are left: {left[:300]}")
    print(*problems or ["nothing lost, every error one JSON object"], sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
