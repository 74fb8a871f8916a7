"""The one way to the terminal: whatever a file or a model says, it is shown and never obeyed.

    Screen            a console; every string in what it prints is escaped, its own styles are not
    guard_streams()   sys.stdout and sys.stderr for all others: print, logging, warnings, libraries

So nothing needs to be remembered where something is printed: a string reaches a terminal through
one of the two. Standard output into a pipe is for programs, and stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from arenite.errors import escaped, is_acting


class Screen(Console):
    """A console on which strings are text: no markup, no emoji codes, no escape sequences."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **options)

    @property
    def file(self) -> IO[str]:
        """Past the guard, which would take our own styles for somebody else's."""
        stream = Console.file.fget(self)  # type: ignore[attr-defined]
        return stream.unguarded if isinstance(stream, GuardedStream) else cast(IO[str], stream)

    @file.setter
    def file(self, stream: IO[str]) -> None:
        Console.file.fset(self, stream)  # type: ignore[attr-defined]

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """All that is printed passes here, as text with styles or as moves of the cursor, which
        are the console's own. A link of a style would carry an address past us."""
        given = _escaped_text(renderable) if isinstance(renderable, Text) else renderable
        for segment in super().render(given, options):
            if segment.is_control:
                yield segment
            else:
                style = segment.style
                style = style.update_link(None) if style is not None and style.link else style
                yield Segment(escaped(segment.text), style)


def _escaped_text(text: Text) -> Text:
    """Before lines are broken: what is spelled out takes more place."""
    acting = [at for at, character in enumerate(text.plain) if is_acting(character)]
    if not acting:
        return text
    copy = text.blank_copy()
    for part in text.divide(sorted({*acting, *(at + 1 for at in acting)})):
        part.plain = escaped(part.plain)
        copy.append_text(part)
    return copy


class GuardedStream:
    """A text stream that escapes what is written to it: always, or where a terminal shows it."""

    def __init__(self, stream: TextIO, always: bool) -> None:
        self.unguarded = stream
        self._always = always

    def write(self, text: str) -> int:
        stream = self.unguarded
        stream.write(escaped(text) if self._always or stream.isatty() else text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def guard_streams() -> None:
    """Put guards before the standard streams, once. Messages are escaped wherever they go; results
    only where a terminal shows them."""
    if not isinstance(sys.stdout, GuardedStream):
        sys.stdout = cast(TextIO, GuardedStream(sys.stdout, always=False))
    if not isinstance(sys.stderr, GuardedStream):
        sys.stderr = cast(TextIO, GuardedStream(sys.stderr, always=True))
