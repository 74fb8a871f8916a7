"""`arenite tune`: what it prints and returns, and that what it finds is kept."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import arenite
from arenite.cli import main, output, shapes
from arenite.errors import InvalidArgument
from arenite.model import Model
from arenite.pipeline import choices, tune
from arenite.pipeline.choices import KernelTimes, Times
from arenite.pipeline.tuning import KernelTuning, Tuning
from tests.generate.gguf_models import write_tiny
from tests.model.models import network

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def short(own_choices: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Races are short, and choices do not stay."""
    monkeypatch.setattr(tune, "RACE_SECONDS", 0.0)
    monkeypatch.setattr(tune, "ROUNDS", tune.FIRST_ROUNDS)
    yield
    for content in choices.all_choices():
        choices.keep_choice(content, None)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["arenite", "tune", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_what_was_tried_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert run(monkeypatch, "linear:20x64x96", "--threads", "2") == 0
    shown = capsys.readouterr()
    assert "µs, 1 thread  µs, 2 threads" in shown.out
    assert "usual" in shown.out
    assert "kernels tried: 1" in shown.out
    assert shown.err == ""


def test_onnx_models_are_tuned_for_the_sizes_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = tmp_path / "network.onnx"
    path.write_bytes(network().SerializeToString())
    line = [str(path), "--dim", "batch=20", "--threads", "1", "--json"]
    assert run(monkeypatch, *line) == 0, capsys.readouterr().err
    [tuned] = json.loads(capsys.readouterr().out)["tuned"]
    kernels = Model.open(path).compile(batch=20, threads=1).kernels
    assert {one["kernel"] for one in tuned["tried"]} <= {one.entry_point for one in kernels}
    assert tuned["tried"]


def test_another_device_is_not_tuned_as_the_cpu_is(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for device in ("c", "webgpu"):
        assert run(monkeypatch, "matmul:100x64x96", "--device", device) == 0
        assert "nothing to tune" in capsys.readouterr().out
    assert run(monkeypatch, "matmul:100x64x96", "--device", "abacus") == output.EXIT_BAD_INPUT
    assert "no program runs on device 'abacus'" in capsys.readouterr().err


def test_json_has_every_layer(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    layers = ["matmul:2x20x64x96", "conv:16x9x9/32x3x3/s2/g2"]
    assert run(monkeypatch, *layers, "--json", "--threads", "1") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["schema"], result["kind"]) == (1, "arenite.tune")
    assert [one["name"] for one in result["tuned"]] == layers
    for one in result["tuned"]:
        assert one["conditions"] == ["1 thread"]
        assert sum(row["is_usual"] for row in one["tried"]) == 1
        assert sum(row["is_chosen"] for row in one["tried"]) == 1
        assert all(row["seconds"][0] > 0 and row["is_same"] for row in one["tried"])


def test_what_is_found_is_for_programs(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """Some way is made out to be the fastest; the function is then cut so."""
    monkeypatch.setattr(tune._Search, "_score", lambda self, choice: float("tile 8x" not in choice))
    monkeypatch.setattr(tune._Search, "_holds", lambda self, choice: True)
    assert run(monkeypatch, "matmul:100x64x96", "--json", "--threads", "1") == 0
    [tuned] = json.loads(capsys.readouterr().out)["tuned"]
    [choice] = tuned["choices"].values()
    assert "tile 8x" in choice
    # As a test in another process that shares the cache does when it is over.
    code = "from arenite.pipeline.choices import *; [keep_choice(c, None) for c in all_choices()]"
    subprocess.run([sys.executable, "-c", code], check=True)
    a, b = np.ones((100, 64), np.float32), np.ones((64, 96), np.float32)
    with arenite.compile(lambda x, y: x @ y, a, b) as program:
        assert choices.choices_of(program.executable.graph) == tuned["choices"]
        assert (program(a, b) == 64).all()


def test_no_time_is_no_result(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert run(monkeypatch, "linear:21x64x96", "linear:22x64x96", "--seconds", "0") == 0
    assert capsys.readouterr().out.count("no time for 1 more") == 2


def test_what_was_measured_before_an_interrupt_is_shown_and_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    real, calls = tune._Search.result, []

    def second_is_interrupted(search: tune._Search) -> KernelTimes:
        calls.append(search)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(search)

    monkeypatch.setattr(tune._Search, "result", second_is_interrupted)
    layers = [f"linear:{rows}x64x96" for rows in (31, 32, 33)]
    assert run(monkeypatch, *layers, "--threads", "1") == output.EXIT_INTERRUPTED
    shown = capsys.readouterr()
    assert "kernels tried: 1" in shown.out
    assert "no time for 1 more" in shown.out
    assert layers[2] not in shown.out
    assert "interrupted" in shown.err
    assert run(monkeypatch, layers[0], "--threads", "1", "--seconds", "0") == 0
    assert "kernels tried: 1" in capsys.readouterr().out
    assert len(calls) == 2


def test_a_cache_that_cannot_be_written_is_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path))
    assert run(monkeypatch, "linear:24x64x96") == output.EXIT_BAD_INPUT
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "what tuning finds can't be kept: others may write" in " ".join(shown.err.split())


def test_a_cache_that_becomes_unwritable_is_said_after_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "cache"))
    real = tune._Search.result

    def result(search: tune._Search) -> KernelTimes:
        shutil.rmtree(tmp_path / "cache")
        return real(search)

    monkeypatch.setattr(tune._Search, "result", result)
    assert run(monkeypatch, "linear:26x64x96", "--threads", "1", "--json") == output.EXIT_BAD_INPUT
    shown = capsys.readouterr()
    [tuned] = json.loads(shown.out)["tuned"]
    assert tuned["tried"]
    assert "what tuning finds can't be kept" in " ".join(shown.err.split())


