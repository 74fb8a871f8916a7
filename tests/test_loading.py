"""`arenite.load` is the one door: what a file is, by its name or its content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import arenite
from arenite.errors import FileMissing, InvalidArgument, InvalidFile
from arenite.generate import budget
from arenite.loading import DEFAULT_BLOCK, kind_of
from arenite.model import Model
from tests.generate.gguf_models import write_tiny
from tests.model.models import network


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    path.write_bytes(network().SerializeToString())
    return path


def test_an_onnx_file_is_a_model_whatever_it_is_called(onnx_file: Path) -> None:
    for path in (onnx_file, onnx_file.rename(onnx_file.with_name("network"))):
        assert kind_of(path) == "onnx"
    assert isinstance(arenite.load(path), Model)
    assert arenite.load(str(path), kind="onnx").inputs.names == ["x"]


def test_a_gguf_file_is_a_language_model_whatever_it_is_called(tmp_path: Path) -> None:
    path = write_tiny("llama", tmp_path)
    other = path.rename(path.with_name("model"))
    with arenite.load(other, context=16, threads=1) as lm:
        assert isinstance(lm, arenite.LanguageModel)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidFile, match=r"a folder and no model.*config\.json"):
        kind_of(tmp_path / "folder")
    (tmp_path / "folder" / "config.json").write_text("{}")
    assert kind_of(tmp_path / "folder") == "language"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "1MiB"}, r"load\(\.\.\.\)\.compile\(memory='1MiB'\)"),
        ({"threads": 2}, r"compile\(threads=2\)"),
        ({"context": 3, "sessions": 2}, "context, sessions are for language models"),
        ({"kv": "int8"}, "kv are for language models"),
        ({"kind": "language"}, "is an ONNX model, and a language model was asked for"),
        ({"kind": "gguf"}, "kind is 'onnx' or 'language'"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    onnx_file: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((InvalidArgument, InvalidFile), match=message):
        arenite.load(onnx_file, **options)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "notes"
    text.write_text("hello, world")
    with pytest.raises(InvalidFile, match=r"begins with b'hello, w'.*ONNX files, GGUF files"):
        arenite.load(text)
    text.write_bytes(b"")
    with pytest.raises(InvalidFile, match="begins with b''"):
        arenite.load(text)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidFile, match="no regular file"):
        arenite.load(pipe)
    with pytest.raises(FileMissing):
        arenite.load(tmp_path / "missing.onnx")


def test_the_usual_block_is_the_language_models() -> None:
    assert DEFAULT_BLOCK == budget.DEFAULT_BLOCK
