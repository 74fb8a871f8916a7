"""The places of tensors in a file, judged by the onnx package, which reads all of it."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, external_data_helper, helper, numpy_helper

from arenite.device import Buffer
from arenite.errors import FileMissing, InvalidFile
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.wire import scan
from arenite.ir import evaluate
from tests.frontends.onnx.models import graph, info, model, read_or_refused, stored, translated

Array = NDArray[Any]
RNG = np.random.default_rng(7)
BIG = RNG.standard_normal((64, 32)).astype(np.float32)


def everywhere() -> ModelProto:
    """Large tensors as initialisers (raw and as numbers), in a Constant, in a branch and in a
    function, and a small one."""
    counted = helper.make_tensor("counted", TensorProto.FLOAT, [64, 32], (BIG + 1).ravel())
    constant = helper.make_node("Constant", [], ["c"], value=stored("", BIG + 2))
    then = graph(
        [helper.make_node("Constant", [], ["t"], value=stored("", BIG + 3))], [], [info("t", None)]
    )
    otherwise = graph([helper.make_node("Neg", ["x"], ["e"])], [], [info("e", None)])
    function = helper.make_function(
        "own",
        "Shifted",
        ["a"],
        ["b"],
        [
            helper.make_node("Constant", [], ["k"], value=stored("", BIG + 4)),
            helper.make_node("Add", ["a", "k"], ["b"]),
        ],
        [helper.make_opsetid("", 17)],
    )
    nodes = [
        constant,
        helper.make_node("Add", ["x", "raw"], ["a"]),
        helper.make_node("Mul", ["a", "counted"], ["b"]),
        helper.make_node("Sub", ["b", "c"], ["d"]),
        helper.make_node("If", ["yes"], ["f"], then_branch=then, else_branch=otherwise),
        helper.make_node("Add", ["d", "f"], ["g"]),
        helper.make_node("Shifted", ["g"], ["h"], domain="own"),
        helper.make_node("Mul", ["h", "small"], ["y"]),
    ]
    made = graph(
        nodes,
        [info("x", [64, 32])],
        [info("y", [64, 32])],
        [stored("raw", BIG), counted, stored("small", np.full(1, 2, np.float32)),
         stored("yes", np.asarray(True))],
    )  # fmt: skip
    return model(made, functions=[function])


def wanted(x: Array) -> Array:
    return ((x + BIG) * (BIG + 1) - (BIG + 2) + (BIG + 3) + (BIG + 4)) * np.float32(2.0)


def write(folder: Path, made: ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_large_tensors_stay_in_the_file_wherever_they_stand(tmp_path: Path) -> None:
    path = write(tmp_path, everywhere())
    file = OnnxFile.open(path)
    scanned = scan("m", Buffer.from_array(np.frombuffer(path.read_bytes(), np.uint8)))
    assert len(scanned.places) == 5
    assert len(scanned.structure) < 1500
    made = translated(file)
    buffers = [node for node in made.graph.everything if node.op == "buffer"]
    assert len(buffers) == 5
    x = RNG.standard_normal((64, 32)).astype(np.float32)
    [y] = evaluate(made.graph, [x])
    np.testing.assert_array_equal(y, wanted(x))


def test_what_is_left_is_the_model_without_data(tmp_path: Path) -> None:
    made = everywhere()
    scanned = scan("m", Buffer.from_array(np.frombuffer(made.SerializeToString(), np.uint8)))
    left = ModelProto.FromString(scanned.structure)
    assert [one.op_type for one in left.graph.node] == [one.op_type for one in made.graph.node]
    assert left.graph.input == made.graph.input
    assert left.opset_import == made.opset_import
    for ours, theirs in zip(left.graph.initializer, made.graph.initializer, strict=True):
        assert (ours.name, ours.dims, ours.data_type) == (
            theirs.name,
            theirs.dims,
            theirs.data_type,
        )


def test_the_digest_is_of_every_byte_but_the_data_of_large_tensors() -> None:
    raw = everywhere().SerializeToString()

    def digest(data: bytes) -> str | None:
        try:
            return scan("m", Buffer.from_array(np.frombuffer(data, np.uint8))).digest
        except InvalidFile:
            return None

    places = scan("m", Buffer.from_array(np.frombuffer(raw, np.uint8))).places
    inside = {k for one in places for k in range(one.offset, one.offset + one.nbytes)}
    assert len(inside) == 5 * BIG.nbytes
    before = digest(raw)
    for k in range(len(raw)):
        if k in inside and k % 997:
            continue
        changed = bytearray(raw)
        changed[k] ^= 4
        assert (digest(bytes(changed)) == before) == (k in inside), k
    # The same bytes with the same places, cut in another way.
    assert digest(raw + b"\x72\x00") not in (None, before)


def test_reading_a_model_takes_no_memory_for_weights(tmp_path: Path) -> None:
    weights = np.zeros((1024, 4096), np.float32)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    made = graph([node], [info("x", [4096])], [info("y", None)], [stored("w", weights)])
    path = write(tmp_path, model(made))
    OnnxFile.open(path)
    tracemalloc.start()
    try:
        translated(OnnxFile.open(path))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", range(0, 100, 7))
def test_a_file_cut_short_is_refused(tmp_path: Path, cut: int) -> None:
    data = everywhere().SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data[: len(data) * cut // 100])
    with pytest.raises(InvalidFile, match=r"m\.onnx"):
        _ = OnnxFile.open(path).scanned


def test_bytes_changed_at_random_are_read_or_refused() -> None:
    """Thousands of rounds: one clear error, or a graph."""
    data = bytearray(everywhere().SerializeToString())
    rng = np.random.default_rng(3)
    n_read = 0
    for _ in range(3000):
        copy = bytearray(data)
        for place in rng.integers(0, len(copy), rng.integers(1, 4)):
            # Mostly where the structure is: the start, and between tensors.
            near = int(place) if rng.integers(4) == 0 else int(rng.integers(0, 400))
            copy[near] = int(rng.integers(256))
        n_read += read_or_refused(bytes(copy))
    assert n_read > 100


# Data in other files.


def with_external(folder: Path, location: str = "w.bin", **more: str) -> Path:
    """A model whose one weight lies in another file."""
    weight = stored("w", BIG)
    external_data_helper.set_external_data(weight, location)
    weight.ClearField("raw_data")
    for key, value in more.items():
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    node = helper.make_node("Add", ["x", "w"], ["y"])
    made = graph([node], [info("x", [64, 32])], [info("y", None)], [weight])
    return write(folder, model(made))


def test_external_data_is_read_in_place(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(bytes(12) + BIG.tobytes())
    path = with_external(tmp_path, "sub/w.bin", offset="12", length=str(BIG.nbytes))
    judge = onnx.load(path)
    np.testing.assert_array_equal(numpy_helper.to_array(judge.graph.initializer[0]), BIG)
    x = RNG.standard_normal((64, 32)).astype(np.float32)
    [y] = evaluate(translated(OnnxFile.open(path)).graph, [x])
    np.testing.assert_array_equal(y, x + BIG)


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../w.bin",
        "sub/../../w.bin",
        "..\\w.bin",
        "C:w.bin",
        "",
        "a\nb",
        "sub\\w.bin",
    ],
)
def test_data_outside_of_the_folder_is_never_read(tmp_path: Path, location: str) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(BIG.tobytes())
    with pytest.raises(InvalidFile, match="only files in the model's own folder"):
        translated(OnnxFile.open(with_external(inside, location)))


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(BIG.tobytes())
    (inside / "w.bin").symlink_to("../w.bin")
    with pytest.raises(InvalidFile, match="outside of the folder"):
        translated(OnnxFile.open(with_external(inside)))
    (inside / "w.bin").unlink()
    os.link(tmp_path / "w.bin", inside / "w.bin")
    with pytest.raises(InvalidFile, match="hard link"):
        translated(OnnxFile.open(with_external(inside)))
    (inside / "w.bin").unlink()
    os.mkfifo(inside / "w.bin")
    with pytest.raises(InvalidFile, match="a pipe"):
        translated(OnnxFile.open(with_external(inside)))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"offset": "8"}, "are not in"),
        ({"offset": "-8"}, "no number"),
        ({"offset": "9" * 30}, "no number"),
        ({"length": "4"}, "takes 8192 bytes, and has 4"),
        ({"length": "99999999"}, "are not in"),
    ],
)
def test_places_outside_of_a_file_are_refused(
    tmp_path: Path, more: dict[str, str], reason: str
) -> None:
    (tmp_path / "w.bin").write_bytes(BIG.tobytes())
    with pytest.raises(InvalidFile, match=reason):
        translated(OnnxFile.open(with_external(tmp_path, **more)))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match=r"w\.bin"):
        translated(OnnxFile.open(with_external(tmp_path)))
    data = with_external(tmp_path).read_bytes()
    with pytest.raises(InvalidFile, match="came as bytes"):
        translated(OnnxFile.of_bytes(data))


def test_entries_that_look_like_ours_are_not(tmp_path: Path) -> None:
    """Only the scan of this very file knows the key of its places."""
    weight = TensorProto(name="w", data_type=1, dims=[64, 32])
    entry = weight.external_data.add()
    entry.key, entry.value = "place", "0"
    made = graph(
        [helper.make_node("Add", ["big", "w"], ["y"])], [], [info("y", None)],
        [stored("big", BIG), weight],
    )  # fmt: skip
    with pytest.raises(InvalidFile, match="takes 2048 numbers, and has 0"):
        translated(OnnxFile.of_bytes(model(made).SerializeToString()))
