"""Runs that are ended before they come to their end: by a signal in a process of their own, or by
another thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from arenite.errors import RunFailed
from arenite.tensor.compile import CompiledFunction

ROOT = Path(__file__).parent.parent.parent


def run_script(script: str) -> tuple[int, str, str]:
    """The status of a Python process with this script, its errors and its output."""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    return run.returncode, run.stderr, run.stdout


def cancelled(program: CompiledFunction, call: Callable[[], object]) -> object:
    """What a call on another thread ends with, a result or an error, while it is cancelled again
    and again."""
    ends: list[object] = []

    def run() -> None:
        try:
            ends.append(call())
        except RunFailed as error:
            ends.append(error)

    runner = threading.Thread(target=run)
    runner.start()
    while runner.is_alive():
        program.cancel()
        runner.join(0.001)
    return ends[0]
