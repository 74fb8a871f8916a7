"""Help that can be read on narrow terminals too: what an option does stands below it there."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

#: Columns that help has at the most, and those below which names do not stand beside texts.
MOST, NARROW = 80, 60
#: Where texts begin in narrow help.
INDENT = 6

_Formatter: Any = typer.Context.formatter_class
_Context: Any = TyperCommand.context_class


class _Help(_Formatter):  # type: ignore[misc]
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # The library's own least is more than some terminals have.
        self.width = max(min(shutil.get_terminal_size().columns, MOST) - 2, 20)

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Names with their texts; short names, such as those of commands, have them beside."""
        is_short = all(len(name) <= self.width // 4 for name, _ in rows)
        narrow = INDENT if self.width < NARROW and not is_short else col_max
        super().write_dl(rows, min(col_max, narrow), col_spacing)


class _HelpContext(_Context):  # type: ignore[misc]
    formatter_class = _Help


class Command(TyperCommand):
    context_class = _HelpContext


class Group(TyperGroup):
    """Commands; without one it says which there are."""

    context_class = _HelpContext

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As the library does it, whose own way without arguments is an error."""
        return super().parse_args(ctx, args or ["--help"])
