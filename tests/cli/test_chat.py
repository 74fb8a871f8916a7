"""`arenite chat`: on a terminal and through a pipe, with a model that echoes."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from arenite.cli import lines, main, manner
from tests.cli import fake_model
from tests.cli.fake_model import FakeModel
from tests.cli.terminal import Terminal

Captured = pytest.CaptureFixture[str]

CTRL_D, UP = "\x04", "\x1b[A"


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    file = tmp_path / "parrot.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.fixture
def terminal(model_file: Path, tmp_path: Path) -> Terminal:
    return on_terminal(model_file, tmp_path)


def on_terminal(model_file: Path, folder: Path, *options: str) -> Terminal:
    environment = {"ARENITE_CACHE_DIR": str(folder / "cache")}
    words = ("-m", "tests.cli.fake_model", str(folder), "chat", str(model_file), *options)
    return Terminal(*words, environment=environment)


def test_a_conversation_is_had_interrupted_gone_on_with_and_left(terminal: Terminal) -> None:
    with terminal:
        before = terminal.see("> ")
        for words in ("parrot, context 400 tokens", "memory 1 KiB: work 1 KiB", "/help"):
            assert words in before
        terminal.type("hello\n")
        terminal.see("HELLO\n")
        terminal.see("> ")
        terminal.type(fake_model.ENDLESS + "\n")
        terminal.see("....")
        terminal.interrupt()
        terminal.see("(ended by Ctrl-C)\n")
        terminal.see("> ")
        terminal.type("and on\n")
        terminal.see("AND ON\n")
        terminal.see("> ")
        terminal.type(CTRL_D)
        assert terminal.leave() == 0


def test_one_interrupt_at_the_prompt_warns_and_the_second_leaves(terminal: Terminal) -> None:
    with terminal:
        terminal.see("> ")
        terminal.interrupt()
        terminal.see("Ctrl-C once more leaves\n")
        terminal.see("> ")
        terminal.type("still here\n")
        terminal.see("STILL HERE\n")
        terminal.see("> ")
        terminal.interrupt()
        terminal.see("once more")
        terminal.see("> ")
        terminal.interrupt()
        assert terminal.leave() == 0


def test_messages_of_many_lines(terminal: Terminal) -> None:
    with terminal:
        terminal.see("> ")
        terminal.type("one\\\n")
        terminal.see(". ")
        terminal.type("two\n")
        terminal.see("ONE\nTWO\n")
        terminal.see("> ")
        terminal.type('"""first\n')
        terminal.see(". ")
        terminal.type("/plan is text here\n")
        terminal.see(". ")
        terminal.type('last"""\n')
        terminal.see("FIRST\n/PLAN IS TEXT HERE\nLAST\n")
        terminal.type("/quit\n")
        assert terminal.leave() == 0


def test_lines_typed_before_come_back_the_next_time(model_file: Path, tmp_path: Path) -> None:
    with on_terminal(model_file, tmp_path) as first:
        first.see("> ")
        first.type("remember me\n")
        first.see("REMEMBER ME\n")
        first.see("> ")
        first.type(CTRL_D)
        assert first.leave() == 0
    kept = tmp_path / "cache" / "chat_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with on_terminal(model_file, tmp_path) as second:
        second.see("> ")
        second.type(UP)
        second.see("remember me")
        second.type("\n")
        second.see("REMEMBER ME\n")


def test_without_a_place_for_lines_one_can_still_talk(model_file: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / "chat_history").mkdir(parents=True)
    with on_terminal(model_file, tmp_path) as terminal:
        assert "none are kept" in terminal.see("> ")
        terminal.type("hello\n")
        terminal.see("HELLO\n")
        terminal.see("> ")
        terminal.type(CTRL_D)
        assert terminal.leave() == 0


