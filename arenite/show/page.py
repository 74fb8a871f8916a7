"""A page in one file: styles, data and scripts inside, nothing fetched.

In: a title, plain data, and texts of styles and scripts. Out: HTML. Names in the data come from
files of unknown origin. So all of it is JSON in ASCII in which no mark-up can begin or end, the
scripts make text of it and never mark-up, and a policy in the page lets nothing run but the
scripts given here, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

SELF = "'self'"

_TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="Arenite">
<title>{title}</title>
{styles}
</head>
<body>
<main></main>
<noscript>This page is drawn by the script inside of it: allow JavaScript to see it.</noscript>
<script type="application/json" id="data">{data}</script>
{scripts}
</body>
</html>
"""


def read_part(name: str) -> str:
    """The text of a style or a script of this room: "elements.js"."""
    return (files("arenite.show") / name).read_text(encoding="utf-8")


def document(
    title: str,
    data: Any,
    styles: Iterable[str],
    scripts: Iterable[str],
    *,
    connects: bool = False,
) -> str:
    """The page. Scripts run in the order given, when `main` and the data are there; with `connects`
    they may ask the server that the page is from."""
    styles, scripts = [f"\n{text}" for text in styles], [f"\n{text}" for text in scripts]
    policy = (
        f"default-src 'none'; style-src {_hashes(styles)}; script-src {_hashes(scripts)}; "
        f"base-uri 'none'; form-action 'none'{'; connect-src ' + SELF if connects else ''}"
    )
    return _TEMPLATE.format(
        policy=policy,
        title=escape(title),
        styles="\n".join(f"<style>{text}</style>" for text in styles),
        data=_json(data),
        scripts="\n".join(f"<script>{text}</script>" for text in scripts),
    )


def _json(data: Any) -> str:
    """JSON that is no mark-up, whatever its texts are."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hashes(texts: list[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    found = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    return " ".join(found) or "'none'"
