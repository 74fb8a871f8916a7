"""An ONNX file that was loaded once is loaded again without being parsed: never with a wrong
program, whatever has become of the file meanwhile."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, external_data_helper, numpy_helper

from arenite.errors import FileMissing, InvalidFile
from arenite.frontends.onnx import wire
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.translate import Translator
from arenite.model import Model
from arenite.model.arguments import Known
from arenite.onnxruntime import InferenceSession
from arenite.program import cache
from tests.model.models import INT64, judged, made, network, node, tensor, weights
from tests.warm_modules import compiling


@pytest.fixture
def folder(tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files, and a cache with the code of single kernels alone, which all tests
    share."""
    kernels, of_all = tmp_path / "cache" / "kernels", cache_folder / "kernels"
    for one in (kernels.parent, of_all):
        one.mkdir(parents=True, exist_ok=True, mode=0o700)
    kernels.symlink_to(of_all, target_is_directory=True)
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(kernels.parent))
    return tmp_path


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is scanned, parsed and translated from now on."""
    done: list[str] = []

    def scanning(path: str, file: Any) -> Any:
        done.append("scanned")
        return wire.scan(path, file)

    monkeypatch.setattr("arenite.frontends.onnx.file.scan", scanning)
    translate, model = Translator.translate, vars(OnnxFile)["model"]

    def translating(self: Translator, given: Any) -> Any:
        done.append("translated")
        return translate(self, given)

    def parsing(self: OnnxFile) -> Any:
        if "_parsed" not in vars(self):
            done.append("parsed")
        return model.fget(self)

    monkeypatch.setattr(Translator, "translate", translating)
    monkeypatch.setattr(OnnxFile, "model", property(parsing))
    return done


def written(folder: Path, proto: ModelProto, name: str = "m") -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def check(path: Path, *feeds: dict[str, Any], proto: ModelProto | None = None) -> None:
    """The file's model gives what onnx's own evaluator makes of the file as it is now."""
    proto = onnx.load(path) if proto is None else proto
    with Model.open(path).compile(threads=1) as program:
        for feed in feeds:
            wanted, found = judged(proto, feed), program(feed)
            assert list(found) == list(wanted)
            for name, one in wanted.items():
                assert found[name].dtype == one.dtype
                np.testing.assert_allclose(found[name], one, rtol=1e-4, atol=1e-4)


def large(seed: int = 0, *, slope: float = 0.1, bias: float = 1.0, table: int = 0) -> ModelProto:
    """A product of weights that stay in the file, a number in the structure, and a large tensor
    that decides structure: places that are gathered."""
    places = (np.arange(256) + table) % 32
    return made(
        [
            node("MatMul", "x w", "t"),
            node("LeakyRelu", "t", "u", alpha=slope),
            node("Gather", "u places", "g", axis=1),
            node("Add", "g b", "y"),
        ],
        [tensor("x", ["batch", 16])],
        [tensor("y", ["batch", 256])],
        {
            "w": weights(16, 32, seed=seed),
            "places": places,
            "b": np.array(bias, np.float32),
        },
    )


FEEDS = [{"x": weights(n, 16, seed=n)} for n in (3, 1)]


# What is not done again.


def test_the_second_load_parses_and_translates_nothing(folder: Path, work: list[str]) -> None:
    path = written(folder, large())
    check(path, *FEEDS)
    assert work.count("parsed") == 1
    work.clear()
    model = Model.open(path)
    assert (model.inputs.names, model.sizes, model.description.n_nodes) == (["x"], ("batch",), 4)
    assert model.metadata.operator_sets == {"": 17}
    check(path, *FEEDS)
    assert work == []


def test_a_copy_of_a_file_elsewhere_and_its_bytes_are_the_same_model(
    folder: Path, work: list[str]
) -> None:
    path = written(folder, large())
    check(path, *FEEDS)
    work.clear()
    check(Path(shutil.copy(path, folder / "other.onnx")), *FEEDS)
    with Model.of_bytes(path.read_bytes()).compile(threads=1) as program:
        wanted = judged(large(), FEEDS[0])["y"]
        np.testing.assert_allclose(program(FEEDS[0])["y"], wanted, rtol=1e-4, atol=1e-4)
    assert work == []


def test_inputs_that_decide_structure_are_known_to(folder: Path, work: list[str]) -> None:
    proto = made(
        [node("Reshape", "x shape", "y")],
        [tensor("x", ["n"]), tensor("shape", ["rank"], INT64)],
        [tensor("y", None)],
    )
    path = written(folder, proto)
    feeds = [{"x": weights(12), "shape": np.array(one)} for one in ([3, 4], [2, 3, 2], [12])]
    check(path, *feeds)
    work.clear()
    check(path, *feeds)
    assert work == []
    check(path, {"x": weights(12), "shape": np.array([6, 2])})
    assert "translated" in work


def test_a_plan_and_a_session_need_no_parsing(folder: Path, work: list[str]) -> None:
    path = written(folder, large())
    plan = Model.open(path).plan(batch=4)
    wanted = InferenceSession(str(path)).run(None, FEEDS[0])
    arguments = [str(one) for one in InferenceSession(str(path)).get_inputs()]
    work.clear()
    assert Model.open(path).plan(batch=4) == plan
    session = InferenceSession(str(path))
    np.testing.assert_array_equal(session.run(None, FEEDS[0]), wanted)
    assert [str(one) for one in session.get_inputs()] == arguments
    assert session.get_modelmeta().graph_name == "graph"
    assert work == []


def test_what_needs_the_graph_finds_it(folder: Path, work: list[str]) -> None:
    path = written(folder, large())
    check(path, FEEDS[0])
    with Model.open(path).compile(threads=1) as program:
        program(FEEDS[0])
        kernels = len(program.kernels)
        work.clear()
        program.verify()
        graph = program.executable.graph
        assert work == ["parsed", "scanned", "translated"]
        assert len(program.executable.passes) > 3
        assert len(program.kernels) == kernels
        assert [one.attr("name") for one in graph.inputs] == ["x"]


# What has changed.


@pytest.mark.parametrize(
    ("other", "is_seen"),
    [
        (large(seed=1), False),
        (large(slope=0.5), True),
        (large(bias=2.0), True),
        (large(table=1), True),
        (made([node("Neg", "x", "y")], [tensor("x", ["n", 16])], [tensor("y", None)]), True),
    ],
    ids=["weights", "an attribute", "a small tensor", "a tensor that was read", "all"],
)
def test_a_file_that_was_overwritten_is_another(
    folder: Path, work: list[str], other: ModelProto, is_seen: bool
) -> None:
    for proto in (large(), large()):
        check(written(folder, proto), *FEEDS)
    work.clear()
    check(written(folder, other), *FEEDS)
    assert bool(work) == is_seen
    for proto in (large(), other):  # both are known by now, whoever was the last
        check(written(folder, proto), *FEEDS)
        work.clear()
        check(written(folder, proto), *FEEDS)
        assert work == []


def test_a_tensor_in_another_place_is_found_there(folder: Path) -> None:
    proto = large()
    check(written(folder, proto), *FEEDS)
    proto.graph.initializer[0].doc_string = "moves its data"
    check(written(folder, proto), *FEEDS)


def external(folder: Path, proto: ModelProto) -> Path:
    external_data_helper.convert_model_to_external_data(proto, location="data.bin")
    (folder / "data.bin").unlink(missing_ok=True)
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


def test_data_in_another_file_is_that_of_now(folder: Path, work: list[str]) -> None:
    inside = folder / "model"
    inside.mkdir()
    for proto in (large(), large(seed=1), large(table=1)):
        path = external(inside, proto)
        check(path, *FEEDS)
    work.clear()
    check(path, *FEEDS)
    assert work == []


def test_another_file_is_checked_each_time(folder: Path) -> None:
    inside, data = folder / "model", folder / "model" / "data.bin"
    inside.mkdir()
    path = external(inside, large())
    check(path, *FEEDS)
    outside = Path(shutil.copy(data, folder / "outside.bin"))
    data.unlink()
    data.symlink_to(outside)
    with pytest.raises(InvalidFile, match="outside of the folder"):
        check(path, *FEEDS, proto=large())
    data.unlink()
    data.hardlink_to(outside)
    with pytest.raises(InvalidFile, match="hard link"):
        check(path, *FEEDS, proto=large())
    data.unlink()
    with pytest.raises(FileMissing, match=r"data\.bin"):
        check(path, *FEEDS, proto=large())
    data.write_bytes(outside.read_bytes()[:-512])
    with pytest.raises(InvalidFile, match="bytes from byte"):
        check(path, *FEEDS, proto=large())


def test_the_path_in_a_message_is_that_of_now(folder: Path) -> None:
    proto = made(
        [node("Reshape", "x shape", "y")],
        [tensor("x", [12]), tensor("shape", [2], INT64)],
        [tensor("y", None)],
    )
    path = written(folder, proto)
    for one in (path, Path(shutil.copy(path, folder / "other.onnx"))):
        with pytest.raises(ValueError, match=str(one)):
            Model.open(one).plan()


# What the cache says.


def kept(folder: Path) -> dict[str, tuple[str, dict[str, bytes]]]:
    """Entries of ours by kind: key and sections."""
    found = {}
    for path in (folder / "cache").glob(f"*{cache.SUFFIX}"):
        sections = cache.default().get(path.stem)
        assert sections is not None
        for name, kind in {"file": "file", "outputs": "translation", "form": "form"}.items():
            if name in sections:
                found[kind] = path.stem, {k: bytes(v) for k, v in sections.items()}
    return found


def test_a_damaged_entry_is_made_anew(folder: Path) -> None:
    path = written(folder, large())
    check(path, *FEEDS)
    entries = list((folder / "cache").glob(f"*{cache.SUFFIX}"))
    assert set(kept(folder)) == {"file", "translation", "form"}
    for entry in entries:
        raw = bytearray(entry.read_bytes())
        raw[len(raw) // 2] ^= 1
        entry.write_bytes(raw)
        check(path, *FEEDS)


def changed(sections: dict[str, bytes], section: str, **changes: Any) -> dict[str, bytes]:
    content = {**json.loads(sections[section]), **changes}
    return {**sections, section: json.dumps(content).encode()}


def test_an_entry_that_says_something_else_is_not_used(folder: Path, work: list[str]) -> None:
    path = written(folder, large())
    check(path, *FEEDS)
    entries = kept(folder)
    key, sections = entries["translation"]
    ports = json.loads(sections["ports"])
    [place] = [one for one in ports["constants"] if isinstance(one, str)]
    beyond = json.dumps(["", 10**9, "float32", [16, 32]])
    wide = json.dumps(["", json.loads(place)[1], "float32", [16, 31]])
    wrong = [
        changed(sections, "ports", constants=[]),
        changed(sections, "ports", digest=None),
        changed(sections, "ports", inputs=[]),
        *[
            changed(sections, "ports", constants=[other if one == place else one
                                                  for one in ports["constants"]])
            for other in (beyond, wide, '["../x", 0, "float32", [16, 32]]', "[]", "no place")
        ],
        {**sections, "outputs": b"{}"},
        {"needed": b"nonsense"},
        {},
    ]  # fmt: skip
    for one in wrong:
        work.clear()
        cache.default().put(key, one)
        check(path, *FEEDS)
        assert "translated" in work, one
    key, sections = entries["file"]
    for one in ({}, {"file": b"[]"}, changed(sections, "file", reads=["no place"]),
                changed(sections, "file", description={})):  # fmt: skip
        work.clear()
        cache.default().put(key, one)
        check(path, *FEEDS)
        assert "parsed" in work, one


def test_values_that_decide_structure_are_told_apart() -> None:
    values: list[Any] = [
        np.zeros((0, 3), np.int64),
        np.zeros((0, 4), np.int64),
        np.zeros((0, 3), np.int32),
        np.array(["a", "b"], object),
        np.array(["a", "c"], object),
        np.array([["a", "b"]], object),
        np.arange(3),
        np.arange(3.0),
        np.arange(100),
    ]
    texts = [repr(Known({"x": one})) for one in values]
    assert len(set(texts)) == len(texts)
    assert repr(Known({"x": np.array(["".join("ab"), "c"], object)})) == repr(
        Known({"x": np.array(["ab", "c"], object)})
    )


# What is imported.


CODE = """
import sys
import typing
import numpy as np
import arenite

