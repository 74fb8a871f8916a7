"""Help on terminals of any width: lines fit, and no word is cut."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

import arenite
from arenite.cli import commands, main


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command prints, in this process."""
    monkeypatch.setattr(sys, "argv", ["arenite", *words])
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert caught.value.code == 0
    return capsys.readouterr().out


GROUP = typer.main.get_command(commands.app)
NAMES = [*GROUP.commands, "cache info", "cache clear", ""]  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("name", NAMES)
def test_lines_fit_and_words_are_whole(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setattr("arenite.cli.help.MOST", 500)
    whole = shown(monkeypatch, capsys, *name.split(), "--help")
    monkeypatch.undo()
    monkeypatch.setenv("COLUMNS", str(width))
    text = shown(monkeypatch, capsys, *name.split(), "--help")
    assert max(map(len, text.splitlines())) <= width
    longer = {word for word in whole.split() if len(word) > 25}  # nothing else fits on no line
    assert {*whole.split()} - longer <= {*text.split()}


@pytest.mark.parametrize("name", ["", "cache"])
def test_without_a_command_it_says_which_there_are(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    helped = shown(monkeypatch, capsys, *name.split(), "--help")
    assert shown(monkeypatch, capsys, *name.split()) == helped


def test_the_package_runs_as_the_command() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "arenite", "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout == f"arenite {arenite.__version__}\n"
