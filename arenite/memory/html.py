"""Tables as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Collection
from html import escape


def html_table(rows: list[list[str]], right: Collection[int] | None = None) -> str:
    """Rows of equal length, the first of which is the head; columns in `right` are numbers, which
    end flush, and all others begin so. Without it the page decides."""

    def cell(tag: str, column: int, text: str) -> str:
        if right is None:
            return f"<{tag}>{escape(text)}</{tag}>"
        side = "right" if column in right else "left"
        return f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'

    lines = [
        "".join(cell(tag, k, text) for k, text in enumerate(row))
        for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True)
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
