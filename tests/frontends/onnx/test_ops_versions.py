"""Operators in the versions of the standard, with what is easily wrong: NumPy is the judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.errors import AreniteError, InvalidFile
from arenite.ir import Var, evaluate
from tests.frontends.onnx.one_node import Array, Const, graph_of, model_of, ran

FLOATS = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 11
SPECIAL = np.array([0, -0.0, 1, -1, 2.5, np.inf, -np.inf, np.nan], np.float32)
FAR = np.iinfo(np.int64).max


def float32(values: Any) -> Array:
    return np.asarray(values, np.float32)


def int32(values: Any) -> Array:
    return np.asarray(values, np.int32)


def uint8(values: Any) -> Array:
    return np.asarray(values, np.uint8)


def int8(values: Any) -> Array:
    return np.asarray(values, np.int8)


def case(op: str, opset: int, inputs: list[Any], wanted: Any, **attrs: Any) -> Any:
    name = f"{op}-{opset}-{attrs}"
    return pytest.param(op, opset, inputs, wanted, attrs, id=name)


INTS = np.array([7, -7, 7, -7, 5], np.int32)
BY = np.array([2, 2, -2, -2, 0], np.int32)

CASES = [
    case("Div", 7, [INTS, BY], np.array([3, -3, -3, 3, 0], np.int32)),
    case("Mod", 10, [INTS[:4], BY[:4]], np.array([1, 1, -1, -1], np.int32)),
    case("Mod", 13, [INTS[:4], BY[:4]], np.array([1, -1, 1, -1], np.int32), fmod=1),
    case("Pow", 13, [SPECIAL[:4], Const(0.5, np.float32)], np.array([0, 0, 1, np.nan], np.float32)),
    case("Pow", 13, [float32([-np.inf, -0.0]), Const(0.5, np.float32)], float32([np.inf, 0])),
    case("Pow", 15, [int32([2, -3]), float32([3.0, 2.0])], int32([8, 9])),
    case("Pow", 15, [float32([-1, -1]), np.array([2**24 + 1, 2**24])], float32([-1, 1])),
    case("Clip", 7, [SPECIAL[:5]], float32([0, 0, 0.5, 0, 0.5]), min=0.0, max=0.5),
    case("Clip", 12, [np.arange(5), Const(3), Const(1)], np.full(5, 1)),  # bounds that cross
    case("BitShift", 11, [uint8([1, 255]), uint8([9, 8])], uint8([0, 0]), direction="LEFT"),
    case("BitShift", 28, [int8([-8, 8]), int8([-1, 9])], int8([-1, 0]), direction="RIGHT"),
    case("Shrink", 9, [int32([-3, 0, 3])], int32([-2, 0, 2]), lambd=1.5, bias=1.0),
    case("IsInf", 10, [SPECIAL], -np.inf == SPECIAL, detect_positive=0),
    case("Hardmax", 11, [FLOATS], np.eye(12, dtype=np.float32)[[11, 11]].reshape(2, 3, 4)),
    case("Hardmax", 13, [FLOATS], np.eye(4, dtype=np.float32)[np.full((2, 3), 3)]),
    case("ReduceSum", 11, [FLOATS], FLOATS.sum((0, 2)), axes=[0, -1], keepdims=0),
    case("ReduceSum", 13, [FLOATS, Const([])], FLOATS, noop_with_empty_axes=1),
    case("ReduceL1", 18, [FLOATS, Const([])], abs(FLOATS), noop_with_empty_axes=1),
    case("ReduceMax", 20, [np.zeros((0, 2), np.int8)], np.array([[-128]], np.int8)),
    case("ArgMax", 12, [float32([1, 3, 3])], np.array([2]), select_last_index=1, axis=0),
    case("CumSum", 11, [FLOATS[0], Const(-1)], np.cumsum(FLOATS[0], 1) - FLOATS[0], exclusive=1),
    case("Reshape", 13, [FLOATS, Const([0, -1])], FLOATS.reshape(2, 12)),
    case("Reshape", 14, [np.zeros((0, 4)), Const([0, -1])], np.zeros((0, 4))),
    case("Reshape", 14, [np.zeros((0, 4)), Const([4, 0])], np.zeros((4, 0)), allowzero=1),
    case("Squeeze", 11, [FLOATS[:1, :1]], FLOATS[0, 0]),
    case("Squeeze", 13, [FLOATS[:1, :1], Const([-2])], FLOATS[:1, 0]),
    case("Unsqueeze", 11, [FLOATS[0]], FLOATS[:1, :, :, None], axes=[0, -1]),
    case("Flatten", 11, [FLOATS], FLOATS.reshape(6, 4), axis=-1),
    case("Expand", 8, [FLOATS[0, :, :1], Const([2, 1, 2])], np.tile(FLOATS[0, :, :1], (2, 1, 2))),
    case("Tile", 7, [FLOATS, Const([1, 2, 0])], np.tile(FLOATS, (1, 2, 0))),
    case(
        "Pad",
        10,
        [FLOATS[0]],
        np.pad(FLOATS[0, :, 1:], ((1, 0), (0, 2)), constant_values=5),
        pads=[1, -1, 0, 2],
        value=5.0,
    ),
    case(
        "Pad",
        11,
        [FLOATS[0], Const([4, 5, 4, 5])],
        np.pad(FLOATS[0], ((4, 4), (5, 5)), "reflect"),
        mode="reflect",
    ),
    case(
        "Pad",
        18,
        [FLOATS[0], Const([2, 3]), None, Const([-1])],
        np.pad(FLOATS[0], ((0, 0), (2, 3)), "edge"),
        mode="edge",
    ),
    case(
        "Pad",
        19,
        [FLOATS[0], Const([7, 0, 0, 9])],
        np.pad(FLOATS[0], ((7, 0), (0, 9)), "wrap"),
        mode="wrap",
    ),
    case(
        "Pad",
        13,
        [FLOATS[0], Const([1, 0, 0, 1]), np.float32(7)],  # a value of the run
        np.pad(FLOATS[0], ((1, 0), (0, 1)), constant_values=7),
    ),
    case("Slice", 9, [FLOATS], FLOATS[:, 1:, -3:-1], starts=[1, -3], ends=[99, -1], axes=[1, 2]),
    case(
        "Slice",
        10,
        [FLOATS, Const([-1]), Const([-FAR]), Const([2]), Const([-2])],
        FLOATS[:, :, ::-2],
    ),
    case("Slice", 13, [FLOATS, Const([2, 5]), Const([FAR, 1]), Const([-1, 0])], FLOATS[2:2, :, 2:]),
    case("Range", 11, [Const(9), Const(0), Const(-4)], np.array([9, 5, 1])),
    case("Range", 11, [np.int64(9), np.int64(0), np.int64(-4)], np.array([9, 5, 1])),  # of the run
    case("Range", 11, [np.float32(1), np.float32(2), np.float32(0.3)], float32([1, 1.3, 1.6, 1.9])),
    case("Range", 11, [np.int64(5), np.int64(1), np.int64(1)], np.arange(0)),
    case("Trilu", 14, [FLOATS, Const(2**62)], np.zeros_like(FLOATS)),
    case("Trilu", 14, [FLOATS, Const(-1)], np.tril(FLOATS, -1), upper=0),
    case("Gather", 11, [FLOATS, Const([-1, -2])], FLOATS[[-1, -2]]),
    case("Gather", 11, [FLOATS, Const(1)], FLOATS[:, 1], axis=1),
    case("Gather", 11, [FLOATS, Const([-2, -1])], FLOATS[:, :, -2:], axis=-1),
    case("GatherElements", 11, [FLOATS[0], np.array([[-1, 0]])], FLOATS[0, :1, [3, 0]].T, axis=1),
    case("GatherND", 12, [FLOATS, np.array([[2], [-1]])], FLOATS[[0, 1], [2, -1]], batch_dims=1),
    case(
        "OneHot",
        11,
        [np.array([-1, 3, 1]), Const(3.0, np.float32), Const([5, 7])],
        np.array([[5, 5, 7], [5, 5, 5], [5, 7, 5]]),
    ),
    case("NonZero", 13, [np.array([[0, 2], [3, 0]])], np.array([[0, 1], [1, 0]])),
    case("NonZero", 13, [np.float32(2)], np.zeros((0, 1), np.int64)),
    case("Compress", 11, [FLOATS, np.array([False, True])], FLOATS[:, :, 1:2], axis=2),
]


@pytest.mark.parametrize(("op", "opset", "inputs", "wanted", "attrs"), CASES)
def test_an_operator_means_what_its_version_says(
    op: str, opset: int, inputs: list[Any], wanted: Array, attrs: dict[str, Any]
) -> None:
    [made] = ran(op, inputs, opset, **attrs)
    assert made.shape == wanted.shape
    assert made.dtype == wanted.dtype
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_unique_has_first_places_groups_and_counts(ordered: int, axis: int | None) -> None:
    x = np.random.default_rng(3).integers(0, 2, (7, 3)).astype(np.float32)
    attrs: dict[str, Any] = {"sorted": ordered} | ({} if axis is None else {"axis": axis})
    values, places, inverse, counts = ran("Unique", [x], 11, 4, **attrs)
    wanted, first, groups, sizes = np.unique(x, True, True, True, axis=axis)
    order = np.arange(len(first)) if ordered else np.argsort(first)
    np.testing.assert_array_equal(values, np.take(wanted, order, axis or 0))
    np.testing.assert_array_equal(places, first[order])
    np.testing.assert_array_equal(counts, sizes[order])
    np.testing.assert_array_equal(order[inverse], groups.reshape(-1))


def test_unique_counts_what_is_no_number_once() -> None:
    x = np.array([np.nan, 1, np.nan, -0.0, 0.0], np.float32)
    values, places, inverse, counts = ran("Unique", [x], 11, 4)
    np.testing.assert_array_equal(values, [0, 1, np.nan])
    assert (places.tolist(), inverse.tolist(), counts.tolist()) == (
        [3, 1, 0],
        [2, 1, 2, 0, 0],
        [2, 1, 2],
    )


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_updates_go_where_their_indices_say(reduction: str) -> None:
    x = FLOATS[0].copy()
    places = np.array([[0, -1], [2, 1]])
    updates = np.array([[10, 20], [-30, 40]], np.float32)
    [made] = ran("ScatterElements", [x, places, updates], 18, axis=1, reduction=reduction)
    combine: Any = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for (i, j), at in np.ndenumerate(places):
        new = updates[i, j]
        x[i, at] = new if reduction == "none" else combine[reduction](x[i, at], new)
    np.testing.assert_array_equal(made, x)


def test_places_outside_are_errors_and_never_other_places() -> None:
    with pytest.raises(InvalidFile, match="index 3 is outside of axis 1 of size 3"):
        ran("Gather", [FLOATS, Const([0, 3])], 13, axis=1)
    for inputs in ([FLOATS, np.array([5])], [FLOATS, np.array([-3])]):
        with pytest.raises(AreniteError, match="not within"):
            ran("Gather", inputs, 13)
    with pytest.raises(AreniteError, match="not within"):
        ran("GatherND", [FLOATS, np.array([[0, 3]])], 13)
    with pytest.raises(AreniteError, match="not within"):
        ran("ScatterND", [FLOATS, np.array([[0, 0, 4]]), float32([1])], 13)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "said"),
    [
        ("Reshape", [FLOATS, Const([5, -1])], {}, "do not divide"),
        ("Reshape", [FLOATS, Const([-1, -1])], {}, "more than one -1"),
        ("Reshape", [FLOATS, Const([1, 2, 3, 0])], {}, "takes a size"),
        ("Split", [FLOATS, Const([1, 2])], {"axis": 1}, None),
        ("Split", [FLOATS, Const([1, 3])], {"axis": 1}, "lengths"),
        ("Transpose", [FLOATS], {"perm": [0, 0, 1]}, "no order"),
        ("Slice", [FLOATS, Const([0]), Const([1]), Const([0]), Const([0])], {}, "step is 0"),
        ("Slice", [FLOATS, Const([0]), Const([1, 2])], {}, "1 starts, 2 ends"),
        ("Range", [Const(0), Const(2**62), Const(1)], {}, "at most"),
        ("Range", [Const(0), Const(5), Const(0)], {}, "step is 0"),
        ("TopK", [FLOATS, Const([5])], {}, "k = 5 of an axis of size 4"),
        ("Pad", [FLOATS, Const([0, 0, -5, 0, 0, 0])], {}, "take more"),
        ("Squeeze", [FLOATS, Const([0])], {}, "not of size 1"),
        ("Concat", [FLOATS, FLOATS], {"axis": 3}, "axis 3"),
        ("Mod", [FLOATS, FLOATS], {}, "fmod"),
        ("Concat", [FLOATS, FLOATS], {"axis": "x"}, "attribute 'axis' is not an integer"),
        ("LeakyRelu", [FLOATS], {"alpha": "x"}, "attribute 'alpha'"),
        ("TopK", [FLOATS, Const([1, 2])], {}, "is to be one number, and has the shape"),
        ("CumSum", [FLOATS, Const([0, 1])], {}, "is to be one number, and has the shape"),
        ("Gather", [np.float32(1), Const([0])], {}, "has axes"),
        ("OneHot", [np.arange(3), Const(np.nan, np.float32), Const([0, 1])], {}, "depth"),
    ],
)
def test_what_a_file_has_wrong_is_said_with_the_node(
    op: str, inputs: list[Any], attrs: dict[str, Any], said: str | None
) -> None:
    n_outputs = 2 if op in ("Split", "TopK") else 1
    if said is None:
        assert len(ran(op, inputs, 13, n_outputs, **attrs)) == 2
        return
    with pytest.raises(InvalidFile, match=said) as caught:
        ran(op, inputs, 13, n_outputs, **attrs)
    assert f"node 'y0' ({op})" in str(caught.value)


@pytest.mark.parametrize(
    ("op", "consts", "attrs", "wanted"),
    [
        ("Reshape", [[0, -1]], {}, lambda x: x.reshape(len(x), -1)),
        ("Slice", [[1], [FAR], [1]], {}, lambda x: x[:, 1:]),
        ("Slice", [[-1], [-FAR], [1], [-1]], {}, lambda x: x[:, ::-1]),
        ("Slice", [[-2], [FAR], [1]], {}, lambda x: x[:, -2:]),
        ("Gather", [0], {"axis": 1}, lambda x: x[:, 0]),
        ("Gather", [-1], {"axis": 1}, lambda x: x[:, -1]),
        (
            "Pad",
            [[0, 3, 0, 3]],
            {"mode": "reflect"},
            lambda x: np.pad(x, ((0, 0), (3, 3)), "reflect"),
        ),
        ("Pad", [[0, -1, 0, 2]], {}, lambda x: np.pad(x[:, 1:], ((0, 0), (0, 2)))),
        ("Tile", [[2, 3]], {}, lambda x: np.tile(x, (2, 3))),
        ("Expand", [[3, 1, 1]], {}, lambda x: np.broadcast_to(x, (3, *x.shape))),
        ("CumSum", [1], {"reverse": 1}, lambda x: np.cumsum(x[:, ::-1], 1)[:, ::-1]),
        ("Trilu", [1], {}, lambda x: np.triu(x, 1)),
        ("NonZero", [], {}, lambda x: np.array(np.nonzero(x))),
        ("Unique", [], {}, np.unique),
    ],
)
@pytest.mark.parametrize("shape", [(2, 5), (4, 3)])
def test_sizes_may_be_open(
    op: str, consts: list[Any], attrs: dict[str, Any], wanted: Any, shape: tuple[int, int]
) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7 - 3
    model, arrays = model_of(op, [x, *map(Const, consts)], 14, **attrs)
    graph = graph_of(model, arrays, {"x0": (Var("batch", 1, 8), Var("length", 3, 9))})
    [made] = evaluate(graph, [x])
    np.testing.assert_array_equal(made, wanted(x))
