"""A forked child with a deadline: it answers, or it is ended and the test fails."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable

#: Far more than any child here needs, also on a busy machine.
DEADLINE_SECONDS = 60


def in_child(function: Callable[[], bool]) -> str:
    """What became of a forked child that called `function`: "true", "false", "raised", "hung"."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            status = 0 if function() else 2
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return {0: "true", 2: "false"}.get(os.waitstatus_to_exitcode(status), "raised")
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"
