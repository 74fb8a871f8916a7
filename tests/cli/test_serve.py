"""`arenite serve`: what it refuses before it loads anything. What it answers: tests/serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_onnx import Captured, refused
from tests.generate.gguf_models import write_tiny


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--host", "0.0.0.0"], "no API key keeps them out"),
        (["--host", "not a host", "--open"], "can't listen on not a host"),
        (["--port", "70000"], "--port"),
        (["--slots", "0"], "--slots"),
        (["--api-keys", "/nowhere/keys"], "/nowhere/keys"),
        (["--max-body", "much"], "much"),
        (["--dim", "batch=2"], "--dim is for ONNX models"),
        (["--context", "100000"], "100000"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    options: list[str], what: str, tmp_path: Path, capsys: Captured
) -> None:
    path = write_tiny("llama", tmp_path)
    assert what in refused(capsys, "serve", path, "--port", "0", *options)


def test_a_file_of_keys_must_have_some(tmp_path: Path, capsys: Captured) -> None:
    empty = tmp_path / "keys"
    empty.write_text("\n \n")
    assert "lines of ASCII" in refused(capsys, "serve", "any", "--api-keys", empty)
