"""What is exported: files that compile without a warning, in every form, and do what they say."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite import State, Tensor, Var
from arenite.errors import InvalidArgument, NotCompiled, NotSupported
from tests.backends.c.executables import COMPILERS, STRICT, needs_compiler
from tests.generate.gguf_models import write_tiny
from tests.model.models import INT64, STRING, judged, made, model_of, network, node, tensor

pytestmark = needs_compiler

W = np.random.default_rng(0).standard_normal((16, 10)).astype(np.float32)


def product(x: Tensor) -> Tensor:
    return arenite.tanh(x @ W)


def built(folder: Path, *flags: str) -> ctypes.CDLL:
    """All files of a folder as a shared object."""
    files = [path.name for path in folder.glob("*.c")]
    line = [
        COMPILERS[0],
        *STRICT,
        "-O1",
        "-fPIC",
        "-shared",
        *flags,
        *files,
        "-o",
        "made.so",
        "-lm",
    ]
    ran = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[:4000]
    return ctypes.CDLL(str(folder / "made.so"))


def pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def constant_of(folder: Path, name: str) -> int:
    """What a header defines."""
    [header] = folder.glob("*.h")
    found = re.search(rf"#define {name} (\d+)", header.read_text())
    assert found is not None
    return int(found[1])


def test_a_static_program_with_sizes(tmp_path: Path) -> None:
    with arenite.compile(product, arenite.spec((Var("n", 1, 40), 16))) as compiled:
        x = np.random.default_rng(1).standard_normal((40, 16)).astype(np.float32)
        wanted = compiled(x)
        made = arenite.export(compiled, tmp_path, name="product")
    assert [file.path.name for file in made.files] == [
        "product.c",
        "product.h",
        "product_weights.c",
    ]
    assert all(file.nbytes == file.path.stat().st_size for file in made.files)
    assert "product_weights.c" in str(made)
    text = (tmp_path / "product.c").read_text()
    assert not re.search(r"\b(malloc|calloc|realloc|alloca)\b", text)
    assert "test_export.py" in text, "the line that a kernel comes from"
    library = built(tmp_path)
    out = np.zeros((40, 10), np.float32)
    # Before init nothing runs; then a size outside its bounds is refused, and nothing is written.
    assert library.product_run(pointer(x), pointer(out), ctypes.c_int64(40)) == 3
    assert library.product_init() == 0
    for n in (0, 41, -1):
        assert library.product_run(pointer(x), pointer(out), ctypes.c_int64(n)) == 2
    assert not out.any()
    for n in (40, 7):
        out[:] = 0
        assert library.product_run(pointer(x), pointer(out), ctypes.c_int64(n)) == 0
        np.testing.assert_allclose(out[:n], wanted[:n], rtol=1e-5, atol=1e-6)
        assert not out[n:].any()


def test_threads_share_the_tiles_of_large_kernels(tmp_path: Path) -> None:
    def taken(x: Tensor, indices: Tensor) -> Tensor:
        return arenite.exp(x)[indices]

    specs = arenite.spec((256, 1024)), arenite.spec((512,), "int64")
    with arenite.compile(taken, *specs) as compiled:
        arenite.export(compiled, tmp_path, name="taken", openmp=True)
    text = (tmp_path / "taken.c").read_text()
    assert "#pragma omp parallel for schedule(dynamic)\n" in text
    assert "#pragma omp parallel for schedule(dynamic) reduction(max : error)\n" in text
    library = built(tmp_path, "-fopenmp")
    x = np.random.default_rng(3).standard_normal((256, 1024)).astype(np.float32)
    indices = np.random.default_rng(4).integers(-256, 256, 512)
    out = np.empty((512, 1024), np.float32)
    assert library.taken_init() == 0
    assert library.taken_run(pointer(x), pointer(indices), pointer(out)) == 0
    np.testing.assert_allclose(out, np.exp(x)[indices], rtol=1e-6)
    indices[300] = 256
    assert library.taken_run(pointer(x), pointer(indices), pointer(out)) == 1


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    def named(double: Tensor, void: Tensor) -> dict[str, Tensor]:
        return {"a*/b": double + void, "A*/B": double - void, "out /* 0": double * void}

    with arenite.compile(named, arenite.spec((3,)), arenite.spec((3,))) as compiled:
        arenite.export(compiled, tmp_path, name="while")
    library = built(tmp_path)
    a, b = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    outs = [np.empty(3, np.float32) for _ in range(3)]
    assert library.while__init() == 0
    assert library.while__run(pointer(a), pointer(b), *map(pointer, outs)) == 0
    # Dicts are in the order of their keys.
    for out, wanted in zip(outs, (a - b, a + b, a * b), strict=True):
        np.testing.assert_array_equal(out, wanted)


def test_memory_of_the_caller_holds_several_programs(tmp_path: Path) -> None:
    total = State((4,), "float32", name="total")

    def add(x: Tensor) -> Tensor:
        total.set(total.value + x)
        return total.value * 2

    with arenite.compile(add, arenite.spec((4,))) as compiled:
        arenite.export(compiled, tmp_path, name="add", memory="caller")
    library = built(tmp_path)
    nbytes = constant_of(tmp_path, "ADD_ARENA_BYTES")
    rooms = [np.full(nbytes + 64, 0xFF, np.uint8) for _ in range(2)]
    starts = [-room.ctypes.data % 64 for room in rooms]
    programs = [(ctypes.c_uint64 * 4)() for _ in range(2)]
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)

    def init(k: int, shift: int = 0, less: int = 0) -> int:
        place = ctypes.c_void_p(rooms[k].ctypes.data + starts[k] + shift)
        return int(library.add_init(programs[k], place, ctypes.c_size_t(nbytes - less)))

    assert (init(0, less=1), init(0, shift=8)) == (4, 5)
    assert library.add_run(programs[0], pointer(x), pointer(out)) == 3
    assert (init(0), init(1)) == (0, 0)
    for expected in (2, 4, 6):
        assert library.add_run(programs[0], pointer(x), pointer(out)) == 0
        np.testing.assert_array_equal(out, expected * x)
    assert library.add_run(programs[1], pointer(x), pointer(out)) == 0
    np.testing.assert_array_equal(out, 2 * x)
    assert library.add_reset(programs[0]) == 0
    assert library.add_run(programs[0], pointer(x), pointer(out)) == 0
    np.testing.assert_array_equal(out, 2 * x)


def test_a_run_that_fails_is_an_error_until_a_reset(tmp_path: Path) -> None:
    with arenite.compile(lambda x, i: x[i], arenite.spec((5,)), arenite.spec((2,), "int64")) as f:
        arenite.export(f, tmp_path, name="pick")
    library = built(tmp_path)
    x, out = np.arange(5, dtype=np.float32), np.zeros(2, np.float32)
    good, bad = np.array([4, -5]), np.array([0, 5])

    def run(indices: Any) -> int:
        return int(library.pick_run(pointer(x), pointer(indices), pointer(out)))

    assert library.pick_init() == 0
    assert run(good) == 0
    np.testing.assert_array_equal(out, [4, 0])
    assert (run(bad), run(good)) == (1, 1)
    assert (library.pick_reset(), run(good)) == (0, 0)


def test_weights_as_a_file_and_as_an_array_are_the_same_bytes(tmp_path: Path) -> None:
    with arenite.compile(product, arenite.spec((2, 16))) as compiled:
        arenite.export(compiled, tmp_path / "file", weights="file")
        arenite.export(compiled, tmp_path / "array", weights="array")
    raw = (tmp_path / "file" / "program.weights").read_bytes()
    assert len(raw) == constant_of(tmp_path / "file", "PROGRAM_WEIGHTS_BYTES")
    assert np.frombuffer(raw[: W.nbytes], np.float32).tolist() == W.reshape(-1).tolist()
    text = (tmp_path / "array" / "program_weights.c").read_text()
    numbers = re.findall(r"\d+(?=,)", text.partition("{")[2])
    assert bytes(map(int, numbers)) == raw
    with pytest.raises(InvalidArgument, match="'auto', 'array' or 'file', not 'none'"):
        arenite.export(compiled, tmp_path, weights="none")


def test_what_cannot_be_exported_is_refused_with_the_reason(tmp_path: Path) -> None:
    unbounded = arenite.compile(
        lambda x, n: arenite.arange(n) + x, arenite.spec((1,)), arenite.spec((), "int64")
    )
    with pytest.raises(NotCompiled, match="exported: C has one plan"):
        arenite.export(unbounded, tmp_path)


def test_an_onnx_model_is_exported_for_a_range_of_sizes(tmp_path: Path) -> None:
    proto = network()
    path = tmp_path / "network.onnx"
    path.write_bytes(proto.SerializeToString())
    for program in (path, arenite.load(path)):
        folder = tmp_path / type(program).__name__
        arenite.export(program, folder, sizes={"batch": "1..8"})
        library = built(folder)
        assert library.network_init() == 0
        for batch in (1, 3, 8):
            x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
            y = np.empty((batch, 5), np.float32)
            assert library.network_run(pointer(x), pointer(y), ctypes.c_int64(batch)) == 0
            np.testing.assert_allclose(y, judged(proto, {"x": x})["y"], rtol=1e-4, atol=1e-5)
        assert library.network_run(pointer(x), pointer(y), ctypes.c_int64(9)) == 2
    with pytest.raises(InvalidArgument, match="context is for language models"):
        arenite.export(path, tmp_path, context=8)
    with (
        arenite.compile(product, arenite.spec((2, 16))) as compiled,
        pytest.raises(InvalidArgument, match="sizes is for ONNX models"),
    ):
        arenite.export(compiled, tmp_path, sizes={"batch": 3})


def test_an_onnx_model_is_exported_for_inputs_that_decide_structure(tmp_path: Path) -> None:
    proto = made(
        [node("ReduceSum", "x axes", "y", keepdims=0)],
        [tensor("x", [4, 6]), tensor("axes", [1], INT64)],
        [tensor("y", None)],
    )
    path = tmp_path / "sum.onnx"
    path.write_bytes(proto.SerializeToString())
    line = [sys.executable, "-m", "arenite.cli.main", "export", str(path), "--name", "total"]
    for wanted, shape in (([0], 6), ([1], 4)):
        folder = tmp_path / str(shape)
        given = ["--input", f"axes={wanted}", "--out", str(folder)]
        subprocess.run([*line, *given], check=True, capture_output=True)
        library = built(folder)
        x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
        y = np.empty(shape, np.float32)
        assert (library.total_init(), library.total_run(pointer(x), pointer(y))) == (0, 0)
        expected = judged(proto, {"x": x, "axes": np.array(wanted)})["y"]
        np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_a_python_file_is_run_with_its_folder_and_told_where_it_fails(tmp_path: Path) -> None:
    (tmp_path / "weights_beside.py").write_text("scale = 3.0\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import arenite, weights_beside\n"
        "f = arenite.compile(lambda x: x * weights_beside.scale, arenite.spec((4,)))\n"
    )
    failing = tmp_path / "failing.py"
    failing.write_text("def inner():\n    return 1 / 0\n\ninner()\n")
    line = [sys.executable, "-m", "arenite.cli.main", "export", "--out", str(tmp_path / "c")]
    subprocess.run([*line, f"{program}:f"], check=True, capture_output=True, cwd="/")
    library = built(tmp_path / "c")
    x, y = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    assert (library.f_init(), library.f_run(pointer(x), pointer(y))) == (0, 0)
    np.testing.assert_array_equal(y, x * 3)
    ran = subprocess.run([*line, f"{failing}:f"], capture_output=True, text=True)
    assert ran.returncode == 2
    assert f"{failing}:2 ended with ZeroDivisionError" in "".join(ran.stderr.splitlines())


def test_strings_cannot_be_exported(tmp_path: Path) -> None:
    kinds = [tensor("x", [2], STRING)], [tensor("y", [2], STRING)]
    proto = made([node("StringNormalizer", "x", "y", case_change_action="LOWER")], *kinds)
    with pytest.raises(NotSupported, match=r"'y' of .* is string"):
        arenite.export(model_of(proto), tmp_path)


def test_the_command_writes_a_language_model_that_goes_on_from_tokens(tmp_path: Path) -> None:
    path = write_tiny("llama-q4_1", tmp_path)
    folder = tmp_path / "c"
    line = [sys.executable, "-m", "arenite.cli.main", "export", str(path), "-o", str(folder)]
    ran = subprocess.run(
        [*line, "--context", "32", "--name", "tiny", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert {Path(file["path"]).name for file in said["files"]} >= {"tiny.c", "tiny.h", "main.c"}
    assert said["arena_nbytes"] == constant_of(folder, "TINY_ARENA_BYTES")
    files = [path.name for path in folder.glob("*.c")]
    command = [COMPILERS[0], *STRICT, "-O1", *files, "-o", "tiny", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    for wrong in (["x", "5"], ["6", "5", "17a"], ["6", ""]):
        ran = subprocess.run(["./tiny", *wrong], cwd=folder, capture_output=True, text=True)
        assert ran.returncode == 2
        assert "is no number" in ran.stderr
    prompt = [5, 17, 100, 42]
    ran = subprocess.run(
        ["./tiny", "6", *map(str, prompt)], cwd=folder, capture_output=True, text=True, check=True
    )
    expected: list[int] = []
    with arenite.load(path, context=32) as model:
        session = model.session()
        logits = model.advance(session, [], prompt)
        for _ in range(6):
            expected.append(int(np.argmax(logits)))
            logits = model.advance(session, [*prompt, *expected[:-1]], expected[-1:])
    assert list(map(int, ran.stdout.split())) == expected
