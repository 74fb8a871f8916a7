"""An interrupt ends a command, wherever in Python it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A command in which an interrupt comes at `PLACE`, and which then goes on for a while.
COMMAND = """
import signal, sys, time, weakref
signal.signal(signal.SIGINT, signal.default_int_handler)
from arenite.cli import commands, main

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)
    for _ in range(1000):  # heard in here
        pass

class Thing:
    def __del__(self):
        if PLACE == "a finaliser":
            interrupt()

def command():
    one = Thing()
    seen = weakref.ref(one, interrupt if PLACE == "a weak reference" else None)
    del one
    if PLACE == "the command":
        interrupt()
    time.sleep(20)
    return 0

commands.called = command
main.run()
"""


@pytest.mark.parametrize("place", ["the command", "a finaliser", "a weak reference"])
def test_an_interrupt_is_heard_wherever_it_comes(place: str) -> None:
    code = f"PLACE = {place!r}\n{COMMAND}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
