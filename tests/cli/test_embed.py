"""`arenite embed`: vectors of texts from arguments, a file or standard input."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import arenite
from arenite.cli import main, output
from arenite.errors import InvalidArgument
from tests.generate.gguf_models import write_tiny

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny("bert", tmp_path_factory.mktemp("models"))


def embed(monkeypatch: pytest.MonkeyPatch, *words: object, typed: bytes = b"") -> int:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["arenite", "embed", *map(str, words)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_json_has_what_the_model_says_of_each_text(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, bert: Path, tmp_path: Path
) -> None:
    file = tmp_path / "texts"
    file.write_bytes(b"b c\r\n\nlast\n")
    out = tmp_path / "rows"
    assert embed(monkeypatch, bert, "a", "--file", file, "--json", "--out", out) == 0
    shown = json.loads(capsys.readouterr().out)
    texts = ["a", "b c", "", "last"]
    assert (shown["kind"], shown["model"]) == ("arenite.embed", "bert.gguf")
    assert [row["text"] for row in shown["texts"]] == texts
    with arenite.load(bert) as model:
        expected = model.embed(texts)
        counts = [len(model.tokenizer.encode(text)) for text in texts]
    assert [row["tokens"] for row in shown["texts"]] == counts
    vectors = np.array([row["vector"] for row in shown["texts"]], np.float32)
    assert (vectors == expected).all()
    assert (np.load(out) == expected).all()


def test_people_see_how_much_texts_are_alike(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, bert: Path
) -> None:
    assert embed(monkeypatch, bert, "one", "two", "one") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    alike = [line.split()[1] for line in shown.out.splitlines()[1:]]
    assert alike[0] == alike[2] == "1.000"
    assert float(alike[1]) < 1


def test_lines_of_standard_input_are_texts(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, bert: Path
) -> None:
    for words in ((), ("--file", "-")):
        assert embed(monkeypatch, bert, *words, "--json", typed="né\nx\n".encode()) == 0
        texts = json.loads(capsys.readouterr().out)["texts"]
        assert [row["text"] for row in texts] == ["né", "x"]


def test_a_text_over_the_context_is_refused_or_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, bert: Path
) -> None:
    long = "a " * 40
    assert embed(monkeypatch, bert, "b", long, "--context", 16) == 2
    said = capsys.readouterr().err
    assert "text 2 of 2 has " in said
    assert "the context holds 16" in said
    assert "--truncate" in said
    assert embed(monkeypatch, bert, "b", long, "--context", 16, "--truncate", "--json") == 0
    assert json.loads(capsys.readouterr().out)["texts"][1]["tokens"] == 16
    with arenite.load(bert, context=16) as model:
        with pytest.raises(InvalidArgument, match=r"text 1 of 2 has \d+ tokens .* truncate=True"):
            model.embed(["b", long])
        tokens = model.tokenizer.encode(long)
        [cut] = model.executable(np.array([*tokens[:15], tokens[-1]], np.int64))
        assert (model.embed(["b", long], truncate=True)[1:] == cut).all()


def test_a_bar_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, bert: Path
) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    monkeypatch.setattr(output, "err", terminal)
    assert embed(monkeypatch, bert, "a", "b", "--json") == 0
    assert "embedding" in screen.getvalue()
    assert len(json.loads(capsys.readouterr().out)["texts"]) == 2


@pytest.mark.parametrize(
    ("words", "typed", "reason"),
    [
        ([], b"", "there is no text to embed"),
        ([], b"\xff", "standard input is not UTF-8"),
        (["--file", "no/such"], b"", "no/such: No such file"),
        (["a", "--out", "no/such.npy"], b"", "no/such.npy: No such file"),
    ],
)
def test_what_can_not_be_done_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    bert: Path,
    words: list[str],
    typed: bytes,
    reason: str,
) -> None:
    assert embed(monkeypatch, bert, *words, typed=typed) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert reason in shown.err


def test_each_kind_of_model_says_which_command_is_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, bert: Path, tmp_path: Path
) -> None:
    llama = write_tiny("llama", tmp_path)
    loaded: list[object] = []
    monkeypatch.setattr(arenite, "load", lambda *given, **named: loaded.append(given))
    assert embed(monkeypatch, llama, "x") == 2
    assert "`arenite chat` talks with this one" in capsys.readouterr().err
    for command in (["chat", str(bert)], ["generate", str(bert), "x"]):
        monkeypatch.setattr(sys, "argv", ["arenite", *command])
        with pytest.raises(SystemExit):
            main.run()
        assert "bert.gguf is a model for embeddings and writes no text; `arenite embed`" in (
            capsys.readouterr().err
        )
    assert loaded == []
