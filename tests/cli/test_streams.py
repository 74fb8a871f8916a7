"""Standard streams that can't be written to: one line where somebody reads it, and an exit code."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent.parent.parent / "bench/data/minimalloc/examples/input.12.csv"
FULL = "error: No space left on device\n"


def arenite(words: str, streams: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell, with streams as Python has them unless it is told otherwise."""
    command = shlex.join([sys.executable, "-m", "arenite.cli.main", *words.split()])
    environment = os.environ | {"ARENITE_CACHE_DIR": str(folder / "cache")}
    environment.pop("PYTHONUNBUFFERED", None)
    line = f"{command} {streams}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        ("> /dev/full", 2, FULL),
        ("> /dev/full 2> /dev/full", 2, ""),
        ("> /dev/full 2>&-", 2, ""),
        ("| true", 1, ""),
    ],
)
@pytest.mark.parametrize("words", ["--version", "models --json", "models", "--help"])
def test_a_result_that_can_not_be_written_is_told_once(
    words: str, streams: str, code: int, said: str, tmp_path: Path
) -> None:
    done = arenite(words, streams, tmp_path)
    assert (done.returncode, done.stderr) == (code, said)


def test_errors_that_nobody_reads_keep_their_exit_code(tmp_path: Path) -> None:
    assert arenite("plan no/such.gguf --offline", "2> /dev/full", tmp_path).returncode == 2
    assert arenite("plan --nonsense", "2> /dev/full", tmp_path).returncode == 2


def test_a_picture_on_a_full_disk_is_named(tmp_path: Path) -> None:
    done = arenite(f"pack {SAMPLE} --svg /dev/full", "", tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: /dev/full: No space left on device\n")


def test_names_that_are_no_text_are_printed_as_they_are(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.gguf"
    Path(os.fsdecode(name)).write_bytes(b"GGUF")
    command = [os.fsencode(sys.executable), *b"-m arenite.cli.main pull".split(), name]
    assert subprocess.run(command, capture_output=True, check=True).stdout == name + b"\n"


#: The command, with Ctrl-C while its parts are imported.
INTERRUPTED = """
import builtins, os, signal, sys
from arenite.cli import main

signal.signal(signal.SIGINT, {handler})
imported = builtins.__import__

def interrupted(name, *given, **named):
    if name == "typer":
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, *given, **named)

builtins.__import__ = interrupted
sys.argv = ["arenite", "--version"]
main.run()
"""


@pytest.mark.parametrize(
    ("handler", "code"),
    [("signal.default_int_handler", -signal.SIGINT), ("signal.SIG_IGN", 0)],
    ids=["heard", "ignored"],
)
def test_ctrl_c_while_it_starts_ends_it_without_a_word(handler: str, code: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(handler=handler)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
