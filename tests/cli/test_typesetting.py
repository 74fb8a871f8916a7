"""Text of a model on a terminal: broken between words, Markdown as styles, in any pieces."""

from __future__ import annotations

import io
import random
import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len

from arenite.cli.inline import BOLD, CODE, ITALIC, PLAIN, runs
from arenite.cli.output import Screen
from arenite.cli.typesetting import Typesetter

STYLES = re.compile(r"\x1b\[[0-9;]*m")


def typeset(
    text: str, *, width: int = 40, markdown: bool = True, pieces: list[str] | None = None
) -> str:
    """What is written to a terminal of that width, styles included."""
    screen = io.StringIO()
    console = Screen(
        file=screen, force_terminal=True, width=width, _environ={"TERM": "xterm-256color"}
    )
    setter = Typesetter(console, markdown=markdown)
    for piece in [text] if pieces is None else pieces:
        setter.write(piece)
    setter.finish()
    return screen.getvalue()


def plain(text: str) -> str:
    return STYLES.sub("", text)


SAMPLE = """\
# A heading that is rather long and will surely wrap

Some **bold text that** goes on, *italics*, `code here`, a * lone star, 2 ** 3, *args, snake_case.

- first item that is long enough to wrap at forty columns for sure
  - nested item that is long enough to wrap at forty columns too
10. numbered item which is also quite long and wraps around
> a quote that is long enough to wrap at forty columns, surely
```python
def f(x):
    return "**not bold**" + `x`  # a long line that is not broken at forty
```
| name | what it is |
|------|-----------|
| **a** | some long text in a cell that has to wrap |

---
日本語のテキストは空白なしで折り返されるべきです。とても長い文なので折り返しが必要です。
Unclosed **bold and `code
the end"""


def test_the_sample_as_a_person_sees_it() -> None:
    assert (
        [line.rstrip() for line in plain(typeset(SAMPLE)).splitlines()]
        == """\
A heading that is rather long and will
surely wrap

Some bold text that goes on, italics,
code here, a * lone star, 2 ** 3, *args,
snake_case.

• first item that is long enough to wrap
  at forty columns for sure
  • nested item that is long enough to
    wrap at forty columns too
10. numbered item which is also quite
    long and wraps around
│ a quote that is long enough to wrap at
│ forty columns, surely
```python
def f(x):
    return "**not bold**" + `x`  # a long line that is not broken at forty
```
 name  what it is
 a     some long text in a cell that
       has to wrap

────────────────────────────────────────
日本語のテキストは空白なしで折り返される
べきです。とても長い文なので折り返しが必
要です。
Unclosed **bold and `code
the end""".splitlines()
    )


def test_it_is_the_same_in_whatever_pieces_it_comes() -> None:
    whole = plain(typeset(SAMPLE))
    for seed in range(20):
        choose = random.Random(seed)
        cuts = sorted(choose.sample(range(len(SAMPLE)), choose.randint(1, len(SAMPLE) - 1)))
        ends = zip([0, *cuts], [*cuts, len(SAMPLE)], strict=True)
        assert plain(typeset("", pieces=[SAMPLE[a:b] for a, b in ends])) == whole


def test_little_is_held_back() -> None:
    screen = io.StringIO()
    console = Screen(file=screen, force_terminal=True, width=40, _environ={"TERM": "xterm"})
    setter = Typesetter(console, markdown=True)
    said = ""
    for word in "these are words **that are** `shown` at once - even 1. so * or > not".split():
        setter.write(word + " ")
        said += word + " "
        assert len(plain(screen.getvalue())) >= len(said.replace("*", "")) - 20


WORDS = st.text(st.sampled_from("ab*_`#->|1. \n~\\[]()日👍é\t\x1b"), max_size=80)


@example(" \t1", 7, False, random.Random(1))
@example("\t\t", 5, True, random.Random(1))
@given(WORDS, st.integers(5, 30), st.booleans(), st.randoms(use_true_random=False))
def test_any_text_fits_and_none_is_lost(
    text: str, width: int, markdown: bool, choose: random.Random
) -> None:
    cuts = sorted(choose.randrange(len(text) + 1) for _ in range(3))
    ends = zip([0, *cuts], [*cuts, len(text)], strict=True)
    shown = plain(typeset(text, width=width, markdown=markdown))
    assert (
        plain(typeset("", pieces=[text[a:b] for a, b in ends], width=width, markdown=markdown))
        == shown
    )
    letters = re.sub(r"[^ab日👍é]", "", shown)
    if "|" not in text or not markdown:  # tables are laid out anew
        assert letters == re.sub(r"[^ab日👍é]", "", text.replace("\x1b", "\\x1b"))
    if "```" not in text and "~~~" not in text and "|" not in text:
        assert max(map(cell_len, shown.split("\n"))) <= width


def test_words_are_whole_where_they_fit() -> None:
    words = [f"word{k}" * (k % 3 + 1) for k in range(60)]
    for width in (20, 33, 80):
        lines = typeset(" ".join(words), width=width, markdown=False).splitlines()
        assert " ".join(lines).split() == words
        for line, after in pairwise(lines):
            assert len(line) + 1 + len(after.split()[0]) > width, "no line ends too soon"


EMPHASIS = [
    "plain text",
    "**bold** and *italic* and ***both***",
    "`code` and ``co`de``",
    "`**not bold**`",
    "**bold with `code` in it**",
    "*it **and bold** too*",
    "**bold *and italic* too**",
    "2 * 3 * 4",
    "2 ** 3",
    "a * b",
    "snake_case_name and _italic_",
    "__bold__",
    "unclosed **bold",
    "unclosed `code",
    "*args, **kwargs",
    r"\*escaped\* and \\ and \x",
    "**a**, *b*; (**c**)",
    "****",
    "** a **",
]


@pytest.mark.parametrize("text", EMPHASIS)
def test_emphasis_is_what_markdown_makes_of_it(text: str) -> None:
    """The judge is markdown-it; runs of one style are joined on both sides."""
    expected: list[tuple[str, set[str]]] = []
    inside: set[str] = set()
    for token in MarkdownIt("commonmark").parseInline(text)[0].children or []:
        if token.type.endswith("_open"):
            inside = inside | {token.tag}
        elif token.type.endswith("_close"):
            inside = inside - {token.tag}
        else:
            kinds = inside | ({"code"} if token.type == "code_inline" else set())
            expected.append((token.content, kinds))
    marks = {"strong": BOLD, "em": ITALIC, "code": CODE}
    found, left = runs(text, PLAIN, "", True)
    assert left == ""
    got = [
        (
            run.text,
            {
                name
                for name, style in marks.items()
                if (run.style.bold and style is BOLD)
                or (run.style.italic and style is ITALIC)
                or (run.style.color is not None and style is CODE)
            },
        )
        for run in found
    ]
    assert _joined(got) == _joined(expected)


def _joined(parts: list[tuple[str, set[str]]]) -> list[tuple[str, set[str]]]:
    made: list[tuple[str, set[str]]] = []
    for text, kinds in parts:
        if made and made[-1][1] == kinds:
            made[-1] = (made[-1][0] + text, kinds)
        elif text:
            made.append((text, kinds))
    return made
