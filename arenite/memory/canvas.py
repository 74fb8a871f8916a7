"""A canvas: text, lines and boxes as SVG elements, one after the other; and scales, from bytes and
ticks to pixels, with marks at round numbers.

Every text passes through `escape`, since names come from files of unknown origin.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDTH, MARGIN = 800, 16
#: Of a letter, in pixels of the usual text and of the small one; some fonts are narrower.
LETTER, SMALL_LETTER = 8.4, 7.3


class Canvas:
    """Elements drawn so far, the lowest first."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str, x: float, y: float, css: str, anchor: str = "start") -> None:
        self.parts.append(
            f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def mark(self, x: float, y: float, text: str) -> None:
        """A mark of the scale below `y`, whose text stays within the picture."""
        half = len(text) * SMALL_LETTER / 2
        self.line("axis", x, y, x, y + 5)
        at = min(max(x, MARGIN + half), WIDTH - 4 - half)
        self.write(text, at, y + 19, "small", "middle")

    def inside(self, text: str, left: float, right: float, y: float, css: str = "") -> None:
        """Text in the middle of a box, cut short where it does not fit, left out where nothing
        would say anything."""
        room = int((right - left - 6) / SMALL_LETTER)
        if text and room >= min(len(text), 4):
            css = f"inside {css}".strip()
            self.write(cut(text, room), (left + right) / 2, y, css, "middle")

    def line(self, css: str, x1: float, y1: float, x2: float, y2: float) -> None:
        self.parts.append(
            f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
        )

    def rect(
        self, left: float, top: float, right: float, bottom: float, fill: str, hover: str, css: str
    ) -> None:
        width, height = max(right - left, 0.5), max(bottom - top, 0.5)
        title = f"<title>{escape(hover)}</title>" if hover else ""
        self.parts.append(
            f'<rect class="{css}" x="{left:.2f}" y="{top:.2f}" width="{width:.2f}" '
            f'height="{height:.2f}" fill="{fill}">{title}</rect>'
        )


def cut(text: str, room: int) -> str:
    """Text of at most `room` letters."""
    return text if len(text) <= room else text[: max(room - 1, 0)] + "…"


def escape(text: str) -> str:
    """Text that is safe inside XML: no mark-up, no control characters, no lone surrogates."""
    clean = "".join(
        c if c in "\t\n" or (ord(c) >= 32 and not 0xD800 <= ord(c) <= 0xDFFF) else "\ufffd"
        for c in text
        if ord(c) not in (0xFFFE, 0xFFFF)
    )
    return (
        clean.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    )


_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers [low, high] on pixels [first, last]."""

    low: int
    high: int
    first: float
    last: float

    def __call__(self, number: float) -> float:
        share = (number - self.low) / max(1, self.high - self.low)
        return self.first + share * (self.last - self.first)


def round_step(span: int, most: int) -> int:
    """The least 1, 2 or 5 times a power of ten of which at most `most` go into the span."""
    power = 1
    while True:
        for step in _STEPS:
            if step * power * most >= span:
                return step * power
        power *= 10


def byte_marks(high: int, most: int) -> list[tuple[int, str]]:
    """Round amounts from 0 to `high` with their texts, all in one unit."""
    size, unit = next((one for one in _UNITS if high >= 2 * one[0]), _UNITS[-1])
    step = round_step(-(-high // size), most)
    return [(k * size, f"{k} {unit}" if k else "0") for k in range(0, high // size + 1, step)]


def tick_marks(low: int, high: int, most: int) -> list[int]:
    """Round ticks within [low, high]."""
    step = round_step(high - low, most)
    return [*range(-(-low // step) * step, high + 1, step)]
