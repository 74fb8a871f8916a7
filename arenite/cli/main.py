"""The `arenite` command begins here.

What it is made of is imported when it runs, and not before: Ctrl-C meanwhile ends it without a
word, where Python would show what it was importing.
"""

from __future__ import annotations

import signal
import sys


def run() -> None:
    """Entry point of the `arenite` command."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from arenite.cli import commands, output

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    output.prepare_streams()
    code = output.exit_code_of(commands.called, debug="--debug" in sys.argv[1:])
    output.let_go_of_streams()
    sys.exit(code)


if __name__ == "__main__":
    run()
