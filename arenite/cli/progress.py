"""Bars of long work on a terminal's standard error; nothing elsewhere."""

from __future__ import annotations

from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.text import Text

from arenite.cli import output
from arenite.errors import printable


class StepColumn(ProgressColumn):
    """What is being done, cut short where the terminal is narrow."""

    def render(self, task: Task) -> Text:
        return Text(printable(task.description), no_wrap=True, overflow="ellipsis")


def bar(*amounts: ProgressColumn) -> Progress:
    """What is being done, a bar, and amounts; gone when it is done."""
    # What others print goes where it is meant to: standard output is none of this console.
    return Progress(
        *(StepColumn(), BarColumn(), *amounts),
        console=output.err,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
