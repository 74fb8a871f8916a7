"""`arenite chat`: on a terminal and through a pipe, with a model that echoes."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from arenite.cli import lines, main, output
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


def on_terminal(
    model_file: Path, folder: Path, *options: str, columns: int = 80, kind: str = "dumb"
) -> Terminal:
    environment = {"ARENITE_CACHE_DIR": str(folder / "cache")}
    words = ("-m", "tests.cli.fake_model", str(folder), "chat", str(model_file), *options)
    return Terminal(*words, environment=environment, columns=columns, kind=kind)


def test_a_conversation_is_had_interrupted_gone_on_with_and_left(terminal: Terminal) -> None:
    with terminal:
        before = terminal.see("> ")
        for words in ("parrot.gguf, context 400 tokens", "memory 1 KiB: work 1 KiB", "/help"):
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


def test_an_interrupt_takes_what_is_typed_and_not_the_talk(terminal: Terminal) -> None:
    with terminal:
        terminal.see("> ")
        terminal.type("hello\n")
        terminal.see("HELLO\n")
        terminal.see("> ")
        terminal.interrupt()
        terminal.see("Ctrl-C once more leaves\n")
        for _ in range(2):
            terminal.see("> ")
            terminal.type("half a line")
            terminal.see("half a line")
            terminal.interrupt()
            terminal.see("(Ctrl-D leaves)\n")
        terminal.see("> ")
        terminal.type('"""first\n')
        terminal.see(". ")
        terminal.interrupt()
        terminal.see("(Ctrl-D leaves)\n")
        terminal.see("> ")
        terminal.type("/save said.json\n")
        terminal.see("2 messages are in said.json")


PASTE = 'one\n/plan\nthree \\\n"""\n'


def pasted_into(terminal: Terminal, folder: Path, text: str) -> list[str]:
    """What the person said, once this was pasted and Enter was pressed."""
    with terminal:
        terminal.see("> ")
        terminal.type(text)
        terminal.see("three")
        terminal.type("\n")
        terminal.see("THREE")
        terminal.see("> ")
        terminal.type("/save said.json\n")
        terminal.see("messages are in said.json")
    saved = json.loads((folder / "said.json").read_text())
    return [one["content"] for one in saved["messages"] if one["role"] == "user"]


def test_a_paste_of_many_lines_is_one_message(model_file: Path, tmp_path: Path) -> None:
    terminal = on_terminal(model_file, tmp_path, kind="xterm-256color")
    marked = f"\x1b[200~{PASTE}\x1b[201~"
    assert pasted_into(terminal, tmp_path, marked) == [PASTE.rstrip("\n")]


def test_a_paste_is_one_message_where_the_terminal_does_not_mark_it(
    terminal: Terminal, tmp_path: Path
) -> None:
    assert pasted_into(terminal, tmp_path, "one\n/plan\nthree") == ["one\n/plan\nthree"]


def test_a_paste_is_one_message_without_a_line_editor(model_file: Path, tmp_path: Path) -> None:
    code = (
        "import runpy, sys; sys.modules['readline'] = None; sys.argv = ['x', *sys.argv[1:]]; "
        "runpy.run_module('tests.cli.fake_model', run_name='__main__')"
    )
    terminal = Terminal("-c", code, str(tmp_path), "chat", str(model_file))
    assert pasted_into(terminal, tmp_path, "one\n/plan\nthree") == ["one\n/plan\nthree"]


def test_a_paste_while_an_answer_is_written_waits_as_one_message(
    model_file: Path, tmp_path: Path
) -> None:
    options = ("--max-tokens", "200")
    with on_terminal(model_file, tmp_path, *options, kind="xterm-256color") as terminal:
        terminal.see("> ")
        terminal.type(fake_model.ENDLESS + "\n")
        terminal.see("....")
        terminal.type("\x1b[200~one\ntwo\n\x1b[201~")
        assert "one" not in terminal.see("(ended after --max-tokens)")
        terminal.see("two")
        terminal.type("\n")
        assert "> " not in terminal.see("ONE\nTWO")


