"""Sizes, axes and ways that only a run finds, judged by ONNX Runtime: branches that give other
sizes, operators whose shapes are computed from data, models of object detection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, helper

import arenite
from arenite.errors import AreniteError
from arenite.ir import Var
from arenite.ir.ops.unbounded import CUTTING
from tests.frontends.onnx.models import FLOAT, INT64, graph, info, model, opened, stored, translated
from tests.frontends.onnx.runtime import run_runtime

Array = NDArray[Any]
DETECTION = Path(__file__).parent / "detection"


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> Any:
    return helper.make_node(op, ["" if one == "_" else one for one in inputs.split()],
                            outputs.split(), **attrs)  # fmt: skip


#: How many elements of x are positive, as one number and as a row of one.
COUNT = [
    node("Greater", "x zero", "is_positive"),
    node("Cast", "is_positive", "ones", to=INT64),
    node("ReduceSum", "ones", "count", keepdims=0),
    node("Unsqueeze", "count first", "row"),
]
NUMBERS = {
    "zero": np.float32(0), "first": np.array([0]), "one": np.array([1]), "two": np.array([2]),
    "three": np.array([3]), "minus": np.array([-1]), "four": np.array([4]),
    "flat": np.array([-1]), "half": np.float32(0.5),
}  # fmt: skip


def counting(nodes: Sequence[Any], kinds: Sequence[int] = (FLOAT,), **consts: Any) -> ModelProto:
    """A model of x, float[n], and of how many of its elements are positive."""
    held = [stored(name, np.asarray(one)) for name, one in (NUMBERS | consts).items()]
    made = [info(f"y{k}", None, kind) for k, kind in enumerate(kinds)]
    return model(graph([*COUNT, *nodes], [info("x", ["n"])], made, held), 18)


def same(made: ModelProto, *calls: dict[str, Array], tolerance: float = 1e-5) -> int:
    """Every call gives what ONNX Runtime gives; the number of programs it took."""
    with arenite.Model.of_bytes(made.SerializeToString()).compile(threads=1) as exe:
        for given in calls:
            wanted = run_runtime(made, given)
            found = list(exe(given).values())
            for one, other in zip(found, wanted, strict=True):
                assert one.shape == other.shape
                np.testing.assert_allclose(one, other, tolerance, tolerance)
        return len(exe.variants)


def fails(made: ModelProto, x: Array, message: str) -> None:
    """One error, after which the program can be called with what makes sense."""
    with arenite.Model.of_bytes(made.SerializeToString()).compile(threads=1) as exe:
        with pytest.raises(AreniteError, match=message):
            exe(x)
        good = floats(9, seed=18)  # 3 are positive
        [wanted] = run_runtime(made, {"x": good})
        np.testing.assert_allclose(exe(good)["y0"], wanted, 1e-5)


#: x with 3, 0, 1 and many positive elements.
XS = [
    np.array([1, -2, 3, -4, 5, -6, -7, -8, -1, -1], np.float32),
    np.full(12, -1, np.float32),
    np.array([-1, -2, 3, -4, -5, -6, -7, -8, -9], np.float32),
    floats(200),
]

SHAPED: dict[str, tuple[list[Any], list[int]]] = {
    "ConstantOfShape": ([node("Concat", "row two", "s", axis=0),
                         node("ConstantOfShape", "s", "y0")], [FLOAT]),
    "Expand": ([node("Concat", "row three", "s", axis=0), node("Expand", "half s", "y0")], [FLOAT]),
    "Tile": ([node("Concat", "row one", "s", axis=0), node("Reshape", "x as_row", "r"),
              node("Tile", "r s", "y0")], [FLOAT]),
    "Pad": ([node("Concat", "first row", "s", axis=0), node("Pad", "x s half", "y0")], [FLOAT]),
    "Pad that takes away": ([node("Neg", "row", "less"),
                             node("Concat", "less one", "s", axis=0),
                             node("Pad", "x s half", "y0")], [FLOAT]),
    "TopK": ([node("TopK", "x row", "y0 y1")], [FLOAT, INT64]),
    "Range": ([node("Range", "start count step", "y0")], [INT64]),
    "Resize": ([node("Reshape", "x as_image", "i"), node("Add", "row one", "more"),
                node("Concat", "one one more three", "s", axis=0),
                node("Resize", "i _ _ s", "y0", mode="linear")], [FLOAT]),
    "OneHot": ([node("Add", "row one", "depth"), node("OneHot", "places depth onoff", "y0")],
               [FLOAT]),
    "Split": ([node("Shape", "x", "n"), node("Sub", "n row", "rest"),
               node("Concat", "row rest", "s", axis=0), node("Split", "x s", "y0 y1", axis=0)],
              [FLOAT, FLOAT]),
    "Slice with steps": ([node("Slice", "x row long first two", "y0")], [FLOAT]),
    "Slice backwards": ([node("Slice", "x long row first minus2", "y0")], [FLOAT]),
    "ReduceSum over axes": ([node("Reshape", "x as_image", "i"), node("Greater", "count two0", "b"),
                             node("Cast", "b", "axis", to=INT64),
                             node("Unsqueeze", "axis first", "axes"),
                             node("ReduceSum", "i axes", "y0", keepdims=0)], [FLOAT]),
    "Unsqueeze": ([node("Greater", "count two0", "b"), node("Cast", "b", "axis", to=INT64),
                   node("Unsqueeze", "axis first", "axes"), node("Unsqueeze", "x axes", "y0")],
                  [FLOAT]),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED)
def test_structure_computed_from_data(name: str) -> None:
    nodes, kinds = SHAPED[name]
    made = counting(
        nodes,
        kinds,
        as_row=np.array([1, -1]),
        as_image=np.array([1, 1, 1, -1]),
        start=np.int64(0),
        step=np.int64(1),
        places=np.array([0, 2, 1]),
        onoff=np.array([0, 1], np.float32),
        long=np.array([2**31]),
        two0=np.int64(2),
        minus2=np.array([-2]),
    )
    same(made, *({"x": x} for x in XS))


def test_a_size_that_is_found_to_be_negative_is_one_error() -> None:
    made = counting(
        [node("Sub", "row three", "less"), node("ConstantOfShape", "less", "y0")],
    )
    fails(made, XS[1], r"'y0' \(ConstantOfShape\): element 0 .* be -3")


def test_a_reshape_that_a_run_finds_impossible_is_one_error() -> None:
    made = counting(
        [node("Concat", "row minus", "s", axis=0), node("Reshape", "x s", "y0")],
    )
    x = np.array([1, -2, 3, -4, 5, -6, -7, -8, -1], np.float32)  # 3 of 9 are positive
    same(made, {"x": x})
    fails(made, XS[0], "elements there are, and are wanted: 10, 9")


# Branches.


def branches(then: GraphProto, otherwise: GraphProto, kinds: Sequence[int] = (FLOAT,),
             after: Sequence[Any] = (), **consts: Any) -> ModelProto:  # fmt: skip
    """A model that takes the first way where more than two elements of x are positive."""
    names = " ".join(one.name for one in then.output)
    return counting(
        [
            node("Greater", "count two0", "is_more"),
            node("If", "is_more", names, then_branch=then, else_branch=otherwise),
            *after,
        ],
        kinds,
        two0=np.int64(2),
        **consts,
    )


def way(*nodes: Any, gives: str = "y0") -> GraphProto:
    return graph(nodes, [], [info(one, None, FLOAT) for one in gives.split()])


POSITIVE = [node("Compress", "x is_positive", "positive", axis=0)]


def test_branches_of_other_sizes_are_planned_for_the_larger_one() -> None:
    made = branches(way(*POSITIVE, node("Relu", "positive", "y0")), way(node("Neg", "x", "y0")))
    assert same(made, *({"x": x} for x in XS)) == 1
    inside = translated(opened(made), {"x": (Var("n", 1, 64),)}).graph.everything
    assert not any(one.op in CUTTING for one in inside)


def test_all_that_branches_give_has_the_sizes_of_the_way_taken() -> None:
    made = branches(
        way(*POSITIVE, node("Relu", "positive", "a"), node("Neg", "positive", "b"), gives="a b"),
        way(node("Neg", "x", "a"), node("Abs", "x", "b"), gives="a b"),
        after=[node("Mul", "a b", "y0")],
    )
    assert same(made, *({"x": x} for x in XS)) == 1


def test_branches_without_a_bound_are_planned_in_the_run() -> None:
    made = branches(
        way(node("ConstantOfShape", "row", "some"), node("Add", "some half", "y0")),
        way(node("Tile", "x row", "y0")),
    )
    same(made, *({"x": x} for x in XS))


def test_branches_of_other_ranks_give_what_the_way_taken_gives() -> None:
    made = branches(way(node("Unsqueeze", "x first", "y0")), way(node("Neg", "x", "y0")))
    assert same(made, *({"x": x} for x in XS)) == 1


def test_other_ranks_meet_again() -> None:
    made = branches(
        way(node("Unsqueeze", "x first", "a"), gives="a"),
        way(node("Neg", "x", "a"), gives="a"),
        after=[node("Exp", "a", "b"), node("Reshape", "b column", "y0")],
        column=np.array([-1, 1]),
    )
    assert same(made, *({"x": x} for x in XS)) == 1
    inside = translated(opened(made), {"x": (Var("n", 1, 64),)})
    assert inside.graph.outputs[0].ndim == 2


def test_a_way_that_makes_no_sense_is_an_error_of_the_run_that_takes_it() -> None:
    made = branches(
        way(node("Unsqueeze", "x first", "a"), gives="a"),
        way(node("Neg", "x", "a"), gives="a"),
        after=[node("Transpose", "a", "y0", perm=[1, 0])],
    )
    same(made, {"x": XS[0]}, {"x": XS[3]})
    fails(made, XS[1], r"perm \[1, 0\] is no order of 1 axes")


def test_a_way_that_makes_no_sense_for_all_sizes_is_taken_where_it_does() -> None:
    """Into how many parts x is split is not known while its size is open."""
    parts = node("SplitToSequence", "x", "parts", axis=0)
    made = branches(
        way(parts, node("SequenceAt", "parts minus0", "y0")),
        way(node("Neg", "x", "y0")),
        minus0=np.int64(-1),
    )
    few = {"x": XS[1]}
    assert same(made, few, {"x": XS[0]}, few, {"x": XS[3]}, {"x": XS[3] + 1}, few) == 3


def test_a_squeeze_takes_an_axis_that_is_found_to_be_of_size_1() -> None:
    made = counting([*POSITIVE, node("Squeeze", "positive", "y0")])
    assert same(made, *({"x": x} for x in XS)) == 1


def test_a_squeeze_takes_an_open_axis_where_it_is_of_size_1() -> None:
    made = counting([node("Squeeze", "x", "y0")])
    same(made, {"x": XS[0]}, {"x": np.ones(1, np.float32)}, {"x": XS[3]})


def test_large_data_never_has_programs_of_its_own() -> None:
    """What follows from an image's elements is found in a run: each would be compiled for."""
    made = counting([node("ConstantOfShape", "row", "y0")])
    calls = [{"x": floats(20, seed=seed)} for seed in range(20)]
    assert same(made, *calls) == 1


