"""The `arenite` command begins here.

What it is made of is imported when it runs, and not before: Ctrl-C meanwhile ends it without a
word, where Python would show what it was importing.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

#: Seconds after which an interrupt that was lost comes again.
_AGAIN = 0.01


def run() -> None:
    """Entry point of the `arenite` command."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from arenite.cli import commands, output

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _hear_interrupts_again()
    output.prepare_streams()
    code = output.exit_code_of(commands.called, debug="--debug" in sys.argv[1:])
    output.let_go_of_streams()
    sys.exit(code)


def _hear_interrupts_again() -> None:
    """Python loses an interrupt that comes while a finaliser or a callback of a weak reference
    runs, of which an import has many: it is sent again, until it is heard."""
    usual = sys.unraisablehook

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            usual(lost)

    signal.signal(signal.SIGALRM, interrupt)
    sys.unraisablehook = hook


if __name__ == "__main__":
    run()
