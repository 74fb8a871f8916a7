"""A command on a terminal of its own: what a person types, and what they see."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

PATIENCE_SECONDS = 180.0  # for something that is to be seen; a test fails after it


class Terminal:
    def __init__(
        self,
        *command: str,
        environment: Mapping[str, str] | None = None,
        columns: int = 80,
        kind: str = "dumb",
    ) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self._master = master
        self._seen = ""
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**_outside(), "TERM": kind, **(environment or {})},
            start_new_session=True,
            preexec_fn=lambda: _control(0),
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C, once the command waits: readline misses one between its prompt and waiting."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while stat.read_text().rpartition(") ")[2][0] != "S":
            assert time.monotonic() < deadline, "it never waits"
            time.sleep(0.01)
        self.type("\x03")

    def see(self, text: str) -> str:
        """Wait until this is to be seen; all that came up to its end, which is then past."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while text not in self._seen:
            left = deadline - time.monotonic()
            if left < 0 or not self._read(left):
                raise AssertionError(f"{text!r} is not to be seen in {self._seen!r}")
        end = self._seen.index(text) + len(text)
        seen, self._seen = self._seen[:end], self._seen[end:]
        return seen

    def leave(self) -> int:
        """The exit code, when the command is done."""
        while self._read(PATIENCE_SECONDS):
            pass
        return self._process.wait(PATIENCE_SECONDS)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            content = os.read(self._master, 65536)
        except OSError:  # how a terminal tells that nobody is on it any more
            return False
        self._seen += content.decode(errors="replace").replace("\r\n", "\n")
        return bool(content)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *about: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)


def _outside() -> dict[str, str]:
    """The environment, but for the size of the terminal that the tests run on."""
    return {name: os.environ[name] for name in os.environ if name not in ("COLUMNS", "LINES")}


def _control(descriptor: int) -> None:
    """Make the terminal the one that Ctrl-C is typed on, and heard, whatever started the tests."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)
