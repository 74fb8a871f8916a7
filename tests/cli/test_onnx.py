"""`arenite info`, `plan`, `run`, `profile` and `bench` of ONNX models."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arenite.cli import main, output
from arenite.model import Model
from tests.backends.webgpu.runner import webgpu
from tests.generate.gguf_models import write_tiny
from tests.model.models import INT64, judged, made, network, node, tensor, weights

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "network.onnx"
    file.write_bytes(network().SerializeToString())
    return file


def arenite(*arguments: object) -> int:
    """Run the command in this process; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["arenite", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main.run()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def told(capsys: Captured, *arguments: object) -> dict[str, Any]:
    """What --json prints."""
    assert arenite(*arguments, "--json") == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: Captured, *arguments: object) -> str:
    assert arenite(*arguments) == output.EXIT_BAD_INPUT
    return " ".join(capsys.readouterr().err.split())


def test_info_says_what_goes_in_and_out(path: Path, capsys: Captured) -> None:
    found = told(capsys, "info", path)
    assert (found["kind"], found["format"], found["sizes"]) == ("arenite.info", "onnx", ["batch"])
    assert found["inputs"] == [
        {"name": "x", "type": "float32", "shape": ["batch", 8], "required": True}
    ]
    assert found["operator_sets"] == {"": 17}
    assert arenite("info", path) == 0
    out = capsys.readouterr().out
    assert "[batch, 8]" in out
    assert "3 nodes" in out


def test_info_is_for_language_models_too(tmp_path: Path, capsys: Captured) -> None:
    found = told(capsys, "info", write_tiny("llama", tmp_path))
    assert (found["format"], found["architecture"]) == ("gguf", "llama")


def test_plan_takes_sizes_and_a_budget(path: Path, capsys: Captured) -> None:
    found = told(capsys, "plan", path, "--dim", "batch=1..8")
    made = Model.open(path).plan(batch="1..8")
    assert found["total_nbytes"] == made.total_nbytes == sum(found["regions"].values())
    assert found["sizes"] == {"batch": "1..8"}
    assert arenite("plan", path) == 0
    assert "batch 1 (not given)" in capsys.readouterr().out
    assert arenite("plan", path, "--dim", "batch=64", "--memory", "1KiB") == output.EXIT_NO
    assert "least memory known to work" in " ".join(capsys.readouterr().err.split())
    least = told(capsys, "plan", path, "--dim", "batch=64")["total_nbytes"]
    budget = ("--dim", "batch=64", "--memory", least // 2, "--json")
    assert arenite("plan", path, *budget) == output.EXIT_NO
    answer = json.loads(capsys.readouterr().out)
    assert (answer["fits"], answer["memory"]) == (False, least // 2)
    assert least // 2 < answer["least_nbytes"] <= least


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim", "batch"], "--dim batch: write NAME=SIZE"),
        (["--dim", "batch=x"], "size 'batch' is a number or a range"),
        (["--dim", "rows=3"], "no size 'rows' to be said; there are batch"),
        (["--dim", "batch=1", "--dim", "batch=2"], "--dim batch was given twice"),
        (["--context", "3"], "--context are for language models"),
        (["--device", "nothing"], "no program runs on device 'nothing'; there are"),
    ],
)
def test_plan_refuses_in_one_line(
    path: Path, capsys: Captured, arguments: list[str], message: str
) -> None:
    assert message in refused(capsys, "plan", path, *arguments)