def test_answers_that_go_to_a_file_are_all_that_is_in_it(model_file: Path, tmp_path: Path) -> None:
    code = (
        "import os, runpy, sys; "
        "os.dup2(os.open(sys.argv[1] + '/answers', os.O_RDWR | os.O_CREAT), 1); "
        "runpy.run_module('tests.cli.fake_model', run_name='__main__')"
    )
    with Terminal("-c", code, str(tmp_path), "chat", str(model_file)) as terminal:
        terminal.see("> ")
        terminal.type("hello\n")
        terminal.see("> ")
        terminal.interrupt()
        terminal.see("(Ctrl-D leaves)\n")
        terminal.see("> ")
        terminal.type(CTRL_D)
        assert terminal.leave() == 0
    assert (tmp_path / "answers").read_text() == "HELLO\n"


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


def test_a_message_of_many_lines_comes_back_as_one(model_file: Path, tmp_path: Path) -> None:
    with on_terminal(model_file, tmp_path) as first:
        first.see("> ")
        first.type('"""a\\n b\n')
        first.see(". ")
        first.type('c"""\n')
        first.see("A\\N B\nC\n")
        first.see("> ")
        first.type(CTRL_D)
        assert first.leave() == 0
    assert (tmp_path / "cache" / "chat_history").read_text() == "a\\\\n b\\nc\n"
    with on_terminal(model_file, tmp_path) as second:
        second.see("> ")
        second.type(UP + "\n")
        second.see("A\\N B\nC\n")


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
        terminal.see("activations and scratch")
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
        terminal.see("said.json is there already; `/save! said.json` writes in its place")
        assert json.loads((tmp_path / "said.json").read_text()) == saved
        terminal.type("/save! said.json\n")
        terminal.see("0 messages")
        terminal.type("/nonsense\n")
        terminal.see("/nonsense is none of")
        terminal.type("/help\n")
        assert "/save FILE" in terminal.see("Ctrl-C ends an answer.")


def test_commands_are_completed(terminal: Terminal) -> None:
    with terminal:
        terminal.see("> ")
        terminal.type("/sta\t\n")
        terminal.see("nothing was said yet")
        terminal.see("> ")
        terminal.type("/set tempe\t0.25\n")
        terminal.see("temperature  0.25")


#: What acts on a terminal: styles, moves of the cursor, modes.
SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@pytest.mark.parametrize("columns", [40, 80])
def test_lines_are_broken_between_words(columns: int, model_file: Path, tmp_path: Path) -> None:
    words = "the quick brown fox jumps over a lazy dog and so on and so forth to the end".split()
    with on_terminal(model_file, tmp_path, columns=columns, kind="xterm-256color") as terminal:
        terminal.see("> ")
        terminal.type(" ".join(words) + "\n")
        answer = SEQUENCES.sub("", terminal.see("END\n")).partition("THE")
        lines = (answer[1] + answer[2]).splitlines()
        assert " ".join(lines).split() == [word.upper() for word in words]
        assert max(map(len, lines)) <= columns
        for command in ("/plan", "/help", "/set"):
            terminal.see("> ")
            terminal.type(command + "\n")
            terminal.see("\n")
            shown = SEQUENCES.sub("", terminal.see("\n\x1b[?2004h")).splitlines()
            assert len(shown) > 5
            assert max(map(len, shown)) <= columns


def test_markdown_is_shown_where_the_terminal_can(model_file: Path, tmp_path: Path) -> None:
    with on_terminal(model_file, tmp_path, kind="xterm-256color") as terminal:
        terminal.see("> ")
        terminal.type("**a** b\n")
        terminal.see("\x1b[1mA\x1b[0m B")
        terminal.see("> ")
        terminal.type("/set markdown off\n")
        terminal.see("> ")
        terminal.type("**a** b\n")
        terminal.see("**A** B")


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
    assert capsys.readouterr().err.startswith("error: --top-p: ")
    assert arenite(monkeypatch, "chat", str(model_file), "--repetition-penalty", "0") == 2
    assert capsys.readouterr().err.startswith("error: --repetition-penalty is 0.0; a number")
    assert models == []