# Models.


def boxes(n: int, size: float, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    low, extent = rng.random((n, 2)) * size * 0.8, rng.random((n, 2)) * size * 0.5
    return np.concatenate((low, low + extent), 1).astype(np.float32)


def ssd(n: int, seed: int) -> dict[str, Array]:
    return {"boxes": boxes(n, 32, seed), "logits": floats(n, 4, seed=seed)}


def nothing_found(n: int, seed: int) -> dict[str, Array]:
    logits = np.tile(np.array([9, 0, 0, 0], np.float32), (n, 1))
    return {"boxes": boxes(n, 32, seed), "logits": logits}


def faster_rcnn(n: int, seed: int) -> dict[str, Array]:
    return {"f0": floats(1, 8, 16, 16, seed=seed), "f1": floats(1, 8, 8, 8, seed=seed),
            "prop": boxes(n, 32, seed), "obj": floats(n, seed=seed)}  # fmt: skip


def no_proposals(n: int, seed: int) -> dict[str, Array]:
    given = faster_rcnn(n, seed)
    return given | {"obj": given["obj"] - 9}


def masks(n: int, seed: int) -> dict[str, Array]:
    return {"m": np.abs(floats(n, 1, 8, 8, seed=seed)), "b": boxes(n, 20, seed)}


#: Files that judge_detection.py wrote, and calls.
MODELS: dict[str, list[tuple[Callable[[int, int], dict[str, Array]], int]]] = {
    "ssd": [(ssd, 50), (ssd, 7), (ssd, 1), (ssd, 200), (nothing_found, 5)],
    "rcnn": [(faster_rcnn, 60), (faster_rcnn, 5), (faster_rcnn, 100), (no_proposals, 6)],
    "paste": [(masks, 3), (masks, 1), (masks, 5)],
}


@pytest.mark.parametrize("name", MODELS)
def test_detection(name: str) -> None:
    made = onnx.load(DETECTION / f"{name}.onnx")
    calls = [build(n, seed) for seed, (build, n) in enumerate(MODELS[name])]
    same(made, *calls, tolerance=1e-4)


def test_a_part_of_one_loses_its_axis_where_exporters_say_so() -> None:
    """PyTorch writes unbind as SplitToSequence with a split of 1, and keepdims = 0."""
    nodes = [
        node("SplitToSequence", "x size", "parts", axis=0, keepdims=0),
        node("SequenceAt", "parts place", "y"),
    ]
    held = [stored("size", np.asarray(1)), stored("place", np.asarray(2))]
    made = model(graph(nodes, [info("x", [3, 4])], [info("y", None)], held), 16)
    same(made, {"x": floats(3, 4)})


#: Where x is positive, twice: a run finds both sizes, and nothing else tells that they are equal.
TWICE = [
    node("NonZero", "is_positive", "at_row"),
    node("Squeeze", "at_row first", "at"),
    node("Not", "is_positive", "is_other"),
    node("Not", "is_other", "is_again"),
    node("Cast", "is_again", "as_float", to=FLOAT),
    node("NonZero", "as_float", "again_row"),
    node("Squeeze", "again_row first", "again"),
    node("Gather", "x at", "some"),
    node("Gather", "x again", "same"),
    node("Unsqueeze", "some first", "some_row"),
    node("Unsqueeze", "same one", "same_column"),
    node("Unsqueeze", "same first", "same_row"),
]
BOXES = [
    node("Concat", "some_row some_row some_row some_row", "edges", axis=0),
    node("Transpose", "edges", "corners", perm=[1, 0]),
    node("Add", "corners offsets", "boxes"),
]
MATCHED: dict[str, tuple[list[Any], list[int]]] = {
    "MatMul": ([node("MatMul", "some_row same_column", "y0")], [FLOAT]),
    "MatMul of vectors": ([node("MatMul", "some same", "y0")], [FLOAT]),
    "Gemm": ([node("Gemm", "some_row same_row", "y0", transB=1)], [FLOAT]),
    "Einsum": ([node("Einsum", "some_row same", "y0", equation="ij,j->i")], [FLOAT]),
    "ScatterND": ([node("Unsqueeze", "at one", "places"),
                   node("ScatterND", "x places same", "y0")], [FLOAT]),
    "NonMaxSuppression": ([*BOXES, node("Unsqueeze", "boxes first", "b"),
                           node("Unsqueeze", "same_row first", "s"),
                           node("NonMaxSuppression", "b s four half", "y0")], [INT64]),
    "RoiAlign": ([*BOXES, node("Sub", "again again", "images"),
                  node("RoiAlign", "image boxes images", "y0", output_height=2, output_width=2,
                       sampling_ratio=2)], [FLOAT]),
}  # fmt: skip


@pytest.mark.parametrize("name", MATCHED)
def test_sizes_that_were_found_twice_go_together(name: str) -> None:
    nodes, kinds = MATCHED[name]
    offsets, image = np.array([0, 0, 2, 2], np.float32), floats(1, 2, 8, 8)
    made = counting([*TWICE, *nodes], kinds, offsets=offsets, image=image)
    assert same(made, *({"x": x} for x in XS if name != "RoiAlign" or (x > 0).any())) == 1


def test_a_part_that_may_be_empty_loses_its_axis() -> None:
    """As the loops of TensorFlow's recurrent layers end: rows of a length that a run finds."""
    made = counting([
        node("NonZero", "is_positive", "at"),
        node("Slice", "at first one one", "part"),
        node("Squeeze", "part one", "y0"),
    ], [INT64])  # fmt: skip
    assert same(made, *({"x": x} for x in XS if (x > 0).any())) == 1
    fails(made, XS[1], "axis 1")


#: A row of as many elements as the whole part of x's sum, and 1 at the least.
AT_LEAST_ONE = [
    node("ReduceSum", "x", "sum", keepdims=0),
    node("Clip", "sum least_sum", "clipped"),
    node("Cast", "clipped", "length", to=INT64),
    node("Range", "start length step", "range"),
    node("Cast", "range", "floats", to=FLOAT),
    node("Reshape", "floats as_signal", "signal"),
]


def test_what_is_as_long_as_a_number_at_the_least_fits_a_kernel() -> None:
    """As models of speech make as many frames as they predict."""
    made = counting(
        [*AT_LEAST_ONE, node("Conv", "signal taps", "y0", pads=[1, 1])],
        least_sum=np.float32(1),
        start=np.int64(0),
        step=np.int64(1),
        as_signal=np.array([1, 1, -1]),
        taps=floats(2, 1, 3),
    )
    xs = [np.array(one, np.float32) for one in ([3, 4.5], [-1, -9, 1], [0.5], [20, 1], [99, 30])]
    with arenite.Model.of_bytes(made.SerializeToString()).compile(threads=1) as exe:
        for x in xs:
            [wanted] = run_runtime(made, {"x": x})
            np.testing.assert_allclose(exe(x)["y0"], wanted, 1e-5, 1e-5)
        # No number is less than the least, but for what a NaN is cast to.
        with pytest.raises(AreniteError, match="1 or more"):
            exe(np.array([np.nan], np.float32))
        [wanted] = run_runtime(made, {"x": xs[0]})
        np.testing.assert_allclose(exe(xs[0])["y0"], wanted, 1e-5, 1e-5)