def test_a_bar_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(output, "err", Console(file=screen, force_terminal=True, width=80))
    assert run(monkeypatch, "linear:23x64x96", "--threads", "1") == 0
    assert "measuring matmul" in screen.getvalue()
    first = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).lstrip().splitlines()[0]
    assert first.startswith("looking for kernels")


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_what_was_tried_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """The same is seen at any width: every way, with every time."""
    tried = [
        KernelTuning("matmul_panels_1", 30, f"tile {k}x96, parts 1x1, b copied",
                     (1e-6 * k, 2.5e-6), 0.93, "float32", k == 4, k == 5, k != 6)
        for k in (4, 5, 6)
    ]  # fmt: skip
    made = Tuning(
        tuple(tried), {"x": "y"}, ("tokens 128, 1 thread", "tokens 128, 2 threads"), 2, 3.5
    )
    monkeypatch.setattr("arenite.pipeline.tune.tune_graph", lambda *given, **named: made)
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(output, "out", terminal)
    assert run(monkeypatch, "linear:27x64x96") == 0
    shown = screen.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    words = " ".join(shown.split())
    for one in tried:
        assert one.choice in words
    told = ["matmul_panels_1", "4.000", "5.000", "6.000", "93% float32", "usual", "chosen"]
    for word in (*told, "other bits", "no time for 2 more", "cut in another way now: 1"):
        assert word in words


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["matmul:12"], "is no layer: write matmul:"),
        (["matmul:0x1x1"], "is no layer"),
        (["matmul:1x2x3/4"], "is no layer"),
        (["linear:1x2"], "is no layer"),
        (["conv:3x8x8"], "is no layer"),
        (["conv:3x8x8/8x3"], "is no layer"),
        (["conv:3x8x8/8x3x3/z2"], "is no layer"),
        (["conv:3x8x8/8x3x3/g2"], "is no layer"),
        (["matmul:99999x99999x99999"], "more than"),
        (["matmul:1\u0661x2x3"], "is no layer"),
        (["linear:25x64x96", "matmul:12"], "is no layer"),
        (["linear:4x8x8", "--sizes", "rows"], "gives no sizes"),
        (["linear:4x8x8", "--sizes", "rows=1"], "no size is called rows; there are: none"),
        (["no/such/file.gguf", "--offline"], "no/such/file.gguf"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, arguments: list[str], said: str
) -> None:
    assert run(monkeypatch, *arguments) == output.EXIT_BAD_INPUT
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in " ".join(shown.err.split())
    assert shown.err.startswith("error: ")


def test_layers_compute_what_they_say() -> None:
    function, [shape] = shapes.layer("conv:4x6x5/8x3x3/s2")
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with arenite.compile(function, x) as program:
        assert program(x).shape == (1, 3, 3, 8)
    function, given = shapes.layer("matmul:3x4x5x6")
    a, b = (np.ones(shape, np.float32) for shape in given)
    with arenite.compile(function, a, b) as program:
        assert (program(a, b) == a @ b).all()
    with pytest.raises(InvalidArgument):
        shapes.layer("linear:")


def test_a_language_model_is_tuned_and_says_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    path = write_tiny("llama-q8_0", tmp_path)

    def logits() -> list[bytes]:
        with arenite.load(path, context=64) as model:
            session = model.session()
            return [session.feed(tokens).tobytes() for tokens in ([5, 9, 2] * 7, [11], [3, 4])]

    before = logits()

    def second(search: tune._Search) -> KernelTimes:
        """Whatever would be measured, the second way of each kernel is chosen."""
        return KernelTimes(search._choices[1], dict.fromkeys(search._choices[:2], Times((1e-6,))))

    monkeypatch.setattr(tune._Search, "result", second)
    options = ["--context", "64", "--sizes", "tokens=5", "--threads", "1", "--json"]
    assert run(monkeypatch, str(path), *options) == 0
    [tuned] = json.loads(capsys.readouterr().out)["tuned"]
    assert tuned["conditions"] == ["tokens 5, 1 thread"]
    assert len(tuned["choices"]) >= 3
    assert logits() == before
