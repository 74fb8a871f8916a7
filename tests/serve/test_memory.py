"""Memory that a server takes, measured in a process of its own: the plan, and a small rest.

It counts from after its imports on, as in tests/generate/test_memory.py, with all that was planned
in use: every page of keys and values written, chats, a schema, the page and what it asks for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.generate.test_memory import REST_NBYTES
from tests.serve.running import Address

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads and resets /proc/self")

SLOTS, CONTEXT = 4, 256
#: And beyond, from the first schema on: llguidance's view of 49,152 tokens alone is 10 MiB.
GRAMMAR_NBYTES = 5 * 2**20

SERVE = """
import json, re, sys
from pathlib import Path
import llguidance  # all that is imported later, for what a request asks
import arenite.cli.commands, arenite.generate.template, arenite.memory.page, arenite.memory.saved
import importlib.resources, zipfile
from arenite.device.cpu import share_heap
from arenite.serve import server
from arenite.serve.app import app_of
from arenite.serve.engine import Engine
from arenite.serve.guard import Rules
from arenite.serve.served import ServedText

share_heap()  # as `arenite serve` does
path, slots, context = sys.argv[1], *map(int, sys.argv[2:])
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
status = Path("/proc/self/status").read_text()
before = 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", status)[1])
with server.bound_socket("127.0.0.1", 0) as bound:
    with Engine(path, slots=slots, context=context, threads=2) as engine:
        told = [bound.getsockname()[1], before, engine.plan.total_nbytes]
        app = app_of(ServedText("model", engine, max_body=2**20), Rules())
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
    port, before, planned = json.loads(process.stdout.readline())
    server = Address(port)
    write_all_pages(server)
    chat = {"messages": [{"role": "user", "content": "Tell me of the sea."}], "max_tokens": 20}
    for path, more in (("/v1/chat/completions", {"stream": True, "n": 2}), ("/api/chat", {})):
        assert server.ask("POST", path, chat | more)[0].status == 200
    for path in ("/", "/stats", "/memory", "/metrics", "/v1/models"):
        assert server.ask("GET", path)[0].status == 200
    assert planned < most_nbytes(process) - before < planned + REST_NBYTES
    held = chat | {"response_format": {"type": "json_object"}}
    assert server.ask("POST", "/v1/chat/completions", held)[0].status == 200
    assert most_nbytes(process) - before < planned + REST_NBYTES + GRAMMAR_NBYTES


def most_nbytes(process: subprocess.Popen[str]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def write_all_pages(server: Address) -> None:
    # As many prompts as there are slots, in one request: side by side.
    for start in (100, 5000):
        prompts = [[start + slot * 7 + k for k in range(40)] for slot in range(SLOTS)]
        body = {"prompt": prompts, "max_tokens": 10**6, "ignore_eos": True}
        status, told = server.json("POST", "/v1/completions", body)
        assert status == 200
        assert told["usage"]["completion_tokens"] == SLOTS * (CONTEXT + 1 - 40)
