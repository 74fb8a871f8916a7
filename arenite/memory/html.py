"""Tables as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Collection
from html import escape


def html_table(rows: list[list[str]], right: Collection[int] = ()) -> str:
    """Rows of equal length, the first of which is the head; columns in `right` are numbers, which
    end flush."""
    lines = [
        "".join(
            f'<{tag} style="text-align: {"right" if k in right else "left"}">{escape(cell)}</{tag}>'
            for k, cell in enumerate(row)
        )
        for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True)
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
