"""`arenite show`: models and traces become pages; what makes no sense is refused."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from arenite.cli import output
from arenite.model import Model
from tests.backends.webgpu.runner import webgpu
from tests.cli.test_onnx import Captured, arenite, refused
from tests.generate.gguf_models import write_tiny
from tests.model.models import network
from tests.show.test_page import Elements


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "network.onnx"
    file.write_bytes(network().SerializeToString())
    return file


def data_of(file: Path) -> dict[str, Any]:
    """What a page has in it."""
    found: dict[str, Any] = json.loads(
        Elements(file.read_text(encoding="utf-8")).texts["script"][0]
    )
    return found


def test_an_onnx_model_becomes_a_page(path: Path, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "page.html"
    assert arenite("show", path, "-o", file, "--dim", "batch=4") == 0
    assert str(file) in capsys.readouterr().out.replace("\n", "")
    data = data_of(file)
    assert data["title"] == "network.onnx"
    assert data["trace"] is None
    [program] = data["programs"]
    assert program["plan"]["total"] == Model.open(path).plan(batch=4).total_nbytes
    with Model.open(path).compile(batch=4) as compiled:
        names = [one.entry_point for one in compiled.kernels]
    assert [one["name"] for one in program["kernels"] if not one["atLoad"]] == names
    # A size that is not given is 1.
    assert arenite("show", path, "-o", file) == 0
    assert data_of(file)["programs"][0]["plan"]["total"] == Model.open(path).plan().total_nbytes


def test_a_profile_and_a_saved_trace_show_the_same_kernels(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, trace = tmp_path / "page.html", tmp_path / "run.json"
    assert (
        arenite("show", path, "-o", file, "--profile", "-i", "x=random:2x8", "--dim", "batch=2")
        == 0
    )
    profiled = data_of(file)
    assert profiled["trace"]["bars"]
    assert arenite("profile", path, "-i", "x=random:2x8", "--trace", trace) == 0
    monkeypatch.chdir(tmp_path)
    assert arenite("show", trace) == 0
    data = data_of(tmp_path / "run.json.show.html")
    assert data["programs"] == []
    assert {one["name"] for one in data["trace"]["kernels"]} == {
        one["name"] for one in profiled["trace"]["kernels"]
    }


def test_a_language_model_becomes_a_page(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_tiny("llama", tmp_path)
    started: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: started.append(url))
    file = tmp_path / "page.html"
    options = ["--context", 64, "--profile", "--tokens", 3]
    assert arenite("show", model, "-o", file, "--open", *options) == 0
    assert started == [file.as_uri()]
    assert "no browser here" in " ".join(capsys.readouterr().err.split())
    data = data_of(file)
    [program] = data["programs"]
    regions = {one["name"]: one["nbytes"] for one in program["plan"]["regions"]}
    # Two layers of keys and of values: tokens, heads, elements of two bytes.
    assert regions["state"] == 2 * 2 * 64 * 2 * 32 * 2
    names = {one["name"] for one in program["kernels"]}
    assert {one["name"] for one in data["trace"]["kernels"]} <= names
    assert "up to 64 tokens" in refused(capsys, "show", model, "--context", 64, "--tokens", 65)
    assert "--dim can't be given" in refused(capsys, "show", model, "--dim", "a=1")


def test_another_device_is_shown_too(path: Path, tmp_path: Path) -> None:
    webgpu()
    file = tmp_path / "page.html"
    assert arenite("show", path, "-o", file, "--device", "webgpu", "--profile") == 0
    data = data_of(file)
    assert ["device", "webgpu"] in data["facts"]
    assert data["trace"]["bars"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--context", 8], "--context can't be given"),
        (["--tokens", 8], "--tokens can't be given"),
        (["--dim", "x"], "write NAME=SIZE"),
        (["--dim", "depth=3"], "no size 'depth'"),
        (["-o", "missing/page.html"], "missing/page.html"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(
    path: Path, capsys: Captured, arguments: list[object], message: str
) -> None:
    assert message in refused(capsys, "show", path, *arguments)


def test_what_is_no_trace_is_refused(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "trace.json"
    file.write_text('  {"traceEvents": []}')
    assert "no complete event" in refused(capsys, "show", file)
    assert "--dim, --threads can't be given" in refused(
        capsys, "show", file, "--dim", "a=1", "--threads", 2
    )
    file.write_bytes(b'{"\xff')
    assert "is not JSON" in refused(capsys, "show", file)
    assert arenite("show", tmp_path / "nothing.json") == output.EXIT_BAD_INPUT
