"""Tables as HTML, for notebooks."""

from __future__ import annotations

from html import escape


def html_table(rows: list[list[str]]) -> str:
    """Rows of equal length, the first of which is the head."""
    lines = [
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
        for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True)
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
