"""Pages: one file, nothing fetched, and names from strangers stay names."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from arenite.show import document, read_part

NAMES = [
    "</script><script>window.owned = 1</script>",
    "</script ><img src=x onerror=window.owned=1 ",
    "</SCRIPT/",
    "<!--<script >",
    "\"'`${window.owned = 1}",
    "line\u2028separator\u2029",
    "\x1b[31mred\x1b[0m\x07\r\n",
    "<img src=x onerror='window.owned = 1'>",
    "\u202egpj.exe",
    "lone \ud800 surrogate",
    "&lt;b&gt; &amp;",
]


class Elements(HTMLParser):
    """Tags of a page, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: dict[str, list[str]] = {"script": [], "title": [], "style": []}
        self.policy = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        assert not known.keys() & {"src", "href", "onerror", "onload", "style"}
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.lasttag in self.texts and data.strip():
            self.texts[self.lasttag].append(data)


@pytest.mark.parametrize("name", NAMES)
def test_data_is_what_it_was_and_no_markup(name: str) -> None:
    text = document(name, {"name": name, name: [name]}, ["b { }"], ["let a = 1 < 2;"])
    text.encode("utf-8", "strict" if "\ud800" not in name else "replace")
    page = Elements(text)
    tags = ["html", "head", *["meta"] * 5, "title", "style", "body", "main", "noscript"]
    assert page.tags == [*tags, "script", "script"]
    assert json.loads(page.texts["script"][0]) == {"name": name, name: [name]}
    assert page.texts["script"][0].isascii()
    assert page.texts["script"][0].isprintable()
    assert not {*"<>&"} & {*page.texts["script"][0]}


def test_only_the_scripts_and_styles_given_may_run() -> None:
    page = Elements(document("t", {}, ["b { }"], ["let a;", "let b;"]))
    [style], scripts = page.texts["style"], page.texts["script"][1:]
    for kind, texts in (("style-src", [style]), ("script-src", scripts)):
        hashes = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in texts]
        [allowed] = re.findall(rf"{kind} ([^;]*);", page.policy)
        assert allowed.split() == [f"'sha256-{one}'" for one in hashes]
    assert page.policy.startswith("default-src 'none';")


@pytest.mark.parametrize("name", ["elements.js", "memory.js", "page.css"])
def test_parts_are_read_and_end_no_element(name: str) -> None:
    text = read_part(name)
    assert len(text) > 500
    assert "</" not in text.lower()
    assert "innerHTML" not in text
    assert "http" not in text
