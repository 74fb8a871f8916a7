"""Memory that a server takes, measured in a process of its own: the plan, and a small rest.

It counts from after its imports on, as in tests/generate/test_memory.py, with all that was planned
in use: every page of keys and values written, chats, schemas, the page and what it asks for, large
bodies that come at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.generate.test_memory import REST_NBYTES
from tests.serve.running import Address

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads and resets /proc/self")

SLOTS, CONTEXT = 4, 256

#: A regular expression whose automaton has a state more for nearly every token that is looked at.
STATES = ".*[aeiou].{20}x"

#: A body that is refused, and how many of them come at once.
LARGE, N_LARGE = b"x" * 2**24, 24

SERVE = """
import json, re, sys
from pathlib import Path
import arenite.cli.commands, arenite.generate.template, arenite.memory.saved
import importlib.resources, zipfile
from arenite.device.cpu import share_heap
from arenite.serve import server
from arenite.serve.app import app_of, waiting_app
from arenite.serve.engine import Engine
from arenite.serve.guard import Rules
from arenite.serve.served_model import ServedText

share_heap()  # as `arenite serve` does
server.import_requested_modules()
path, slots, context = sys.argv[1], *map(int, sys.argv[2:])
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
status = Path("/proc/self/status").read_text()
before = 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", status)[1])
with server.bound_socket("127.0.0.1", 0) as bound:
    with server.meanwhile(waiting_app("model", Rules()), bound):
        engine = Engine(path, slots=slots, context=context, threads=2)
        served = ServedText("model", engine)
    with engine:
        told = [bound.getsockname()[1], before, engine.plan.total_nbytes, served.grammar_nbytes]
        app = app_of(served, Rules())
        server.run(app, bound, on_ready=lambda: print(json.dumps(told), flush=True))
"""


@pytest.fixture
def process(smollm2: Path) -> Iterator[subprocess.Popen[str]]:
    # Sources compiled on the way would count: those of an installed package are compiled.
    kept = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    given = [str(smollm2), str(SLOTS), str(CONTEXT)]
    command = [sys.executable, "-c", SERVE, *given]
    with subprocess.Popen(command, env=kept, stdout=subprocess.PIPE, text=True) as started:
        yield started
        started.terminate()


def test_a_server_takes_the_plan_and_little_more(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    port, before, planned, tables = json.loads(process.stdout.readline())
    planned += tables
    server = Address(port)
    write_all_pages(server)
    chat = {"messages": [{"role": "user", "content": "Tell me of the sea."}], "max_tokens": 20}
    for path, more in (("/v1/chat/completions", {"stream": True, "n": 2}), ("/api/chat", {})):
        assert server.ask("POST", path, chat | more)[0].status == 200
    for path in ("/", "/stats", "/memory", "/metrics", "/v1/models"):
        assert server.ask("GET", path)[0].status == 200
    assert kernels_while_busy(server)
    held = chat | {"response_format": {"type": "json_object"}, "n": SLOTS}
    assert server.ask("POST", "/v1/chat/completions", held)[0].status == 200
    held = chat | {"regex": STATES, "max_tokens": 200, "temperature": 2}
    status, told = server.json("POST", "/v1/chat/completions", held)
    assert (status, "too many states" in told["error"]["message"]) == (400, True)
    with ThreadPoolExecutor(N_LARGE) as clients:
        asked = [
            clients.submit(server.ask, "POST", "/v1/completions", LARGE) for _ in range(N_LARGE)
        ]
        assert {one.result()[0].status for one in asked} == {413}
    assert planned < most_nbytes(process) - before < planned + REST_NBYTES


def most_nbytes(process: subprocess.Popen[str]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def kernels_while_busy(server: Address) -> list[object]:
    """What the page shows of kernels, which are measured while there is work."""
    body = {"prompt": "Tell", "max_tokens": 10**6, "ignore_eos": True, "n": SLOTS}
    kernels: list[object] = []
    with ThreadPoolExecutor(1) as clients:
        asked = clients.submit(server.json, "POST", "/v1/completions", body)
        while not asked.done():
            kernels = kernels or server.json("GET", "/stats")[1]["kernels"]
        assert asked.result()[0] == 200
    return kernels


def write_all_pages(server: Address) -> None:
    # As many prompts as there are slots, in one request: side by side.
    for start in (100, 5000):
        prompts = [[start + slot * 7 + k for k in range(40)] for slot in range(SLOTS)]
        body = {"prompt": prompts, "max_tokens": 10**6, "ignore_eos": True}
        status, told = server.json("POST", "/v1/completions", body)
        assert status == 200
        assert told["usage"]["completion_tokens"] == SLOTS * (CONTEXT + 1 - 40)
