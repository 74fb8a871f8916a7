"""`arenite info`, `plan` and `run` of ONNX models that lie: one line of an error, and nothing that
acts on a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from arenite.cli import output
from tests.cli.test_onnx import Captured, arenite, refused
from tests.frontends.onnx.test_hostile import LIES, looping
from tests.model.models import INT64, made, node, tensor

EVIL = "\x1b[31m\x1b]0;title\x07\x9b2J\r\n"


def evil() -> ModelProto:
    """A model in which whatever may have text has such as acts on terminals."""
    one = node("Neg", "x", "y")
    one.input[0], one.output[0], one.name = f"x{EVIL}", f"y{EVIL}", f"n{EVIL}"
    proto = made([one], [tensor(f"x{EVIL}", [2])], [tensor(f"y{EVIL}", [2])])
    proto.producer_name = proto.producer_version = proto.domain = proto.doc_string = EVIL
    proto.graph.name = proto.graph.doc_string = EVIL
    proto.metadata_props.add(key=f"k{EVIL}", value=EVIL)
    return proto


def saved(folder: Path, proto: ModelProto) -> Path:
    file = folder / "model.onnx"
    file.write_bytes(proto.SerializeToString())
    return file


@pytest.mark.parametrize("command", ["info", "plan", "run"])
def test_nothing_in_a_file_acts_on_the_terminal(
    command: str, tmp_path: Path, capsys: Captured
) -> None:
    assert arenite(command, saved(tmp_path, evil())) == 0
    shown = capsys.readouterr()
    text = (shown.out + shown.err).replace("\n", "").replace("\r", "")
    assert text.isprintable()
    assert "\\x1b[31m" in text


LOUD: dict[str, Callable[[], ModelProto]] = {
    name: LIES[name][0]
    for name in (
        "a version below all", "two versions of one set", "functions that call each other",
        "loops in loops", "a loop of 2^62 trips", "a product of sizes over 64 bits",
        "a sparse index twice", "a sum over 100,000 letters", "an expression of 10^9 states",
        "negative repeats", "an escape in a name",
    )
}  # fmt: skip


@pytest.mark.parametrize("lie", LOUD)
def test_a_lie_is_one_line(lie: str, tmp_path: Path, capsys: Captured) -> None:
    assert arenite("plan", saved(tmp_path, LOUD[lie]())) == output.EXIT_BAD_INPUT
    [*_, line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert len(line) < 2000
    assert line.isprintable()


def test_an_index_outside_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    proto = made([node("Gather", "x i", "y")], [tensor("x", [4]), tensor("i", [3], INT64)],
                 [tensor("y", [3])])  # fmt: skip
    file = saved(tmp_path, proto)
    assert "an index is outside its axis" in refused(capsys, "run", file, "-i", "i=[0, 7, 1]")
    assert arenite("run", file, "-i", "i=[0, -4, 3]") == 0


def test_a_long_loop_ends_by_an_interrupt(tmp_path: Path) -> None:
    """10^12 iterations are allowed, and take days."""
    file = saved(tmp_path, looping(10**12))
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    arguments = ["run", str(file), "-i", f"x={tmp_path / 'x.npy'}"]
    # A shell that starts tests in the background has them ignore interrupts, and what they start.
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[1:] = {arguments!r}
from arenite.cli.main import run
run()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, env=os.environ, text=True
    )
    used = 0.0
    while used < 3 and process.poll() is None:  # seconds of processor time: it is in the loop then
        time.sleep(0.2)
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "interrupted" in errors
