"""Tables as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Collection
from html import escape


def html_table(rows: list[list[str]], right: Collection[int] = ()) -> str:
    """Rows of equal length, the first of which is the head; columns in `right` end flush."""
    sides = ["right" if k in right else "left" for k in range(len(rows[0]))]
    lines = [
        "".join(
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            for cell, side in zip(row, sides, strict=True)
        )
        for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True)
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
