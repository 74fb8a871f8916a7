"""Data in other files, on every path by which a tensor comes in: only regular files of the model's
own folder are opened, whatever a name leads to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, helper

from arenite.errors import AreniteError
from arenite.frontends.onnx.file import OnnxFile
from tests.frontends.onnx.models import FLOAT, graph, info, model, stored, translated

ADD = helper.make_node("Add", ["x", "w"], ["y"])
X, Y = info("x", [2]), info("y", None)


def external(location: str) -> TensorProto:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def constant(tensor: TensorProto) -> NodeProto:
    return helper.make_node("Constant", [], ["w"], value=tensor)


def sparse(values: TensorProto, indices: TensorProto) -> SparseTensorProto:
    return SparseTensorProto(values=values, indices=indices, dims=[2])


def in_initialiser(tensor: TensorProto) -> ModelProto:
    return model(graph([ADD], [X], [Y], [tensor]))


def in_constant(tensor: TensorProto) -> ModelProto:
    return model(graph([constant(tensor), ADD], [X], [Y]))


def in_sparse_values(tensor: TensorProto) -> ModelProto:
    made = graph([ADD], [X], [Y])
    made.sparse_initializer.append(sparse(tensor, stored("i", np.array([0, 1]))))
    return model(made)


def in_sparse_indices(tensor: TensorProto) -> ModelProto:
    tensor.data_type = TensorProto.INT64
    made = graph([ADD], [X], [Y])
    made.sparse_initializer.append(sparse(stored("w", np.ones(2, np.float32)), tensor))
    return model(made)


def in_sparse_constant(tensor: TensorProto) -> ModelProto:
    node = helper.make_node("Constant", [], ["w"])
    attribute = node.attribute.add(name="sparse_value", type=AttributeProto.SPARSE_TENSOR)
    attribute.sparse_tensor.CopyFrom(sparse(tensor, stored("i", np.array([0, 1]))))
    return model(graph([node, ADD], [X], [Y]))


def in_branch(tensor: TensorProto) -> ModelProto:
    branch = graph([helper.make_node("Add", ["x", "w"], ["z"])], [], [info("z", None)], [tensor])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    return model(graph([node], [X, info("c", [], TensorProto.BOOL)], [Y]))


def with_function(nodes: list[NodeProto]) -> ModelProto:
    sets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "F", ["x"], ["y"], nodes, sets)
    node = helper.make_node("F", ["x"], ["y"], domain="own")
    return model(graph([node], [X], [Y]), functions=[function])


def in_function(tensor: TensorProto) -> ModelProto:
    return with_function([constant(tensor), ADD])


def in_default_of_function(tensor: TensorProto) -> ModelProto:
    node = helper.make_node("Constant", [], ["w"])
    node.attribute.add(name="value", ref_attr_name="v", type=AttributeProto.TENSOR)
    made = with_function([node, ADD])
    default = made.functions[0].attribute_proto.add(name="v", type=AttributeProto.TENSOR)
    default.t.CopyFrom(tensor)
    return made


def in_fill_value(tensor: TensorProto) -> ModelProto:
    tensor.dims[:] = [1]
    shape = stored("s", np.array([2]))
    node = helper.make_node("ConstantOfShape", ["s"], ["w"], value=tensor)
    return model(graph([node, ADD], [X], [Y], [shape]))


WAYS: dict[str, Callable[[TensorProto], ModelProto]] = {
    one.__name__: one
    for one in (
        in_initialiser, in_constant, in_sparse_values, in_sparse_indices, in_sparse_constant,
        in_branch, in_function, in_default_of_function, in_fill_value,
    )
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With one file that may be read, and everything that may not."""
    made, secret = tmp_path / "model", tmp_path / "secret"
    (made / "inner").mkdir(parents=True)
    for path in (made / "own", made / "inner" / "own", secret):
        path.write_bytes(bytes(64))
    (made / "link").symlink_to(secret)
    (made / "zeros").symlink_to("/dev/zero")
    (made / "circle").symlink_to("circle")
    (made / "way").symlink_to(tmp_path)
    os.link(secret, made / "hard")
    os.mkfifo(made / "pipe")
    (made / "nothing").touch()
    return made


FORBIDDEN = (
    "link", "zeros", "circle", "way/secret", "hard", "pipe", "nothing", "inner", ".", "", "absent",
    "../secret", "inner/../../secret", "/dev/zero", "/proc/self/mem", "own\0", "file:///etc/passwd",
    "\\\\host\\own", "\x1b[31m", "a" * 5000,
)  # fmt: skip


def opened(folder: Path, way: str, location: str) -> None:
    path = folder / "m.onnx"
    path.write_bytes(WAYS[way](external(location)).SerializeToString())
    translated(OnnxFile.open(path))


@pytest.mark.parametrize("way", WAYS)
def test_only_files_of_the_folder_are_read(folder: Path, way: str) -> None:
    if way not in ("in_sparse_indices", "in_fill_value"):  # of which 64 zeros are no good ones
        for location in ("own", "./own", "inner/own"):
            opened(folder, way, location)
    for location in FORBIDDEN:
        with pytest.raises(AreniteError) as caught:
            opened(folder, way, location)
        text = str(caught.value)
        assert text.isprintable(), location
        assert len(text) < 1000
        shown = 60 if len(location) > 1000 else None  # of a name that is cut
        assert str(folder)[:shown] in text