with arenite.load(sys.argv[1]).compile(threads=2) as program:
    print(program(np.ones((3, 8), np.float32))["y"].tobytes().hex())
print(*sys.modules)
ours = [module for name, module in sys.modules.items() if name.startswith("arenite.")]
print(*{
    thing.__qualname__ for module in ours for thing in vars(module).values()
    if isinstance(thing, type) and "__dataclass_fields__" in vars(thing)
})
print(*{
    thing.__qualname__ for module in ours for thing in vars(module).values()
    if isinstance(thing, type) and typing.NamedTuple in vars(thing).get("__orig_bases__", ())
})
"""


def test_a_warm_load_imports_nothing_that_parses_or_compiles(folder: Path) -> None:
    path = written(folder, network())

    def start() -> list[str]:
        given = [sys.executable, "-c", CODE, str(path)]
        return subprocess.run(given, capture_output=True, text=True, check=True).stdout.splitlines()

    result, imported, *_ = start()
    assert {"onnx", "google.protobuf", "arenite.frontends.onnx.translate"} <= {*imported.split()}
    again, imported, dataclasses, named_tuples = start()
    assert again == result
    modules = set(imported.split())
    assert compiling(modules) == set()
    # OpenSSL takes a start as much memory as a small model.
    heavy = {
        "onnx",
        "google",
        "llvmlite",
        "ml_dtypes",
        "numpy.ma",
        "numpy.typing",
        "dataclasses",
        "pathlib",
        "tempfile",
        "hashlib",
        "json",
        "fcntl",
        "arenite.dtype.block_types",
    }
    assert not modules & heavy
    ours = {name for name in modules if name.startswith("arenite.")}
    assert not {
        name for name in ours if name.split(".")[1] in ("hazards", "tensor", "cli", "fetch")
    }
    graphs = ("arenite.ir.graph", "arenite.ir.ops", "arenite.ir.compose", "arenite.ir.reference")
    front = tuple(f"arenite.frontends.onnx.{name}" for name in ("ops", "parsing", "values", "call"))
    assert not {name for name in ours if name.startswith((*graphs, *front))}
    assert len(ours) <= 100
    # Of which one takes a start half a millisecond; those of `arenite.records` take little.
    assert dataclasses.split() == []
    assert named_tuples.split() == []


def test_small_tensors_of_another_file_are_numbers(folder: Path) -> None:
    """An exporter may put the shape of a Reshape there."""
    inside = folder / "model"
    inside.mkdir()
    proto = made(
        [node("Reshape", "x shape", "y")],
        [tensor("x", [6])],
        [tensor("y", [2, 3])],
        {"shape": np.array([2, 3])},
    )
    external_data_helper.convert_model_to_external_data(
        proto, location="data.bin", size_threshold=0
    )
    onnx.save(proto, inside / "m.onnx")
    for _ in range(2):
        check(inside / "m.onnx", {"x": weights(6)})


def test_nothing_is_kept_of_strings_and_they_are_right_again(folder: Path) -> None:
    proto = made(
        [node("Concat", "x w", "y", axis=0)],
        [tensor("x", [2], 8)],
        [tensor("y", [4], 8)],
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array(["c", "d"], object), "w"))
    path = written(folder, proto)
    for _ in range(2):
        with Model.open(path).compile(threads=1) as program:
            assert program(np.array(["a", "b"], object))["y"].tolist() == ["a", "b", "c", "d"]
