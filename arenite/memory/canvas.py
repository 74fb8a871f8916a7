"""A canvas: text, lines and boxes as SVG elements, one after the other.

Every text passes through `escape`, since names come from files of unknown origin.
"""

from __future__ import annotations

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