def test_commands(terminal: Terminal, tmp_path: Path) -> None:
    with terminal:
        terminal.see("> ")
        terminal.type("/stats\n")
        terminal.see("nothing was said yet")
        terminal.type("hi\n")
        terminal.see("HI\n")
        terminal.type("/stats\n")
        terminal.see("2 tokens in ")
        terminal.type("/plan\n")
        terminal.see("lower bound")
        terminal.type("/save said.json\n")
        terminal.see("2 messages are in said.json")
        saved = json.loads((tmp_path / "said.json").read_text())
        assert saved["messages"] == [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "HI"},
        ]
        terminal.type("/save\n")
        terminal.see("needs the name of a file")
        terminal.type("/save no/such/folder.json\n")
        terminal.see("error: no/such/folder.json: No such file or directory")
        terminal.type("/reset\n")
        terminal.see("all is forgotten")
        terminal.type("/save said.json\n")
        terminal.see("0 messages")
        terminal.type("/nonsense\n")
        terminal.see("/nonsense is none of")
        terminal.type("/help\n")
        assert "/save FILE" in terminal.see("Ctrl-C ends an answer.")


def test_control_characters_of_a_model_do_not_reach_the_terminal(terminal: Terminal) -> None:
    with terminal:
        terminal.see("> ")
        terminal.type('"""a\x16\x1b]0;title\x16\x07b"""\n')  # Ctrl-V, then the character itself
        terminal.see("A\\x1b]0;TITLE\\x07B")


# Through a pipe, in this process.


