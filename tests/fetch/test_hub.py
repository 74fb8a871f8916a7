"""huggingface_hub itself, against a server here: it says nothing, and its progress is told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")

CONTENT = os.urandom(300_000)

OBTAIN = """
import sys
from arenite import fetch
from arenite.errors import FileMissing

try:
    path = fetch.obtain("hf:o/r/m.gguf", on_progress=lambda *told: print(*told))
    print("here", path.stat().st_size)
except FileMissing as error:
    print("missing:", error)
"""


@dataclass
class Hub:
    address: str = ""
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, content: bytes) -> None:
            made.asked.append(f"{self.command} {self.path}")
            is_there = self.path == "/o/r/resolve/main/m.gguf"
            self.send_response(200 if is_there else 404)
            if is_there:
                self.send_header("ETag", '"one"')
                self.send_header("X-Repo-Commit", "c" * 40)
            self.send_header("Content-Length", str(len(CONTENT) if is_there else 0))
            self.end_headers()
            self.wfile.write(content if is_there else b"")

        def do_HEAD(self) -> None:
            self.answer(b"")

        def do_GET(self) -> None:
            self.answer(CONTENT)

        def log_message(self, *about: object) -> None:
            """Not to the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def obtained(endpoint: str, folder: Path) -> list[str]:
    """What is told, line by line; nothing else is said on either stream."""
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    environment |= {"HF_ENDPOINT": endpoint, "ARENITE_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", OBTAIN], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_progress_is_told_and_nothing_is_printed(hub: Hub, tmp_path: Path) -> None:
    told = obtained(hub.address, tmp_path)
    assert told[0] == "asking 127.0.0.1 0 None"
    assert told[-2:] == ["fetching m.gguf 300000 300000", "here 300000"]
    assert "GET /o/r/resolve/main/m.gguf" in hub.asked


def test_without_a_way_to_it_that_is_said_once_and_nothing_is_tried_again(tmp_path: Path) -> None:
    told = obtained("http://127.0.0.1:1", tmp_path)  # where nobody listens
    assert told[1:] == [
        "missing: hf:o/r/m.gguf can't be fetched: 127.0.0.1 can't be reached (Connection refused); "
        "is there a network?"
    ]
