"""Loops as exporters of decoders write them, judged by ONNX Runtime: arrays written a place an
iteration, placeholders of other types that become what the body makes, values to which the first
iteration gives axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

import arenite
from arenite.errors import AreniteError
from arenite.ir import Var
from arenite.ir.ops.unbounded import CUTTING
from tests.frontends.onnx.models import FLOAT, INT64, graph, info, model, opened, stored, translated
from tests.frontends.onnx.test_structure_in_run import node, same

BOOL = TensorProto.BOOL
Array = NDArray[Any]

NUMBERS = {
    "zero": np.int64(0), "one": np.int64(1), "onef": np.float32(1), "first": np.array([0]),
    "row": np.array([1]), "all": np.array([-1]), "column": np.array([1, -1, 1]),
    "once": np.array([1, 1, 4]), "half": np.float32(0.5), "scalar": np.float32(7),
    "false": np.bool_(False), "empty": np.zeros((1, 6, 4), np.float32), "five": np.int64(5),
    "none": np.zeros(0, np.float32), "six": np.array([6]), "eight": np.int64(8),
}  # fmt: skip


def looping(
    body: Sequence[Any],
    carried: Sequence[tuple[str, str, str, int]],
    *,
    condition: str = "always",
    goes_on: str = "always",
    trips: str = "five",
    row: str | None = None,
) -> ModelProto:
    """A model of x, float[n], and `asked`, bool[]: a loop over `carried`, each its name in the
    body, what it begins with, what it becomes and its type; `row` is given in each iteration."""
    held = [stored(name, np.asarray(one)) for name, one in NUMBERS.items()]
    held.append(stored("always", np.asarray(True)))
    inner = graph(
        body,
        [info("number", [], INT64), info("goes", [], BOOL),
         *(info(name, None, kind) for name, _, _, kind in carried)],
        [info(goes_on, None, BOOL), *(info(name, None, kind) for _, _, name, kind in carried),
         *([info(row, None)] if row else [])],
    )  # fmt: skip
    # An output of a body is made in it.
    if goes_on == "always":
        inner.node.append(node("Identity", "goes", "on"))
        inner.output[0].name = "on"
    names = [f"y{k}" for k in range(len(carried) + bool(row))]
    kinds = [kind for *_, kind in carried] + [FLOAT] * bool(row)
    loop = helper.make_node(
        "Loop", [trips, condition, *(first for _, first, _, _ in carried)], names, body=inner
    )
    inputs = [info("x", ["n"]), info("asked", [], BOOL)]
    outputs = [info(name, None, kind) for name, kind in zip(names, kinds, strict=True)]
    return model(graph([loop], inputs, outputs, held), 17)


def given(*numbers: float, asked: bool = True) -> dict[str, Array]:
    return {"x": np.asarray(numbers, np.float32), "asked": np.asarray(asked)}


#: i, carried through a float, and row i of an array overwritten; the end is within the array.
WRITE = [
    node("Cast", "i", "fi", to=FLOAT), node("Add", "fi onef", "fj"),
    node("Cast", "fj", "j", to=INT64),
    node("Reshape", "i row", "begin"), node("Reshape", "j row", "next"),
    node("Min", "next six", "end"), node("Squeeze", "end", "until"),
    node("Slice", "filled begin end row row", "part"), node("Shape", "part", "room"),
    node("ReduceSum", "x", "sum", keepdims=1), node("Mul", "sum fj", "value"),
    node("Expand", "value room", "values"),
    node("Range", "i until one", "places"), node("Reshape", "places column", "three"),
    node("Tile", "three once", "index"),
    node("ScatterElements", "filled index values", "more", axis=1),
]  # fmt: skip


def test_a_place_of_an_array_is_written_in_each_iteration() -> None:
    """Two sizes that each depend on a counter, and that only a run can tell to be the same."""
    carried = [("i", "zero", "j", INT64), ("filled", "empty", "more", FLOAT)]
    for trips in ("five", "eight"):  # of eight the last two are outside
        made = looping(WRITE, carried, trips=trips)
        same(made, given(1, 2), given(3), given(0.5, 1, 2))
        # No more than one place at a time: all of it is one plan.
        inside = translated(opened(made), {"x": (Var("n", 1, 9),), "asked": ()}).graph.everything
        assert not any(one.op in CUTTING for one in inside)


def test_sizes_that_differ_in_a_run_are_one_error() -> None:
    wrong = [one for one in WRITE if one.op_type != "Range"]
    wrong.insert(-3, node("Range", "zero until one", "places"))
    made = looping(wrong, [("i", "zero", "j", INT64), ("filled", "empty", "more", FLOAT)])
    wanted = pytest.raises(AreniteError, match=r"(?s)ScatterElements.*axis 1 .*1, 2")
    with arenite.Model.of_bytes(made.SerializeToString()).compile(threads=1) as exe, wanted:
        exe(*given(1, 2).values())


@pytest.mark.parametrize("condition", ["always", "asked"])
def test_what_stands_for_nothing_takes_the_type_that_the_body_gives(condition: str) -> None:
    """A number, an empty row and a truth that no iteration reads."""
    body = [node("Mul", "x half", "made"), node("Greater", "made half", "truth"),
            node("Unsqueeze", "made first", "wide"), node("Identity", "number", "n")]  # fmt: skip
    carried = [("a", "scalar", "made", FLOAT), ("b", "none", "wide", FLOAT),
               ("c", "false", "truth", BOOL), ("d", "zero", "n", INT64)]  # fmt: skip
    # Of rows without an iteration ONNX Runtime knows no size, and says 0.
    made = looping(
        body, carried, condition=condition, row="made" if condition == "always" else None
    )
    calls = [given(1, 2), given(3)]
    if condition == "asked":
        calls += [given(1, 2, asked=False), given(4, 5, 6)]
    same(made, *calls)


@pytest.mark.parametrize("condition", ["always", "asked"])
def test_axes_that_the_first_iteration_adds(condition: str) -> None:
    """A number that becomes a row, and is read; the loop ends by what it is found to be."""
    body = [node("Add", "a x", "sum"), node("Reshape", "sum all", "made"),
            node("ReduceMax", "made", "most", keepdims=0),
            node("Less", "most scalar", "on")]  # fmt: skip
    made = looping(body, [("a", "scalar2", "made", FLOAT)], condition=condition, goes_on="on",
                   row="made" if condition == "always" else None)  # fmt: skip
    made.graph.initializer.append(stored("scalar2", np.asarray(0.25, np.float32)))
    calls = [given(1, 2), given(3), given(100, 1)]
    if condition == "asked":
        calls += [given(1, 2, asked=False)]
    same(made, *calls)


def test_trips_that_are_found_to_be_none() -> None:
    body = [node("Add", "a x", "made")]
    made = looping(body, [("a", "scalar", "made", FLOAT)], trips="count")
    counting = node("Cast", "asked", "count", to=INT64)
    made.graph.node.insert(0, counting)
    same(made, given(1, 2), given(1, 2, asked=False), given(3))


@pytest.mark.parametrize(
    ("first", "last"),
    [(2.7, 0.5), (-3.0, 1.7), (5.0, 1.0), (5.0, np.nan), (5.0, np.inf)],
)
def test_distances_of_numbers_that_are_not_whole(first: float, last: float) -> None:
    """first and first + last, each made an integer, are not int(last) apart."""
    nodes = [
        node("Add", "first last", "sum"), node("Cast", "first", "i", to=INT64),
        node("Cast", "sum", "j0", to=INT64), node("Min", "j0 six0", "j"),
        node("Range", "i j one", "y0"),
    ]  # fmt: skip
    held = {"last": np.float32(last), "six0": np.int64(6), "one": np.int64(1)}
    kept = [stored(name, np.asarray(one)) for name, one in held.items()]
    made = model(graph(nodes, [info("first", [])], [info("y0", None, INT64)], kept), 17)
    if np.isfinite(last):
        same(made, {"first": np.asarray(first, np.float32)})
    else:  # ONNX does not say which integer it becomes
        with arenite.Model.of_bytes(made.SerializeToString()).compile(threads=1) as exe:
            assert exe(np.asarray(first, np.float32))["y0"].ndim == 1