def test_plan_takes_inputs_that_decide_structure(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "sum.onnx"
    inputs = [tensor("x", [4, 6]), tensor("axes", [1], INT64)]
    nodes = [node("ReduceSum", "x axes", "y", keepdims=0)]
    file.write_bytes(made(nodes, inputs, [tensor("y", None)]).SerializeToString())
    assert "on the command line --input" in refused(capsys, "plan", file)
    sizes = [told(capsys, "plan", file, "-i", f"axes=[{axis}]")["total_nbytes"] for axis in (0, 1)]
    plans = [Model.open(file).plan(values={"axes": [axis]}) for axis in (0, 1)]
    assert sizes == [plan.total_nbytes for plan in plans]


def test_plan_is_for_the_device_that_is_named(path: Path, capsys: Captured) -> None:
    found = told(capsys, "plan", path, "--device", "c")
    assert found["total_nbytes"] == Model.open(path).plan(device="c").total_nbytes


def test_show_says_which_sizes_were_taken_for_one(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "conv.onnx"
    nodes = [node("Conv", "x w", "y")]
    content = made(nodes, [tensor("x", [1, 3, "n"])], [tensor("y", None)], {"w": weights(2, 3, 5)})
    file.write_bytes(content.SerializeToString())
    page = tmp_path / "page.html"
    message = refused(capsys, "show", file, "-o", page)
    assert "not given are 1, here n: give what is too small, as NAME=SIZE" in message
    assert arenite("show", file, "-o", page, "--dim", "n=9") == 0


def test_run_takes_sizes_by_the_names_of_the_file(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "named.onnx"
    content = made([node("Relu", "x", "y")], [tensor("x", ["batch-size"])], [tensor("y", None)])
    file.write_bytes(content.SerializeToString())
    for name in ("batch-size", "batch_size"):
        [result] = told(capsys, "run", file, "--dim", f"{name}=3")["outputs"]
        assert result["shape"] == "[3]"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_file_that_can_not_be_written_is_named(path: Path, capsys: Captured) -> None:
    for arguments in (["show", path], ["run", path, "--dim", "batch=1"]):
        message = refused(capsys, *arguments, "--output", "/dev/full")
        assert "/dev/full: No space left on device" in message


def test_run_makes_scalars_up(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "scalar.onnx"
    nodes = [node("Mul", "x rate", "y")]
    content = made(nodes, [tensor("x", [3]), tensor("rate", [])], [tensor("y", [3])])
    file.write_bytes(content.SerializeToString())
    [result] = told(capsys, "run", file)["outputs"]
    assert result["shape"] == "[3]"


def test_an_input_of_any_shape_may_be_a_number(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "open.onnx"
    content = made([node("Exp", "x", "y")], [tensor("x", None)], [tensor("y", None)])
    file.write_bytes(content.SerializeToString())
    assert "give it, --input x=1 for a number" in refused(capsys, "run", file)
    assert arenite("run", file, "--input", "x=1") == 0


def test_run_writes_what_the_reference_gives(path: Path, tmp_path: Path, capsys: Captured) -> None:
    x, out = weights(3, 8), tmp_path / "y.npz"
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "all.npz", x=x)
    wanted = judged(network(), {"x": x})["y"]
    for given in (f"x={tmp_path / 'x.npy'}", str(tmp_path / "all.npz"), f"x={x.tolist()}"):
        found = told(capsys, "run", path, "--input", given, "--output", out, "--threads", 1)
        assert found["outputs"][0]["shape"] == "[3, 5]"
        assert found["planned_nbytes"] > 0
        with np.load(out) as saved:
            np.testing.assert_allclose(saved["y"], wanted, rtol=1e-4, atol=1e-5)
        out.unlink()


def test_run_profile_and_bench_on_a_gpu(path: Path, tmp_path: Path, capsys: Captured) -> None:
    webgpu()
    x, out = weights(3, 8), tmp_path / "y.npz"
    np.save(tmp_path / "x.npy", x)
    where = ["-i", f"x={tmp_path / 'x.npy'}", "--device", "webgpu"]
    assert told(capsys, "run", path, *where, "--output", out)["device"] == "webgpu"
    assert arenite("run", path, *where) == 0
    shown = capsys.readouterr().out
    assert " on webgpu" in shown
    assert "threads" not in shown
    with np.load(out) as saved:
        np.testing.assert_allclose(
            saved["y"], judged(network(), {"x": x})["y"], rtol=1e-4, atol=1e-5
        )
    names = [kernel["name"] for kernel in told(capsys, "profile", path, *where)["kernels"]]
    assert any("transfer" in name for name in names)
    assert told(capsys, "bench", path, *where, "--turns", 1, "--seconds", 0.01)["sides"]
    assert "nowhere" in refused(capsys, "run", path, *where[:3], "nowhere")


def test_what_a_gpu_leaves_to_the_cpu_is_told(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = webgpu()
    monkeypatch.setattr(gpu, "limits", gpu.limits._replace(turns=50))
    proto = made(
        [node("Neg", "x", "z"), node("ScatterElements", "z places updates", "y")],
        [tensor("x", [83])],
        [tensor("y", [83])],
        {"places": np.arange(83)[::-1], "updates": np.ones(83, np.float32)},
    )
    path = tmp_path / "long.onnx"
    path.write_bytes(proto.SerializeToString())
    found = told(capsys, "run", path, "--device", "webgpu", "--threads", 2)
    assert (found["device"], found["runs_on"]) == ("webgpu", "webgpu and 2 threads")
    assert "after 50 turns" in found["on_cpu"]["scatter_elements"]
    assert arenite("run", path, "--device", "webgpu", "--threads", 2) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "on webgpu and 2 threads" in shown
    assert "on the CPU scatter_elements" in shown
    why = refused(capsys, "plan", path, "--device", "webgpu")
    assert "no one program on device 'webgpu'" in why
    assert "after 50 turns" in why
    assert arenite("plan", path) == 0


def test_run_makes_inputs_up(path: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "y.npz"
    for arguments in (["--input", "x=random:4x8"], ["--dim", "batch=4"]):
        assert arenite("run", path, *arguments, "-o", out, "--repeat", 2, "--seed", 5) == 0
        x = np.random.default_rng(5).standard_normal((4, 8)).astype(np.float32)
        with np.load(out) as saved:
            wanted = judged(network(), {"x": x})["y"]
            np.testing.assert_allclose(saved["y"], wanted, rtol=1e-4, atol=1e-5)
    assert "best run" in capsys.readouterr().out


def test_run_makes_integers_up_within_bounds(tmp_path: Path, capsys: Captured) -> None:
    proto = made([node("Add", "i i", "j")], [tensor("i", ["n"], INT64)], [tensor("j", None, INT64)])
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    out = tmp_path / "j.npz"
    assert arenite("run", tmp_path / "m.onnx", "-i", "i=random:200:5..9", "-o", out) == 0
    with np.load(out) as saved:
        assert set(saved["j"].tolist()) == {10, 12, 14, 16, 18}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give it, --input x=random:4x8 say, or its sizes, --dim batch=4"),
        (["-i", "z=1"], "no 'z'; there are x"),
        (["--dim", "rows=3"], "no size 'rows' to be said; there are batch"),
        (["--dim", "batch=0x"], "size 'batch' is a number or a range"),
        (["-i", "x"], "--input x: write NAME=FILE.npy"),
        (["-i", "x=random:3xx"], "write random:1x3x224x224"),
        (["-i", "x=random:99999999x99999999"], "random numbers"),
        (["-i", "x=nothing.npy"], "nothing.npy"),
        (["-i", "x={"], "no number or list as JSON has it"),
        (["-i", "x=random:2x3"], "'x' is float32[batch, 8], and an array of shape (2, 3)"),
        (["-i", "x=random:1x8", "--memory", "a"], "is no size in bytes"),
    ],
)
def test_run_refuses_in_one_line(
    path: Path, capsys: Captured, arguments: list[str], message: str
) -> None:
    assert message in refused(capsys, "run", path, *arguments)


def test_a_file_that_is_no_array_is_refused(path: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "x.npy").write_bytes(b"no array")
    assert "is no file of NumPy" in refused(capsys, "run", path, "-i", f"x={tmp_path / 'x.npy'}")


def test_profile_names_kernels(path: Path, tmp_path: Path, capsys: Captured) -> None:
    trace = tmp_path / "trace.json"
    found = told(capsys, "profile", path, "-i", "x=random:2x8", "--trace", trace)
    assert found["kernels"]
    assert json.loads(trace.read_text())["traceEvents"]
    assert arenite("profile", path, "-i", "x=random:2x8") == 0
    assert "share" in capsys.readouterr().out


def test_bench_times_runs(path: Path, capsys: Captured) -> None:
    arguments = ["bench", path, "--dim", "batch=2", "--turns", 2, "--seconds", 0.01]
    found = told(capsys, *arguments)
    assert found["sides"][0]["best_seconds"] <= found["sides"][0]["usual_seconds"]
    assert found["ratio"] is None
    assert "compared with onnxruntime" in refused(capsys, *arguments, "--against", "tvm")


def test_bench_takes_turns_with_a_peer(path: Path, tmp_path: Path, capsys: Captured) -> None:
    """A stand-in for the peer: what it is asked and answers is what counts."""
    package = tmp_path / "onnxruntime"
    package.mkdir()
    (package / "__init__.py").write_text("from arenite.onnxruntime import *\n__version__ = '9'\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    arguments = ["bench", path, "--dim", "batch=2", "--turns", 2, "--seconds", 0.01]
    found = told(capsys, *arguments, "--against", "onnxruntime", "--python", python)
    assert [one["name"] for one in found["sides"]] == ["arenite", "onnxruntime 9"]
    assert found["ratio"] > 0
    assert found["largest_difference"] == 0
    (package / "__init__.py").write_text("raise ImportError('none here')")
    message = refused(capsys, *arguments, "--against", "onnxruntime", "--python", python)
    assert "has no onnxruntime" in message


def test_commands_for_the_other_kind_are_refused(
    path: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert "`arenite run` runs it" in refused(capsys, "generate", path, "hello")
    language = write_tiny("llama", tmp_path)
    assert "`generate` and `embed` run it" in refused(capsys, "run", language)
    assert "`arenite show --profile` shows" in refused(capsys, "profile", language)
    assert "`arenite generate --json` says" in refused(capsys, "bench", language)
    assert "--dim is for ONNX models" in refused(capsys, "plan", language, "--dim", "batch=1")
    assert "--input is for ONNX models" in refused(capsys, "plan", language, "-i", "x=1")
    (tmp_path / "folder").mkdir()
    assert "of an ONNX model the file is given" in refused(capsys, "run", tmp_path / "folder")


def test_what_is_left_of_a_budget_counts_what_the_budget_counts(
    path: Path, capsys: Captured
) -> None:
    """On a device with memory of its own: what is there, not what lies on the host."""
    webgpu()
    least = Model.open(path).plan(device="webgpu").nbytes_by_device["webgpu"]
    assert arenite("plan", path, "--device", "webgpu", "--memory", least) == 0
    shown = capsys.readouterr().out
    assert [line.split()[-1] for line in shown.splitlines() if "left of" in line] == ["0"]
