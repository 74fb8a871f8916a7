"""Text of a model on a terminal, as it comes: lines broken between words, Markdown as styles.

In: pieces of text. Out: what a terminal shows, with as little held back as possible: the word that
is being written, an emphasis that is not closed yet, a line of code, a table. What it can't show
otherwise it shows as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from arenite.cli.inline import CODE, PLAIN, Run, runs
from arenite.errors import escaped

HEADING, FAINT = Style(bold=True, underline=True), Style(dim=True)

TAB = " " * 4  # code keeps its own

_BLANKS = re.compile(r"[ \t]+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+")
_BULLET = re.compile(r"( *)[-*+][ \t]+")
_NUMBER = re.compile(r" *\d{1,9}[.)][ \t]+")
_QUOTE = re.compile(r" {0,3}>[ \t]?")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*")
_TABLE = re.compile(r" {0,3}\|")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t:|-]*-[ \t:|-]*")
#: Beginnings of lines that what comes next may make something else of.
_UNDECIDED = re.compile(r" *(?:#{0,6}|[-*+_][ \t]*|\d{1,9}[.)]?|>|[-*_ \t]*|`{0,2}|~{0,2})")


class Typesetter:
    """One answer. Without `markdown` marks are shown as they are written."""

    def __init__(self, console: Console, *, markdown: bool) -> None:
        self._console = console
        self._markdown = markdown
        self._lines = _Lines(console)
        self._pending = ""  # of the line that is being written
        self._is_begun = False  # whether it is known what this line is
        self._style = PLAIN
        self._before = ""  # the last character of what was shown of the line
        self._fence = ""  # that ends the code
        self._rows: list[str] = []  # of a table

    def write(self, text: str) -> None:
        """Show what is certain of all text so far."""
        self._pending += escaped(text)
        while "\n" in self._pending:
            line, _, self._pending = self._pending.partition("\n")
            self._end_line(line)
        self._go_on()

    def finish(self) -> None:
        """Show the rest, and end the last line."""
        line, self._pending = self._pending, ""
        if line or self._is_begun:
            self._end_line(line)
        self._end_table()

    def _go_on(self) -> None:
        """Show of a line that is not whole what no more text could change."""
        if self._fence or not self._pending:
            return
        if not self._is_begun:
            if self._markdown and (
                _UNDECIDED.fullmatch(self._pending)
                or _TABLE.match(self._pending)
                or _FENCE.match(self._pending)
            ):
                return
            self._begin()
        self._show(is_whole=False)

    def _end_line(self, line: str) -> None:
        pending, self._pending = self._pending, line
        if not self._is_whole_line():
            if not self._is_begun:
                self._begin()
            self._show(is_whole=True)
            self._lines.end()
        self._is_begun, self._style, self._before = False, PLAIN, ""
        self._pending = pending

    def _is_whole_line(self) -> bool:
        """Show a line that is something as a whole; whether it was."""
        line = self._pending
        if not self._markdown or self._is_begun:
            return False
        fence = _FENCE.fullmatch(line)
        if self._fence:
            is_end = fence is not None and fence[1].startswith(self._fence) and not fence[2].strip()
            self._lines.put_whole(line, FAINT if is_end else CODE)
            self._fence = "" if is_end else self._fence
            return True
        if _TABLE.match(line):
            self._rows.append(line)
            return True
        self._end_table()
        if fence is not None:
            self._fence = fence[1]
            self._lines.put_whole(line, FAINT)
            return True
        if _RULE.fullmatch(line):
            self._lines.put_whole(self._mark("─", "-") * min(self._console.width, 40), FAINT)
            return True
        return False

    def _begin(self) -> None:
        """Find what a line is by its beginning; that is shown, and how lines below it begin."""
        self._end_table()
        self._is_begun = True
        line = self._pending
        lead = ""
        if not self._markdown:
            return
        if match := _HEADING.match(line):
            self._style = HEADING
        elif match := _BULLET.match(line):
            lead = f"{match[1]}{self._mark('•', '*')} "
        elif match := _NUMBER.match(line):
            lead = match[0].rstrip() + " "
        elif match := _QUOTE.match(line):
            lead = self._mark("│", "|") + " "
            self._style = FAINT
        elif match := _BLANKS.match(line):
            lead = match[0].replace("\t", TAB)
        if match:
            self._pending = line[match.end() :]
            is_quote = self._style == FAINT
            self._lines.begin(lead, lead if is_quote else " " * cell_len(lead), self._style)

    def _show(self, is_whole: bool) -> None:
        if not self._markdown:
            styled, self._pending = [Run(self._pending, PLAIN)], ""
        else:
            shown = self._pending
            styled, self._pending = runs(shown, self._style, self._before, is_whole)
            n_shown = len(shown) - len(self._pending)
            self._before = shown[n_shown - 1] if n_shown else self._before
        for run in styled:
            self._lines.put(run)
        self._lines.flush()

    def _end_table(self) -> None:
        rows, self._rows = self._rows, []
        if len(rows) < 2 or not _TABLE_RULE.fullmatch(rows[1]):
            for row in rows:
                self._lines.put(Run(row, PLAIN))
                self._lines.end()
            return
        head, *body = (_cells(row) for row in (rows[0], *rows[2:]))
        table = Table(box=None, header_style="bold underline")
        for cell in head:
            table.add_column(_styled(cell))
        for cells in body:
            table.add_row(*map(_styled, (cells + [""] * len(head))[: len(head)]))
        self._console.print(table)

    def _mark(self, mark: str, plain: str) -> str:
        return mark if self._console.encoding.startswith("utf") else plain


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]


def _styled(text: str) -> Text:
    return Text.assemble(*((run.text, run.style) for run in runs(text, PLAIN, "", True)[0]))


class _Lines:
    """Words, put on lines that fit the terminal. A word is shown when it is known where it ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._column = 0
        self._hang, self._hang_style = "", PLAIN  # what lines begin with that go on with this one
        self._blanks = Run("", PLAIN)  # in front of the word
        self._word: list[Run] = []
        self._is_long = False  # whether a part of the word is on the line, for it fits on none
        self._out: list[Segment] = []

    def begin(self, lead: str, hang: str, style: Style) -> None:
        """Begin a line with `lead`, and those that go on with it with `hang`."""
        if cell_len(lead) > self._console.width // 2:
            lead, hang = lead.lstrip(), ""
        self._hang, self._hang_style = hang, style
        self._emit(lead, style)

    def put(self, run: Run) -> None:
        at = 0
        for blank in _BLANKS.finditer(run.text):
            self._put_word(run.text[at : blank.start()], run.style)
            self._end_word()
            self._blanks = Run(self._blanks.text + blank[0].replace("\t", TAB), run.style)
            at = blank.end()
        self._put_word(run.text[at:], run.style)

    def put_whole(self, line: str, style: Style) -> None:
        """A line that is not broken: where it is too long the terminal goes on below."""
        self._emit(line, style)
        self.end()

    def end(self) -> None:
        """End the line."""
        self._end_word()
        self._blanks = Run("", PLAIN)
        self._out.append(Segment("\n"))
        self._column, self._hang = 0, ""
        self.flush()

    def flush(self) -> None:
        if self._out:
            self._console.print(Segments(Segment.simplify(self._out)), end="", soft_wrap=True)
            self._console.file.flush()
            self._out = []

    def _put_word(self, text: str, style: Style) -> None:
        for part in _breakable(text):
            if self._word and (cell_len(part[0]) > 1 or cell_len(self._word[-1].text[-1:]) > 1):
                self._end_word()  # scripts without blanks are broken anywhere
            self._word.append(Run(part, style))
            if self._is_long or self._n_cells() > self._console.width - cell_len(self._hang):
                self._show_word()
                self._is_long = True

    def _n_cells(self) -> int:
        return sum(cell_len(run.text) for run in self._word)

    def _end_word(self) -> None:
        if self._word:
            self._show_word()
        self._is_long = False

    def _show_word(self) -> None:
        width = self._console.width
        if self._column + cell_len(self._blanks.text) + self._n_cells() <= width:
            self._emit(*self._blanks)
        elif self._column > cell_len(self._hang) and not self._is_long:
            self._next_line()
        for run in self._word:
            for part in run.text if self._n_cells() > width - self._column else (run.text,):
                if self._column + cell_len(part) > width:
                    self._next_line()
                self._emit(part, run.style)
        self._word, self._blanks = [], Run("", PLAIN)

    def _next_line(self) -> None:
        self._out.append(Segment("\n"))
        self._column = 0
        self._emit(self._hang, self._hang_style)

    def _emit(self, text: str, style: Style) -> None:
        if text:
            self._out.append(Segment(text, style))
            self._column += cell_len(text)


#: A wide character, with what is joined to it, or any number of others.
_PARTS = re.compile(r"[\u1100-\U0010ffff](?:[\u200c\u200d\ufe00-\ufe0f].?)*|[^\u1100-\U0010ffff]+")


def _breakable(text: str) -> Iterable[str]:
    """Parts of a word between which a line may end: each wide character is one."""
    if len(text) == cell_len(text):
        return [text] if text else []
    return _PARTS.findall(text)
