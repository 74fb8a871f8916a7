"""README and docs tell the truth: every Python block runs, every command shown exists."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from arenite.pipeline import tune
from tests.generate.folder_models import write_tiny

ROOT = Path(__file__).parent.parent
#: Decision records quote interfaces as they were weighed; they are history, not instructions.
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


#: The head of a block that is added to a file of the package, for the other blocks of its page.
ADDITION = re.compile(r"# at the end of (arenite/\S+\.py)\n")


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (
            f"{page.relative_to(ROOT)}:{page.read_text()[: match.start()].count(chr(10)) + 1}",
            match[2],
        )
        for page in PAGES
        for match in BLOCK.finditer(page.read_text())
        if match[1] == language
    ]


def run_blocks() -> list[tuple[str, str]]:
    return [(place, code) for place, code in blocks("python") if not ADDITION.match(code)]


def package_for(page: str, folder: Path) -> Path:
    """Where the package is that the blocks of a page run with: with what the page adds to it."""
    added = [code for place, code in blocks("python") if place.partition(":")[0] == page]
    added = [code for code in added if ADDITION.match(code)]
    if not added:
        return ROOT
    shutil.copytree(ROOT / "arenite", folder / "arenite", ignore=shutil.ignore_patterns("*.pyc"))
    for code in added:
        path = folder / ADDITION.findall(code)[0]
        path.write_text(f"{path.read_text()}\n\n{code}")
    return folder


@pytest.mark.parametrize(("place", "code"), run_blocks(), ids=[p for p, _ in run_blocks()])
def test_python_in_the_docs_runs(place: str, code: str, tmp_path: Path, smollm2: Path) -> None:
    if 'device="c"' in code and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("there is no C compiler on the PATH: apt-get install gcc")
    (tmp_path / "model.gguf").symlink_to(smollm2)
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package_for(place.partition(":")[0], tmp_path))},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, f"{place}\n{run.stderr}"


LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
TEST_FILE = re.compile(r"`((?:tests/[a-z/]+/)?test_[a-z_]+\.py)`")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_what_a_page_refers_to_is_there(page: Path) -> None:
    """Links lead to files; tests that are named are tests, in tests/pipeline unless said."""
    text = page.read_text()
    for target in LINK.findall(text):
        assert (page.parent / target).exists(), target
    for name in TEST_FILE.findall(text):
        path = ROOT / name if "/" in name else ROOT / "tests" / "pipeline" / name
        assert "def test_" in path.read_text(), name


def test_numbers_in_the_page_about_tuning_are_those_of_the_code() -> None:
    text = " ".join((ROOT / "docs" / "tuning.md").read_text().split())
    for said in (
        f"each step must gain at least {tune.GAIN - 1:.0%}",
        f"must gain {tune.GAIN_AGAIN - 1:.0%} each time",
        f"lose no more than {tune.LOSS - 1:.0%} under any condition",
        f"are measured at {tune.USUAL_SIZE}",
    ):
        assert said.replace("%", " %") in text
    assert tune.TIMES_AGAIN == 2
    assert "against the usual way alone, twice," in text


def readme_commands() -> list[str]:
    shown = [code for place, code in blocks("sh") if place.startswith("README.md:")]
    return [line for code in shown for line in code.strip().splitlines()]


def test_the_readme_has_code_to_run() -> None:
    assert blocks("python")
    assert len(readme_commands()) >= 2


def test_ci_runs_the_readmes_test_command() -> None:
    commands = readme_commands()
    [test_command] = [line for line in commands if "pytest" in line]
    assert test_command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_readmes_main_job_runs(smollm2: Path, tmp_path: Path) -> None:
    setting_up = [line for line in readme_commands() if "pip install" in line]
    [arguments] = [line.split("bin/arenite ")[1] for line in setting_up if "bin/arenite " in line]
    run = _arenite(tmp_path, arguments, "What do birds eat?\n")
    assert run.returncode == 0, run.stderr
    assert "memory " in run.stderr  # the plan, before the first word
    assert len(run.stdout.split()) > 3


#: What examples print when they came to their end; those that take a model are given one.
EXAMPLES = {
    "chat.py": "all of it planned",
    "extract.py": "'age': 31",
    "fit.py": "a text may have",
    "largest_batch.py": "1 program for all of them",
    "move_over.py": "a table              csv",
    "network.py": "every conflicting byte range ordered",
    "notes.py": "C5     1.4",
    "search.py": "What makes bread rise?",
    "smooth.py": "the level was",
    "two_stories.py": "In the old library a mouse",
    "upright.py": "TRAIN, turned    upside down",
    "voice.py": "a voice from 1.0",
}
#: Models of the catalogue that examples fetch.
FETCHED = {
    "largest_batch.py": "ppocr-rec",
    "move_over.py": "magika",
    "notes.py": "basic-pitch",
    "upright.py": "ppocr-cls",
    "voice.py": "silero-vad",
}


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(
    script: Path, smollm2: Path, catalogue_model: Callable[[str], Path], tmp_path: Path
) -> None:
    arguments = []
    if script.name in FETCHED:
        catalogue_model(FETCHED[script.name])
    if script.name == "search.py":
        arguments = [str(write_tiny("bert", tmp_path))]
    run = subprocess.run(
        [sys.executable, script, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert EXAMPLES[script.name] in run.stdout


def test_the_index_of_examples_has_them_all() -> None:
    text = (ROOT / "examples" / "README.md").read_text()
    listed = re.findall(r"^\| \[`(\w+\.py)`\]\((\w+\.py)\) \|", text, re.MULTILINE)
    assert all(name == link for name, link in listed)
    assert sorted(name for name, _ in listed) == sorted(EXAMPLES)


def test_arenite_commands_in_the_docs_work(smollm2: Path, tmp_path: Path) -> None:
    lines = [line for _, code in blocks("sh") for line in code.splitlines()]
    shown = [
        line.split("bin/arenite ")[1] for line in lines if line.startswith(".venv/bin/arenite")
    ]
    assert shown
    (tmp_path / "bench").symlink_to(ROOT / "bench")  # whose data a command reads
    for arguments in shown:
        command = arguments.partition("#")[0]
        if command.startswith("serve "):
            _serve(command)
            continue
        run = _arenite(tmp_path, command)
        assert run.returncode == 0, arguments + run.stderr


def _serve(command: str) -> None:
    """Start a server, have it answer, and end it as a person would."""
    line = [sys.executable, "-m", "arenite.cli.main", *shlex.split(command), "--port", "0"]
    with subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = ""
        while " is served at " not in said:
            said = server.stderr.readline()
            assert said, f"{command} ended with {server.wait()}"
        [address] = re.findall(r"http://\S+", said)
        with urlopen(f"{address}/health") as answer:
            assert b'"ok"' in answer.read()
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def _arenite(folder: Path, arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, where it may leave files."""
    return subprocess.run(
        [sys.executable, "-m", "arenite.cli.main", *shlex.split(arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        input=given,
        capture_output=True,
        text=True,
    )
