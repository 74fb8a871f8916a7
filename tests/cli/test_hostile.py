"""Nothing that a file, a model or a name says acts on a terminal, whatever command shows it.

Names of files and folders, what files have inside, what a model writes and what is typed all hold
sequences that a terminal would obey. The bytes on both standard streams are looked at, on a
terminal and through a pipe.
"""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

import arenite
from arenite.cli import main, output
from arenite.errors import escaped
from arenite.fetch.store import RECORD, folder_name
from arenite.memory import csv_problems
from tests.cli.fake_model import FakeModel
from tests.cli.terminal import Terminal
from tests.generate import gguf_models

#: A title for the window, a question that the terminal answers, the same in one character, text
#: that runs backwards, a line that begins anew, a line that seems ours, styles and links.
HOSTILE = (
    "a\x1b]0;pwned\x07\x1b[6n\x9b6n\u202eb\u2066\rc\nerror: fake\x85\u2028\x7f"
    "[link=x]\x1b]8;;x\x1b\\"
)
FILE_NAME = HOSTILE.replace("/", "-")

#: What consoles themselves send on a terminal: moves of the cursor under a spinner or a bar.
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A|2K)|\r(?=\x1b\[2K|\n)")


class Tty(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile") / FILE_NAME
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> str:
    """A model whose file calls it what the file is called."""
    path = folder / f"{FILE_NAME}.gguf"
    gguf_models.write_model(path, gguf_models.TINY["llama"])
    inside = gguf.GGUFReader(path).fields["general.name"].contents()
    assert "\x1b]0;pwned\x07" in inside
    return str(path)


@pytest.fixture(scope="module")
def embedding_model(folder: Path) -> str:
    path = folder / f"bert{FILE_NAME}.gguf"
    gguf_models.write_model(path, gguf_models.TINY["bert"])
    return str(path)


class FakeEmbeddings(FakeModel):
    name = HOSTILE

    def embed(self, texts: list[str], *, truncate: bool) -> NDArray[np.float32]:
        return np.eye(len(texts), 8, dtype=np.float32)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that say what they are told, whatever files say."""

    def load(path: Path, **options: Any) -> FakeModel:
        options.pop("on_progress")
        return FakeEmbeddings(path, **options)

    monkeypatch.setattr(arenite, "load", load, raising=False)


@pytest.fixture
def own_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = folder / "cache"
    path.mkdir(mode=0o700, exist_ok=True)
    with monkeypatch.context() as patch:
        patch.setenv("ARENITE_CACHE_DIR", str(path))
        yield path


def shown(
    monkeypatch: pytest.MonkeyPatch, *words: str, typed: str = "", is_terminal: bool
) -> tuple[bytes, bytes]:
    """The bytes on standard output and on standard error."""
    kind = Tty if is_terminal else io.TextIOWrapper
    out, err = io.BytesIO(), io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["arenite", *words])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8"))
        patch.setattr(sys, "stdout", kind(out, encoding="utf-8"))
        patch.setattr(sys, "stderr", kind(err, encoding="utf-8", errors="backslashreplace"))
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            with pytest.raises(SystemExit):
                main.run()
        sys.stdout.flush()
        sys.stderr.flush()
        return out.getvalue(), err.getvalue()


def check_harmless(raw: bytes, *, may_have_lines: bool = False) -> None:
    text = OURS.sub("", raw.decode())
    acting = {
        c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\n\t"
    }
    assert acting == set(), text
    assert may_have_lines or not any(line.startswith("error: fake") for line in text.splitlines())


COMMANDS = {
    "plan": ["plan", "{model}"],
    "plan -vv": ["-vv", "plan", "{model}", "--context", "33"],
    "plan --json": ["plan", "{model}", "--json"],
    "plan, too little": ["plan", "{model}", "--memory", "1KiB"],
    "plan, no such": ["plan", "{model}x"],
    "plan --debug": ["--debug", "plan", "{model}x"],
    "plan --html": ["plan", "{model}", "--html", "{folder}/no/{name}"],
    "plan --svg": ["plan", "{model}", "--svg", "{folder}/no/{name}"],
    "generate": ["generate", "{model}", "{lower}", "--chat"],
    "generate --json": ["generate", "{model}", "{lower}", "--chat", "--json"],
    "generate, too long": ["generate", "{model}", "{lower}", "--context", "5"],
    "generate --schema": ["generate", "{model}", "x", "--schema", "{folder}/{name}"],
    "chat, embeddings": ["chat", "{bert}"],
    "embed": ["embed", "{bert}", "{name}", "b"],
    "embed --out": ["embed", "{bert}", "b", "--out", "{folder}/{name}.npy"],
    "embed, text": ["embed", "{model}", "{name}"],
    "pack": ["pack", "{csv}"],
    "pack, too little": ["pack", "{csv}", "--capacity", "5", "--out", "{folder}/{name}.out"],
    "pull": ["pull", "{model}"],
    "pull, no such": ["pull", "{name}"],
    "pull, similar": ["pull", "{model}x"],
    "pull, hub": ["pull", "hf:a/b/{name}"],
    "pull, wheel": ["pull", "pypi:a/{name}"],
    "rm": ["rm", "{name}"],
    "models": ["models"],
    "models --json": ["models", "--json"],
    "tune": ["tune", "linear:4x8x8{name}"],
    "tune --sizes": ["tune", "linear:4x8x8", "--sizes", "{name}"],
    "cache": ["cache", "info"],
    "doctor": ["doctor"],
    "no such command": ["{name}"],
    "no such option": ["plan", "--{name}"],
    "no such value": ["plan", "--context", "{name}"],
}
#: Whose standard output is for programs: as it is through a pipe.
RAW = ("generate", "pull")


@pytest.fixture(scope="module")
def names(folder: Path, model: str, embedding_model: str) -> dict[str, str]:
    csv = folder / f"{FILE_NAME}.csv"
    identifier = HOSTILE.replace("\n", " ").replace("\r", " ")
    csv.write_text(f'id,lower,upper,size\n"{identifier}",0,2,4\nb,1,3,4\n', newline="")
    fetched = folder / "cache" / "models" / folder_name(f"pypi:x/{HOSTILE}")
    fetched.mkdir(parents=True, mode=0o700)
    record = {"schema": 1, "model": f"pypi:x/{HOSTILE}", "licence": HOSTILE, "files": []}
    (fetched / RECORD).write_text(json.dumps(record))
    found = {"model": model, "bert": embedding_model, "name": FILE_NAME, "lower": HOSTILE.lower()}
    return found | {"folder": str(folder), "csv": str(csv)}


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command(
    words: list[str],
    is_terminal: bool,
    names: dict[str, str],
    own_cache: Path,
    models: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = [re.sub(r"\{(\w{2,})\}", lambda found: names[found[1]], word) for word in words]
    out, err = shown(monkeypatch, *given, is_terminal=is_terminal)
    assert out or err
    check_harmless(err)
    is_raw = words[0] in RAW and not is_terminal
    if is_raw and "--json" not in words and out:
        assert b"\x1b]0;" in out  # programs get what there is
    else:
        check_harmless(out)


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
def test_a_chat(
    is_terminal: bool,
    folder: Path,
    names: dict[str, str],
    models: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    line = HOSTILE.replace("\n", " ")
    said = {"messages": [{"role": "user", "content": HOSTILE}]}
    (folder / "said").write_text(json.dumps(said))
    typed = "\n".join(
        [
            f"**hi** {line}",
            "/plan",
            f"/save {line}",
            f"/save {line}",
            f"/load {line}x",
            "/load said",
            f"/{line}",
            f"/set {line}",
            f"/set top-p {line}",
            f"/set stop {line}",
            f"/system {line}",
        ]
    )
    out, err = shown(monkeypatch, "chat", names["model"], typed=typed, is_terminal=is_terminal)
    check_harmless(err)
    if is_terminal:
        check_harmless(out, may_have_lines=True)
    assert "\\x1b]0;pwned\\x07".lower() in (out + err).decode().lower()


def test_what_python_and_libraries_print_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is called by a command: a warning, a log, a print, a fault."""
    import logging

    def broken(*_arguments: object) -> None:
        warnings.warn(f"warned {HOSTILE}", stacklevel=2)
        logging.getLogger("arenite.x").warning("logged %s", HOSTILE)
        logging.getLogger("elsewhere").warning("logged elsewhere")
        print(f"printed {HOSTILE}", file=sys.stderr)
        sys.stderr.writelines([HOSTILE, "\n"])
        output.out.print(f"[bold]{HOSTILE}")
        Console(force_terminal=True).print(HOSTILE)  # of somebody else
        raise ZeroDivisionError(HOSTILE)

    monkeypatch.setattr(csv_problems, "read_csv", broken)
    for words in (["pack", "x"], ["--debug", "pack", "x"]):
        out, err = shown(monkeypatch, *words, is_terminal=True)
        check_harmless(out, may_have_lines=True)
        check_harmless(err, may_have_lines=True)
        text = " ".join(err.decode().split())  # long lines are broken between words
        for kind in ("warning: warned a\\x1b", "warning: logged a\\x1b"):
            assert text.count(kind) == 1
        assert text.count("error: a fault in Arenite: ZeroDivisionError: a\\x1b") == 1


def test_a_real_terminal(names: dict[str, str], own_cache: Path) -> None:
    with Terminal("-m", "arenite.cli.main", "plan", names["model"]) as terminal:
        seen = terminal.see("largest")
        assert terminal.leave() == 0
    check_harmless(seen.replace("\r\n", "\n").encode())
    assert "\\x1b]0;pwned" in seen


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 日本 👍\n\tx", "plain é 日本 👍\n\tx"),
        ("👩\u200d🚀 क्\u200cष", "👩\u200d🚀 क्\u200cष"),  # joiners belong to writing
        ("\x1b[31m\x00\x7f\x9b", "\\x1b[31m\\x00\\x7f\\x9b"),
        ("\r\x0b\x0c\x08", "\\r\\x0b\\x0c\\x08"),
        ("\u202e\u2066\u200f\u061c\ufeff", "\\u202e\\u2066\\u200f\\u061c\\ufeff"),
        ("\u2028\u2029\x85", "\\u2028\\u2029\\x85"),
        ("\ud800\udcff", "\\ud800\\udcff"),
        ("\U000e0041", "\\U000e0041"),  # tags: text that nobody sees
    ],
)
def test_what_is_spelled_out(text: str, expected: str) -> None:
    assert escaped(text) == expected
    assert escaped(escaped(text)) == escaped(text)
