"""The pages for those who carry on name things that are there."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_rooms import PACKAGE, ROOMS

ROOT = PACKAGE.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "CONTRIBUTING.md", DOCS / "architecture.md", *sorted(DOCS.glob("adding-*.md"))]
#: Where a path on such a page may begin.
FOLDERS = [
    ROOT,
    PACKAGE,
    PACKAGE / "device",
    PACKAGE / "backends" / "c",
    ROOT / "tests" / "pipeline",
]

PATH = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)*(?:\.py|\.md|\.json|/))`")
ROW = re.compile(r"^\| `(\w+)` \((?:`([\w/]+)\.py`)\) \|", re.MULTILINE)


def test_the_map_lists_the_rooms_in_their_order() -> None:
    text = (DOCS / "architecture.md").read_text()
    table = text.split("## The rooms")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    there = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    assert listed == [room for room in ROOMS if room in there]


def test_the_picture_has_every_room() -> None:
    words = set(re.findall(r"[a-z]+", (DOCS / "architecture.svg").read_text().split("</defs>")[1]))
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name in ROOMS}
    assert rooms - words == {"dtype"}  # a leaf that all the others lean on


def test_every_record_is_defined_where_the_map_says() -> None:
    rows = ROW.findall((DOCS / "architecture.md").read_text())
    assert len(rows) > 8
    for name, path in rows:
        module = import_module(f"arenite.{path.replace('/', '.')}")
        assert getattr(module, name).__module__ == module.__name__, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_on_a_page_exists(page: Path) -> None:
    for name in PATH.findall(page.read_text()):
        assert any([*folder.glob(name)] for folder in FOLDERS), name


def test_the_picture_is_what_its_script_draws(tmp_path: Path) -> None:
    script = tmp_path / "make_map.py"
    script.write_text((DOCS / "make_map.py").read_text())
    subprocess.run([sys.executable, script], check=True)
    assert (tmp_path / "architecture.svg").read_text() == (DOCS / "architecture.svg").read_text()