def arenite(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["arenite", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[FakeModel]:
    return fake_model.loaded_models(monkeypatch)


def pipe(monkeypatch: pytest.MonkeyPatch, content: str | bytes) -> None:
    content = content.encode() if isinstance(content, str) else content
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def test_through_a_pipe_standard_output_has_the_answers_only(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    pipe(monkeypatch, "hello\n\n/stats\nbye\n")
    assert arenite(monkeypatch, "chat", str(model_file)) == 0
    shown = capsys.readouterr()
    assert shown.out == "HELLO\nBYE\n"
    assert "parrot" in shown.err
    assert models[0].is_closed


def test_the_options_reach_the_model(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    pipe(monkeypatch, "hello\n")
    words = "--context 90 --memory 1GiB --threads 2 --kv float32 --max-tokens 3 --system Speak"
    assert arenite(monkeypatch, "chat", str(model_file), *words.split()) == 0
    assert (models[0].path, models[0].context) == (model_file, 90)
    assert models[0].options == {"memory": "1GiB", "threads": 2, "kv": "float32"}
    shown = capsys.readouterr()
    assert shown.out == "HEL\n"
    assert "(ended after --max-tokens)" in shown.err
    assert bytes(models[0].sessions[0].tokens[1:]).startswith(b"<system>Speak<user>hello")


def test_each_turn_reads_only_what_is_new(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    pipe(monkeypatch, "one\ntwo\n")
    assert arenite(monkeypatch, "chat", str(model_file)) == 0
    assert capsys.readouterr().out == "ONE\nTWO\n"
    (session,) = models[0].sessions
    fed = b"".join(bytes(tokens) for tokens in session.fed if len(tokens) > 1 and max(tokens) < 256)
    assert fed == b"<user>two<assistant>"


def test_a_conversation_outgrows_its_context(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    said = [f"message {k}" for k in range(30)]
    pipe(monkeypatch, "\n".join(said) + "\n")
    assert arenite(monkeypatch, "chat", str(model_file), "--context", "200") == 0
    shown = capsys.readouterr()
    assert shown.out.split("\n") == [*(text.upper() for text in said), ""]
    assert "are left out from now on" in shown.err


def test_a_message_that_can_not_fit_is_refused_and_the_talk_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    pipe(monkeypatch, "x" * 300 + "\nshort\n")
    assert arenite(monkeypatch, "chat", str(model_file), "--context", "200") == 0
    shown = capsys.readouterr()
    assert shown.out == "SHORT\n"
    assert "error: the last message makes" in shown.err


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_bytes_that_are_no_text_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    models: list[FakeModel],
    model_file: Path,
    errors: str,
) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"a\xff\nb\n"), encoding="utf-8", errors=errors)
    monkeypatch.setattr(sys, "stdin", typed)
    assert arenite(monkeypatch, "chat", str(model_file)) == 0
    assert "not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["chat {0}", "generate {0}", "generate {0} Once", "models"])
def test_streams_that_the_caller_closed_are_empty(
    model_file: Path, tmp_path: Path, closed: str, words: str
) -> None:
    command = [sys.executable, "-m", "tests.cli.fake_model", str(tmp_path)]
    line = f"{shlex.join(command)} {words.format(shlex.quote(str(model_file)))} {closed}"
    environment = {**os.environ, "ARENITE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        ["bash", "-c", line], input="hello\n", capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0
    assert "fault" not in done.stderr


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [("> /dev/full", 2, "error: No space left on device\n"), ("| sleep 0", 1, "")],
)
def test_a_conversation_that_nobody_can_hear_ends(
    output: str, code: int, said: str, model_file: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.cli.fake_model", str(tmp_path), "chat", str(model_file)]
    line = f"(sleep 1; yes hello) | {shlex.join(command)} {output}; exit ${{PIPESTATUS[1]}}"
    environment = {**os.environ, "ARENITE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == code
    assert done.stderr.endswith("Ctrl-D leaves\n" + said)


@pytest.mark.parametrize("encoding", ["latin-1", "latin-1:surrogateescape"])
def test_an_answer_goes_to_terminals_that_lack_some_of_its_characters(
    model_file: Path, tmp_path: Path, encoding: str
) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.fake_model", str(tmp_path), "chat", str(model_file)],
        input="caf\xe9\n".encode("latin-1"),
        capture_output=True,
        env=environment,
    )
    assert done.returncode == 0
    # The parrot stumbles over its last character, and U+FFFD for that is not in Latin-1.
    assert done.stdout == b"CAF?\n"


def test_a_line_without_an_end_ends_the_talk(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    monkeypatch.setattr(lines, "MOST_CHARACTERS", 20)
    pipe(monkeypatch, "short\n" + "x" * 25 + "\nmore\n")
    assert arenite(monkeypatch, "chat", str(model_file)) == 2
    shown = capsys.readouterr()
    assert shown.out == "SHORT\n"
    assert shown.err.endswith("standard input has a line of more than 20 characters\n")


def test_a_model_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert arenite(monkeypatch, "chat", "no/such.gguf", "--offline") == 2
    assert "no/such.gguf" in capsys.readouterr().err


def test_an_option_that_makes_no_sense_is_refused_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    assert arenite(monkeypatch, "chat", str(model_file), "--top-p", "7") == 2
    assert "top_p is 7.0" in capsys.readouterr().err
    assert models == []


def test_steps_are_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, models: list[FakeModel], model_file: Path
) -> None:
    screen = io.StringIO()
    shown = Console(file=screen, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    monkeypatch.setattr(manner, "err", shown)
    pipe(monkeypatch, "")
    assert arenite(monkeypatch, "chat", str(model_file)) == 0
    assert "packing 3/7, parrot.gguf" in screen.getvalue()


def test_ctrl_c_is_handled_as_before_after_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    before = signal.getsignal(signal.SIGINT)
    pipe(monkeypatch, "hello\n")
    assert arenite(monkeypatch, "chat", str(model_file)) == 0
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("plain\n", "plain"),
        ("a\\\nb\\\nc\n", "a\nb\nc"),
        ('"""one line"""\n', "one line"),
        ('"""\nx\n\ny\n"""\n', "x\n\ny"),
        ('  """x\\\ny"""  \n', "x\\\ny"),
        ('a """ b\n', 'a """ b'),
    ],
)
def test_what_a_message_is(monkeypatch: pytest.MonkeyPatch, typed: str, message: str) -> None:
    pipe(monkeypatch, typed)
    assert lines.read_message() == message
