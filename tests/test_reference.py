"""The reference is what the docstrings say, and leaves no public name out."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import arenite

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "docs" / "make_reference.py"
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
HEADINGS = {
    heading: page.name
    for page in PAGES
    for heading in re.findall("^### (.*)$", page.read_text(), re.M)
}


def test_the_pages_are_what_the_script_writes() -> None:
    run = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_page_that_differs_would_be_seen(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "reference").mkdir(parents=True)
    for file in (SCRIPT, ROOT / "docs" / "reference.md"):
        (docs / file.name).write_text(file.read_text())
    for page in PAGES:
        (docs / "reference" / page.name).write_text(page.read_text())
    memory = docs / "reference" / "memory.md"
    memory.write_text(memory.read_text().replace("must keep its bytes", "may lose its bytes"))
    script = docs / SCRIPT.name
    run = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert run.returncode == 1
    assert "docs/reference/memory.md differs: run docs/make_reference.py\n" in run.stdout
    subprocess.run([sys.executable, script], check=True)
    assert "may lose its bytes" not in memory.read_text()


def public_names() -> list[str]:
    names = [n for n in arenite.__all__ if not isinstance(getattr(arenite, n), ModuleType)]
    found = [f"arenite.{name}" for name in names]
    for room in ("device", "fetch", "generate", "hazards", "memory", "model", "onnxruntime"):
        found += [f"{room}.{name}" for name in import_module(f"arenite.{room}").__all__]
    for name in ("generate.LanguageModel", "model.Model"):  # which are arenite's own
        found.remove(name)
    errors = vars(import_module("arenite.errors"))
    found += [f"errors.{name}" for name, value in errors.items() if inspect.isclass(value)]
    return [*found, "CompiledFunction", "Executable", "CachedKernel", "Launch", "Options"]


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_its_place_and_a_text(name: str) -> None:
    page = ROOT / "docs" / "reference" / HEADINGS[name]
    part = page.read_text().split(f"\n### {name}\n")[1].split("\n### ")[0]
    sentences = re.sub(r"```.*?```", "", part, flags=re.DOTALL)
    assert re.search(r"[a-z]{2,}.*", sentences), name


def test_every_member_of_a_public_class_has_a_text() -> None:
    silent = []
    for name in public_names():
        room, _, short = name.rpartition(".")
        module = arenite if room in ("", "arenite") else import_module(f"arenite.{room}")
        value = getattr(module, short, None)
        if inspect.isclass(value):
            for member, held in vars(value).items():
                is_shown = isinstance(held, property) or inspect.isfunction(held)
                if is_shown and not member.startswith("_") and not inspect.getdoc(held):
                    silent.append(f"{name}.{member}")
    assert silent == []


def test_links_of_the_index_lead_to_headings() -> None:
    index = (ROOT / "docs" / "reference.md").read_text()
    links = re.findall(r"\(reference/([a-z-]+\.md)#([a-z0-9_-]+)\)", index)
    assert len(links) > 200
    for page in PAGES:
        headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        plain = [re.sub(r"[^a-z0-9 _-]", "", one.lower()).replace(" ", "-") for one in headings]
        anchors = [f"{p}-{n}" if (n := plain[:k].count(p)) else p for k, p in enumerate(plain)]
        assert {anchor for file, anchor in links if file == page.name} <= {*anchors}
