"""`arenite generate`: what it writes, where, and how it exits, with a model that echoes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from arenite.cli import main
from tests.cli import fake_model
from tests.cli.fake_model import FakeModel
from tests.cli.terminal import Terminal

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model_file(tmp_path: Path) -> str:
    file = tmp_path / "parrot.gguf"
    file.write_bytes(b"GGUF")
    return str(file)


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> list[FakeModel]:
    return fake_model.loaded_models(monkeypatch)


def generate(monkeypatch: pytest.MonkeyPatch, *arguments: str, stdin: bytes = b"") -> int:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["arenite", "generate", *arguments])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_text_and_nothing_else_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, model_file: str, models: list[FakeModel]
) -> None:
    assert generate(monkeypatch, model_file, "Once") == 0
    assert capsys.readouterr() == (".\n", "")
    assert bytes(models[0].sessions[0].fed[0][1:]) == b"Once"
    assert models[0].is_closed


@pytest.mark.parametrize("arguments", [[], ["-"]], ids=["no prompt", "a dash"])
def test_the_prompt_may_come_through_a_pipe(
    monkeypatch: pytest.MonkeyPatch, model_file: str, models: list[FakeModel], arguments: list[str]
) -> None:
    assert generate(monkeypatch, model_file, *arguments, stdin="né\nx\n\n".encode()) == 0
    assert bytes(models[0].sessions[0].fed[0][1:]).decode() == "né\nx\n"


def test_a_message_is_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, model_file: str, models: list[FakeModel]
) -> None:
    assert generate(monkeypatch, model_file, "hello", "--chat") == 0
    assert generate(monkeypatch, model_file, "hello", "--system", "Be brief.") == 0
    assert capsys.readouterr() == ("HELLO\nHELLO\n", "")
    told = bytes(models[1].sessions[0].fed[0][1:])
    assert told == b"<system>Be brief.<user>hello<assistant>"


def test_json_has_the_text_why_it_ended_and_what_it_took(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, model_file: str
) -> None:
    words = "--chat --json --seed 5 --max-tokens 4".split()
    assert generate(monkeypatch, model_file, "hello", *words) == 0
    result = json.loads(capsys.readouterr().out)
    expected = {
        "schema": 1,
        "kind": "arenite.generate",
        "model": "parrot.gguf",
        "text": "HELL",
        "finish": "length",
        "prompt_tokens": 23,
        "reused_tokens": 0,
        "generated_tokens": 4,
        "seed": 5,
    }
    assert {name: result[name] for name in expected} == expected
    assert result["generation_seconds"] >= 0


def test_stop_strings_end_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, model_file: str
) -> None:
    words = ["--chat", "--stop", "zz", "--stop", "LO W"]
    assert generate(monkeypatch, model_file, "hello world", *words) == 0
    assert capsys.readouterr().out == "HEL\n"


def test_a_schema_shapes_the_text(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, model_file: str, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["YES", "NO"]}')
    assert generate(monkeypatch, model_file, '"no"', "--chat", "--schema", str(schema)) == 0
    assert json.loads(capsys.readouterr().out) == "NO"
    words = ["--chat", "--schema", str(schema), "--max-tokens", "2"]
    assert generate(monkeypatch, model_file, '"no"', *words) == 1
    shown = capsys.readouterr()
    assert shown.out == '"N\n'
    assert "the text ended (length) before it was whole" in shown.err


def test_a_grammar_and_a_regular_expression_shape_it_too(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, model_file: str, tmp_path: Path
) -> None:
    grammar = tmp_path / "rules.lark"
    grammar.write_text('start: "HE" "Y"')
    assert generate(monkeypatch, model_file, "hello", "--chat", "--grammar", str(grammar)) == 0
    assert generate(monkeypatch, model_file, "hello", "--chat", "--regex", "H[A-F]!") == 0
    assert capsys.readouterr().out == "HEY\nHE!\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "schema.json is not JSON"), (b"\xff", "is not UTF-8"), (None, "No such file")],
)
def test_a_schema_that_is_none_is_refused_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    model_file: str,
    models: list[FakeModel],
    tmp_path: Path,
    content: bytes | None,
    message: str,
) -> None:
    schema = tmp_path / "schema.json"
    if content is not None:
        schema.write_bytes(content)
    assert generate(monkeypatch, model_file, "x", "--schema", str(schema)) == 2
    assert message in capsys.readouterr().err
    assert models == []


def test_what_is_piped_in_must_be_text(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, model_file: str
) -> None:
    assert generate(monkeypatch, model_file, stdin=b"a\xff") == 2
    assert "standard input is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["\udcff"], ["x", "--system", "\udcff"], ["x", "--stop", "\udcff"]]
)
def test_what_is_typed_must_be_text(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    model_file: str,
    models: list[FakeModel],
    words: list[str],
) -> None:
    """Python has bytes that are no text as such characters."""
    assert generate(monkeypatch, model_file, *words) == 2
    assert "has bytes that are no text in this locale" in capsys.readouterr().err
    assert models == []


def test_what_never_ends_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, model_file: str
) -> None:
    monkeypatch.setattr("arenite.cli.texts.MOST_NBYTES", 1000)
    assert generate(monkeypatch, model_file, stdin=b"x" * 1001) == 2
    assert "standard input has more than the 1000 bytes" in capsys.readouterr().err
    for option in ("--schema", "--grammar"):
        assert generate(monkeypatch, model_file, "x", option, "/dev/zero") == 2
        assert "/dev/zero has more than the 1000 bytes" in capsys.readouterr().err


def test_a_prompt_over_the_context_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, model_file: str
) -> None:
    assert generate(monkeypatch, model_file, "x" * 50, "--context", "20") == 2
    said = capsys.readouterr().err
    assert "51 tokens and the context holds 20; shorten it, or give --context 51" in said
    assert generate(monkeypatch, model_file, "x" * 50_000) == 2
    assert "shorten it: the model was made for up to 10000" in capsys.readouterr().err


def test_on_a_terminal_without_a_prompt_it_says_what_to_do(tmp_path: Path, model_file: str) -> None:
    words = ("-m", "tests.cli.fake_model", str(tmp_path), "generate", model_file)
    with Terminal(*words) as terminal:
        terminal.see("no PROMPT is given")
        assert terminal.leave() == 2


def test_ctrl_c_ends_it_with_its_own_exit_code(tmp_path: Path, model_file: str) -> None:
    words = ("generate", model_file, fake_model.ENDLESS, "--chat", "--context", "100000")
    with Terminal("-m", "tests.cli.fake_model", str(tmp_path), *words) as terminal:
        terminal.see("....")
        terminal.interrupt()
        terminal.see("interrupted")
        assert terminal.leave() == 130


def test_a_reader_that_goes_away_is_no_drama(tmp_path: Path, model_file: str) -> None:
    words = ["generate", model_file, fake_model.ENDLESS, "--chat", "--context", "100000"]
    command = [sys.executable, "-m", "tests.cli.fake_model", str(tmp_path), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(3) == b"..."
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