def test_steps_are_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, models: list[FakeModel], model_file: Path
) -> None:
    screen = io.StringIO()
    shown = Console(file=screen, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    monkeypatch.setattr(output, "err", shown)
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
    ("typed", "message", "is_command"),
    [
        ("plain\n", "plain", False),
        ("a\\\nb\\\nc\n", "a\nb\nc", False),
        ('"""one line"""\n', "one line", False),
        ('"""\nx\n\ny\n"""\n', "x\n\ny", False),
        ('  """x\\\ny"""  \n', "x\\\ny", False),
        ('a """ b\n', 'a """ b', False),
        ("/help\n", "/help", True),
        ('"""/help"""\n', "/help", False),
        ("/a\\\nb\n", "/a\nb", False),
    ],
)
def test_what_a_message_is(
    monkeypatch: pytest.MonkeyPatch, typed: str, message: str, is_command: bool
) -> None:
    pipe(monkeypatch, typed)
    assert lines.Lines().read_message() == (message, is_command)


def test_a_talk_that_was_saved_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    models: list[FakeModel],
    model_file: Path,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    pipe(monkeypatch, "one\n/save said.json\n")
    assert arenite(monkeypatch, "chat", str(model_file), "--system", "Speak") == 0
    pipe(monkeypatch, "lost\n/load said.json\ntwo\n")
    assert arenite(monkeypatch, "chat", str(model_file)) == 0
    told = bytes(t for t in models[1].sessions[0].tokens if t < 256)
    assert told == b"<system>Speak<user>one<assistant>ONE<user>two<assistant>TWO"
    assert "3 messages are loaded from said.json" in capsys.readouterr().err


def test_a_question_that_was_not_answered_is_answered_when_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    file = model_file.with_name("asked.json")
    file.write_text('{"messages": [{"role": "user", "content": "and?"}]}')
    pipe(monkeypatch, f"/load {file}\n")
    assert arenite(monkeypatch, "chat", str(model_file)) == 0
    assert capsys.readouterr().out == "AND?\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is no conversation"),
        ("[" * 100_000, "is no conversation"),
        ('{"messages": 5}', "is no conversation"),
        ('{"messages": [{"role": "user"}]}', "is no conversation"),
        ('{"messages": [{"role": "user", "content": 5}]}', "message 1 has no text"),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "message 1 has no text"),
        ('{"messages": [{"role": "tool", "content": "x"}]}', "message 1 has no text"),
        (
            '{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "x"}]}',
            "message 2 has no text",
        ),
        (None, "No such file"),
        ("fifo", "is no regular file"),
    ],
)
def test_what_is_no_talk_is_not_loaded_and_the_one_before_stays(
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    models: list[FakeModel],
    model_file: Path,
    content: str | None,
    reason: str,
) -> None:
    file = model_file.with_name("said.json")
    if content == "fifo":
        os.mkfifo(file)
    elif content is not None:
        file.write_text(content)
    pipe(monkeypatch, f"one\n/load {file}\ntwo\n")
    assert arenite(monkeypatch, "chat", str(model_file)) == 0
    assert reason in capsys.readouterr().err
    assert b"<user>one<assistant>ONE<user>two" in bytes(
        t for t in models[0].sessions[0].tokens if t < 256
    )


def test_how_tokens_are_chosen_is_shown_changed_and_taken_back(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    said = ["/set max_tokens 2", "hello", "/set max-tokens default", "hello", "/set stop LL"]
    said += [
        "hello",
        "/set top-p 7",
        "/set top-p much",
        "/set nonsense 1",
        "/set",
        "/set markdown x",
    ]
    pipe(monkeypatch, "\n".join(said) + "\n")
    assert arenite(monkeypatch, "chat", str(model_file), "--top-k", "5") == 0
    shown = capsys.readouterr()
    assert shown.out == "HE\nHELLO\nHE\n"
    for line in (
        "max-tokens  2",
        "max-tokens  none (default)",
        "error: top-p is 7.0; a number from 0 to 1 is needed",
        "error: top-p is a number, not 'much'",
        "nonsense can't be set; there are temperature, top-k",
        "error: markdown is on or off, not 'x'",
    ):
        assert line in shown.err
    listed = dict(line.split(maxsplit=1) for line in shown.err.splitlines() if "  " in line)
    assert listed["top-k"] == "5"
    assert listed["top-p"] == "0.95 (default)"


def test_what_the_model_is_told_first_can_be_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, models: list[FakeModel], model_file: Path
) -> None:
    pipe(monkeypatch, "/system Be brief.\nhello\n/system\n")
    assert arenite(monkeypatch, "chat", str(model_file)) == 0
    assert b"<system>Be brief.<user>hello" in bytes(models[0].sessions[0].tokens[1:-1])
    assert capsys.readouterr().err.count("told first: Be brief.") == 2
