"""Model: what goes in and out, the plan before a weight is read, calls, and what they refuse."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.errors import (
    BoundsError,
    DoesNotFit,
    IndexOutOfRange,
    InvalidArgument,
    NotSupported,
    RunFailed,
    ShapeMismatch,
    TypeMismatch,
)
from arenite.model import Model
from tests.model.models import (
    FLOAT,
    INT64,
    STRING,
    judged,
    made,
    model_of,
    network,
    node,
    tensor,
    weights,
)


def check(proto: Any, feed: dict[str, Any], program: Any) -> None:
    """Results are the reference evaluator's, in value, type and shape."""
    wanted, found = judged(proto, feed), program(feed)
    assert list(found) == list(wanted)
    for name, one in wanted.items():
        assert found[name].dtype == one.dtype
        np.testing.assert_allclose(
            found[name], one, rtol=1e-4, atol=1e-5 * max(1, np.abs(one).max(initial=0))
        )


def test_inputs_and_outputs_are_tables_with_named_sizes() -> None:
    model = model_of(network())
    assert model.inputs.names == ["x"]
    assert model.inputs["x"].shape == ("batch", 8)
    assert model.outputs[0].dtype == arenite.dtype.of("float32")
    assert model.sizes == ("batch",)
    assert str(model.inputs).splitlines()[-1].split() == ["x", "float32", "[batch,", "8]"]
    with pytest.raises(InvalidArgument, match="no 'z'; there are x"):
        _ = model.inputs["z"]


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (["a b", "a b"], ("a_b",)),  # one name, one size
        (["?", "?"], ("x_0", "x_1")),  # which is no name
        ([None, -1], ("x_0", "x_1")),
        (["2nd", "class"], ("_2nd", "class_size")),
        (["memory", "p.q"], ("memory_size", "p_q")),
        (["p.q", "p q"], ("p_q", "p_q_2")),  # two sizes, whatever they are called
    ],
)
def test_sizes_have_names_that_python_takes(shape: list[Any], names: tuple[str, ...]) -> None:
    proto = made([node("Add", "x x", "y")], [tensor("x", shape)], [tensor("y", shape)])
    model = model_of(proto)
    assert model.sizes == names
    given: dict[str, Any] = dict.fromkeys(names, 3)
    with model.compile(**given) as program:
        check(proto, {"x": weights(3, 3)}, program)


def test_a_name_of_the_file_is_taken_too() -> None:
    proto = made([node("Add", "x x", "y")], [tensor("x", ["p.q"])], [tensor("y", ["p.q"])])
    model = model_of(proto)
    given: dict[str, Any] = {"p.q": 64}
    assert model.plan(**given).total_nbytes == model.plan(p_q=64).total_nbytes
    with pytest.raises(InvalidArgument, match="no size 'batch' to be said; there are p_q"):
        model.plan(batch=3)


# The plan.


def test_a_plan_counts_what_a_call_takes_and_grows_with_sizes() -> None:
    model = model_of(network())
    one, eight = model.plan(batch=1), model.plan(batch=8)
    io = one.regions["io"].nbytes
    assert io >= (8 + 5) * 4
    assert one.total_nbytes < eight.total_nbytes
    assert model.plan(batch="1..8").total_nbytes >= eight.total_nbytes
    assert model.plan().total_nbytes == one.total_nbytes
    with model.compile(batch=8) as program:
        assert program.plan.total_nbytes == eight.total_nbytes


def test_a_plan_reads_no_weight(tmp_path: Path) -> None:
    """The pages of the file that hold weights stay untouched: they may be anything, even gone."""
    n = 1 << 20
    proto = made(
        [node("Add", "x w", "y")], [tensor("x", [n])], [tensor("y", [n])], {"w": weights(n)}
    )
    path = tmp_path / "large.onnx"
    path.write_bytes(proto.SerializeToString())
    before = _resident_nbytes()
    plan = Model.open(path).plan()
    assert plan.total_nbytes >= 3 * 4 * n
    assert _resident_nbytes() - before < 2 * n  # half of the weights


def _resident_nbytes() -> int:
    """Of files, by this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("RssFile:")[1].split()[0]) * 1024


@pytest.mark.parametrize("given", [0.5, "a", "1..", (1, 2, 3), None, True])
def test_a_size_is_a_number_or_a_range(given: Any) -> None:
    with pytest.raises(InvalidArgument, match="a number or a range"):
        model_of(network()).plan(batch=given)
    with pytest.raises(BoundsError, match=r"8\.\.1, which has no value"):
        model_of(network()).plan(batch="8..1")
    with pytest.raises(BoundsError, match="no size is above"):
        model_of(network()).plan(batch=10**15)


def test_a_budget_is_refused_before_anything_is_compiled() -> None:
    model = model_of(network())
    needed = model.plan(batch=64).total_nbytes
    assert model.plan(batch=64, memory=needed).total_nbytes <= needed
    with pytest.raises(DoesNotFit) as caught:
        model.plan(batch=64, memory=needed // 2)
    assert caught.value.smallest_known > needed // 2
    with pytest.raises(DoesNotFit):
        model.compile(batch="1..64", memory=needed // 2)


def test_an_open_size_is_held_to_the_budget_call_by_call() -> None:
    proto = network()
    model = model_of(proto)
    budget = model.plan(batch=100).total_nbytes
    with model.compile(memory=budget) as program:
        check(proto, {"x": weights(90, 8)}, program)
        with pytest.raises(DoesNotFit):
            program(weights(5000, 8))
        check(proto, {"x": weights(3, 8)}, program)
        assert len(program.variants) == 1


# Calls.


def test_sizes_are_bound_at_each_call_and_nothing_is_compiled_twice() -> None:
    proto = network()
    model = model_of(proto)
    with model.compile(threads=1) as program:
        for batch in (1, 7, 64, 7, 1000, 1):
            check(proto, {"x": weights(batch, 8)}, program)
        assert program.variants.n_compiled == 1
        program.verify()


def test_a_call_beyond_the_usual_bound_and_one_of_nothing_are_served() -> None:
    proto = network()
    model = model_of(proto)
    with model.compile(threads=1) as program:
        for batch in (70_000, 0, 3):
            check(proto, {"x": weights(batch, 8)}, program)


def test_arrays_come_by_position_by_name_and_in_a_dict() -> None:
    proto = made(
        [node("Sub", "a b", "y")], [tensor("a", ["n"]), tensor("b", ["n"])], [tensor("y", ["n"])]
    )
    a, b = weights(4), weights(4, seed=1)
    with model_of(proto).compile() as program:
        for _ in range(2):  # the second time by the short way
            for found in (
                program(a, b),
                program(a, b=b),
                program(b=b, a=a),
                program({"b": b, "a": a}),
            ):
                np.testing.assert_array_equal(found["y"], a - b)


def test_other_arrays_than_numpys_are_taken() -> None:
    torch = pytest.importorskip("torch")
    proto = network()
    with model_of(proto).compile() as program:
        x = weights(3, 8)
        wanted = judged(proto, {"x": x})["y"]
        for given in (torch.from_numpy(x), arenite.asarray(x), x.tolist(), np.asfortranarray(x)):
            np.testing.assert_allclose(program(given)["y"], wanted, rtol=1e-4, atol=1e-5)


X = weights(2, 8)


@pytest.mark.parametrize(
    ("arrays", "named", "error", "message"),
    [
        ((), {}, InvalidArgument, r"input 'x' \(float32\[batch, 8\]\) is missing"),
        ((X, X), {}, InvalidArgument, r"2 inputs were given, and the model has 1: 'x' float32"),
        ((X,), {"x": X}, InvalidArgument, "'x' was given twice"),
        ((), {"z": X}, InvalidArgument, r"no input 'z'; it has 'x' float32\[batch, 8\]"),
        (
            (X.astype("f8"),),
            {},
            TypeMismatch,
            r"'x' is float32\[batch, 8\].*float64\[2, 8\].*astype",
        ),
        ((X[0],), {}, ShapeMismatch, r"'x' is float32\[batch, 8\], and an array of shape \(8,\)"),
        ((X[:, :3],), {}, ShapeMismatch, r"'x' is float32\[batch, 8\].* \(2, 3\) was given"),
        (([[1.0], [2.0, 3.0]],), {}, ShapeMismatch, "lists of different lengths"),
        ((np.array(["a"]),), {}, TypeMismatch, "'x' is float32"),
    ],
)
def test_wrong_inputs_are_one_error_that_names_them(
    arrays: tuple[Any, ...], named: dict[str, Any], error: type[Exception], message: str
) -> None:
    with model_of(network()).compile() as program:
        program(X)  # so that the short way sees them first
        with pytest.raises(error, match=message):
            program(*arrays, **named)
        program(X)


def test_sizes_of_one_name_must_be_equal_and_within_what_was_compiled_for() -> None:
    proto = made(
        [node("Add", "a b", "y")], [tensor("a", ["n"]), tensor("b", ["n"])], [tensor("y", ["n"])]
    )
    model = model_of(proto)
    with model.compile(n="2..4") as program:
        with pytest.raises(ShapeMismatch, match=r"'b' is float32\[n\].*n is 3 in input 'a'"):
            program(weights(3), weights(4))
        with pytest.raises(
            BoundsError, match=r"'a'.*n is 5, and the model was compiled for 2\.\.4"
        ):
            program(weights(5), weights(5))
        np.testing.assert_array_equal(program(weights(4), weights(4))["y"], 2 * weights(4))


def test_an_input_with_a_value_in_the_file_may_be_given_or_not() -> None:
    proto = made(
        [node("Mul", "x k", "y")],
        [tensor("x", ["n"]), tensor("k", [1])],
        [tensor("y", ["n"])],
        {"k": np.array([3], np.float32)},
    )
    model = model_of(proto)
    assert [one.is_required for one in model.inputs] == [True, False]
    with model.compile() as program:
        np.testing.assert_array_equal(program(weights(4))["y"], weights(4) * 3)
        two = program(weights(4), np.array([2], np.float32))["y"]
        np.testing.assert_array_equal(two, weights(4) * 2)
        np.testing.assert_array_equal(program(weights(4))["y"], weights(4) * 3)


def test_what_was_closed_is_not_called() -> None:
    program = model_of(network()).compile()
    program(X)
    program.close()
    with pytest.raises(RunFailed, match="closed"):
        program(X)


def test_operators_that_nobody_knows_are_listed_when_a_file_is_opened() -> None:
    proto = made(
        [node("Foo", "x", "t", domain="my.ops"), node("Bar", "t", "y", domain="my.ops")],
        [tensor("x", [3])],
        [tensor("y", [3])],
    )
    proto.opset_import.add(domain="my.ops", version=2)
    with pytest.raises(NotSupported, match=r"'Bar' of my.ops 2.*'Foo' of my.ops 2"):
        model_of(proto)


# Structure.


def test_inputs_that_decide_structure_are_compiled_for_by_value() -> None:
    proto = made(
        [node("ReduceSum", "x axes", "y", keepdims=0)],
        [tensor("x", ["n", 4]), tensor("axes", [1], INT64)],
        [tensor("y", None)],
    )
    model = model_of(proto)
    with pytest.raises(InvalidArgument, match="axes"):
        model.plan(n=3)
    plan = model.plan(n=3, values={"axes": [0]})
    assert plan.total_nbytes > 0
    with model.compile() as program:
        for n in (3, 5, 3):
            for axis in (0, 1, 0):
                x, axes = weights(n, 4), np.array([axis])
                found = program(x, axes)["y"]
                np.testing.assert_allclose(found, x.sum(axis), rtol=1e-5)
        assert program.variants.n_compiled == 2  # whatever n is
        assert "axes = [0]" in str(program.variants)


def test_the_values_used_last_are_kept() -> None:
    proto = made(
        [node("Concat", "x x", "t", axis=0), node("ReduceSum", "t axes", "y", keepdims=0)],
        [tensor("x", [2]), tensor("axes", [None], INT64)],
        [tensor("y", None)],
    )
    with model_of(proto).compile() as program:
        for values in ([0], [], [-1], [0]):
            x = weights(2)
            found = program(x, np.array(values, np.int64))["y"]
            np.testing.assert_allclose(found, 2 * x.sum(), rtol=1e-5)
        assert len(program.variants) == 3


def test_the_way_that_is_not_taken_need_not_fit() -> None:
    """A condition that follows from an input decides, where one way makes no sense for a shape."""
    from onnx import helper

    def branch(name: str, rows: int) -> Any:
        shape = helper.make_node("Constant", [], [f"s{name}"], value_ints=[rows, 2])
        body = [shape, node("Reshape", f"x s{name}", name)]
        return helper.make_graph(body, name, [], [tensor(name, None)])

    proto = made(
        [node("If", "flag", "y", then_branch=branch("a", 3), else_branch=branch("b", 4))],
        [tensor("x", [None]), tensor("flag", [], 9)],
        [tensor("y", None)],
    )
    with model_of(proto).compile() as program:
        for flag, n in ((True, 6), (False, 8), (True, 6)):
            found = program(weights(n), np.array(flag))["y"]
            np.testing.assert_array_equal(found, weights(n).reshape(-1, 2))


# Sizes that a file says too little about.


def test_sizes_that_must_be_equal_are_found_to_be() -> None:
    proto = made(
        [node("Add", "a b", "t"), node("MatMul", "t w", "y")],
        [tensor("a", ["unk_1", "unk_2"]), tensor("b", ["unk_3", "unk_4"])],
        [tensor("y", None)],
        {"w": weights(4, 3)},
    )
    model = model_of(proto)
    with model.compile() as program:
        for n in (2, 5, 9):
            feed = {"a": weights(n, 4), "b": weights(n, 4, seed=2)}
            check(proto, feed, program)
        assert program.variants.n_compiled == 1
        # One of them may be 1 nevertheless: a program of its own.
        check(proto, {"a": weights(5, 4), "b": weights(1, 4)}, program)


def test_sizes_that_have_one_value_together_leave_others_open() -> None:
    """As a table of places in an image fixes its height and width, and not how many there are."""
    proto = made(
        [
            node("Shape", "x", "shape"),
            node("Gather", "shape first", "count"),
            node("Concat", "count last", "wanted", axis=0),
            node("Reshape", "x wanted", "flat"),
            node("Add", "flat table", "y"),
        ],
        [tensor("x", ["batch", "h", "w"])],
        [tensor("y", None)],
        {"first": np.array([0]), "last": np.array([-1]), "table": weights(1, 24)},
    )
    with model_of(proto).compile(threads=1) as program:
        for batch in (2, 1, 5):
            check(proto, {"x": weights(batch, 4, 6)}, program)
        assert program.variants.n_compiled == 1
        check(proto, {"x": weights(3, 6, 4)}, program)
        assert program.variants.n_compiled == 2


def test_what_makes_no_sense_is_told_when_all_sizes_are_given() -> None:
    proto = made(
        [node("Concat", "x w", "y", axis=1)],
        [tensor("x", ["batch", 8])],
        [tensor("y", None)],
        {"w": weights(2, 3)},
    )
    model_of(proto).compile(batch=2, threads=1).close()
    with pytest.raises(ShapeMismatch, match="Concat"):
        model_of(proto).compile(batch=3, threads=1)


def test_multiples_and_least_sizes_are_found_for_a_call() -> None:
    """Halved by a pool and doubled again, an even size alone fits what it is added to."""
    scales = np.array([1, 1, 2, 2], np.float32)
    proto = made(
        [
            node("MaxPool", "x", "t", kernel_shape=[2, 2], strides=[2, 2]),
            node("Resize", "t  scales", "u", mode="nearest"),
            node("Add", "u x", "y"),
        ],
        [tensor("x", ["n", 1, "h", "w"])],
        [tensor("y", None)],
        {"scales": scales},
    )
    proto.graph.node[1].input[:] = ["t", "", "scales"]
    model = model_of(proto)
    with model.compile(threads=1) as program:
        for shape in ((1, 1, 8, 12), (2, 1, 4, 64), (1, 1, 100, 20)):
            check(proto, {"x": weights(*shape)}, program)
        assert program.variants.n_compiled == 1
        assert "h = 4 * h" in str(program.variants)
        check(proto, {"x": weights(1, 1, 6, 10)}, program)
        with pytest.raises(arenite.errors.AreniteError, match=r"do not broadcast|shape"):
            program(weights(1, 1, 5, 10))


def test_a_search_translates_the_whole_only_where_the_node_that_failed_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from arenite.frontends.onnx.translate import Translator

    n_nodes = []
    translate = Translator.translate

    def counted(self: Translator, given: Any) -> Any:
        try:
            return translate(self, given)
        finally:
            n_nodes.append(self.n_nodes)

    monkeypatch.setattr(Translator, "translate", counted)
    axes = np.array([2], np.int64)
    proto = made(
        [
            node("MaxPool", "x", "t", kernel_shape=[2, 2], strides=[2, 2]),
            node("Resize", "t  scales", "u", mode="nearest"),
            node("Add", "u x", "v"),
            node("Conv", "v w", "z"),
            node("Squeeze", "z axes", "y"),
        ],
        [tensor("x", ["n", 1, "h", "w_size"])],
        [tensor("y", None)],
        {"scales": np.array([1, 1, 2, 2], np.float32), "w": weights(1, 1, 8, 3), "axes": axes},
    )
    proto.graph.node[1].input[:] = ["t", "", "scales"]
    with model_of(proto).compile(threads=1) as program:
        check(proto, {"x": weights(2, 1, 8, 12)}, program)
        found = str(program.variants)
    # Up to the pool, the sum, the convolution; each needs more than the one before.
    assert n_nodes[:3] == [1, 3, 4]
    assert len(n_nodes) < 20
    assert "w_size = 4 * w_size" in found


def test_memory_grows_to_the_largest_call_and_not_further() -> None:
    """An open size takes what calls bring, though its bound would take terabytes."""
    proto = made(
        [
            node("Conv", "x w", "t", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            node("Relu", "t", "u"),
            node("Conv", "u v", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        ],
        [tensor("x", ["n", 3, "h", "w"])],
        [tensor("y", None)],
        {"w": weights(64, 3, 3, 3), "v": weights(3, 64, 3, 3, seed=1)},
    )
    model = model_of(proto)
    allocator = arenite.device.get("cpu")
    with model.compile(threads=1) as program:
        assert program.executable.plan.total_nbytes > 2**40
        check(proto, {"x": weights(1, 3, 8, 8)}, program)
        small = allocator.stats.live_nbytes
        for shape in ((1, 3, 64, 80), (2, 3, 8, 8), (1, 3, 128, 128), (1, 3, 8, 8)):
            check(proto, {"x": weights(*shape)}, program)
        [executable] = program.executable.executables
        needed = executable.plan_for({"n": 1, "h": 128, "w": 128}).peak_nbytes
        assert allocator.stats.live_nbytes - small < 2 * needed + 2**20
        before = allocator.stats.live_nbytes
        for k in range(40):
            program(weights(1, 3, 8 + k, 100 - k))
        assert allocator.stats.live_nbytes == before
        program.verify()


# Strings, sequences, optionals.


def test_strings_come_and_go_as_text() -> None:
    proto = made(
        [node("Concat", "a b", "y", axis=0)],
        [tensor("a", ["n"], STRING), tensor("b", ["m"], STRING)],
        [tensor("y", None, STRING)],
    )
    with model_of(proto).compile() as program:
        a, b = np.array(["x", "ä"], object), np.array(["long text", "x"])
        for _ in range(2):
            assert program(a, b)["y"].tolist() == ["x", "ä", "long text", "x"]
        with pytest.raises(TypeMismatch, match=r"'a' is string\[n\]"):
            program(np.array([1, 2]), b)


def test_sequences_and_optionals_are_structure_of_a_call() -> None:
    from onnx import helper

    kind = helper.make_tensor_type_proto(1, ["n", 2])
    sequence = helper.make_value_info("s", helper.make_sequence_type_proto(kind))
    proto = made([node("ConcatFromSequence", "s", "y", axis=0)], [sequence], [tensor("y", None)])
    with model_of(proto).compile() as program:
        for lengths in ((1, 2), (3,), (2, 2, 2), (1, 2)):
            arrays = [weights(n, 2, seed=n) for n in lengths]
            np.testing.assert_array_equal(program(arrays)["y"], np.concatenate(arrays))
        with pytest.raises(TypeMismatch, match=r"'s' is a sequence of float32.*a list is expected"):
            program(weights(2, 2))


def test_a_sequence_comes_out_as_a_list() -> None:
    proto = made(
        [node("SplitToSequence", "x", "s", axis=0)],
        [tensor("x", [3, 2])],
        [_sequence("s")],
    )
    with model_of(proto).compile() as program:
        x = weights(3, 2)
        found = program(x)["s"]
        assert isinstance(found, list)
        for one, row in zip(found, x, strict=True):
            np.testing.assert_array_equal(one, row[None])


def _sequence(name: str) -> Any:
    from onnx import helper

    kind = helper.make_tensor_type_proto(1, None)
    return helper.make_value_info(name, helper.make_sequence_type_proto(kind))


def test_a_largest_size_is_found() -> None:
    """A table with a row for each place says how many places there may be."""
    proto = made(
        [
            node("Shape", "x", "s", start=1),
            node("Slice", "table zero s zero", "t"),
            node("Add", "x t", "y"),
        ],
        [tensor("x", ["batch", "places"])],
        [tensor("y", None)],
        {"table": weights(512), "zero": np.array([0], np.int64)},
    )
    model = model_of(proto)
    with model.compile() as program:
        assert "places 1..512" in str(program.variants)
        for n in (1, 7, 512):
            check(proto, {"x": weights(2, n)}, program)
        assert program.variants.n_compiled == 1
        with pytest.raises(ShapeMismatch, match="do not broadcast"):
            program(weights(2, 513))


def test_what_a_search_found_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second start translates nothing; one that finds something else in the cache searches
    anew."""
    from arenite.model import forms
    from arenite.program import cache

    proto = made(
        [node("Add", "a b", "y")],
        [tensor("a", ["p"]), tensor("b", ["q"])],
        [tensor("y", None)],
    )
    path = tmp_path / "add.onnx"
    path.write_bytes(proto.SerializeToString())
    n_attempts: list[int] = []
    attempt = forms.FormSearch._attempt

    def counted(search: Any, form: Any) -> Any:
        n_attempts[-1] += 1
        return attempt(search, form)

    monkeypatch.setattr(forms.FormSearch, "_attempt", counted)
    keys: list[str] = []
    put = cache.default().put_all

    def recorded(entries: Any) -> None:
        keys.extend(key for key, sections in entries.items() if "form" in sections)
        put(entries)

    monkeypatch.setattr(cache.default(), "put_all", recorded)
    for _ in range(3):
        n_attempts.append(0)
        with Model.open(path).compile() as program:
            check(proto, {"a": weights(3), "b": weights(3)}, program)
        if len(n_attempts) == 2:
            [key] = keys
            put({key: {"form": b"nonsense"}})
    assert n_attempts == [2, 0, 2]


def test_threads_may_call_at_once() -> None:
    proto = network()
    with model_of(proto).compile(threads=1) as program:
        feeds = [{"x": weights(n, 8, seed=n)} for n in range(1, 9)]
        wanted = [judged(proto, feed)["y"] for feed in feeds]
        with ThreadPoolExecutor(4) as pool:
            for found, one in zip(pool.map(program, feeds * 8), wanted * 8, strict=True):
                np.testing.assert_allclose(found["y"], one, rtol=1e-4, atol=1e-5)
        assert program.variants.n_compiled == 1


def test_sizes_that_a_run_finds_ask_for_what_calls_bring() -> None:
    """Of an image of open sizes all places may be none zero; what is planned is no image of 65536
    by 65536."""
    proto = made(
        [
            node("NonZero", "x", "places"),
            node("Shape", "places", "s"),
            node("ConstantOfShape", "s", "y"),
        ],
        [tensor("x", ["height", "width"])],
        [tensor("y", None), tensor("places", None, INT64)],
    )
    with model_of(proto).compile() as program:
        for n in (3, 7, 70):
            x = np.eye(n, 2 * n, dtype=np.float32)
            found = program(x)
            np.testing.assert_array_equal(found["places"], np.nonzero(x))
            assert found["y"].shape == (2, n)
        assert program.variants.n_compiled == 1
        assert program.plan.total_nbytes < 2**28
        tall = np.ones((3000, 1), np.float32)
        assert program(tall)["y"].shape == (2, 3000)


def test_scales_of_another_file_are_not_those_of_the_first() -> None:
    """Files that differ in nothing but numbers share what is compiled, and not these numbers:
    scales of so many columns stay in the file."""
    x = weights(4, 64, seed=5)
    numbers = np.random.default_rng(0).integers(-127, 127, (64, 512)).astype(np.int8)
    for seed in (1, 2):
        scales = np.random.default_rng(seed).random(512).astype(np.float32)
        proto = made(
            [
                node("QuantizeLinear", "x xs xz", "q"),
                node("DequantizeLinear", "q xs xz", "d"),
                node("DequantizeLinear", "w ws", "e", axis=1),
                node("MatMul", "d e", "y"),
            ],
            [tensor("x", [4, 64])],
            [tensor("y", [4, 512])],
            {
                "w": numbers,
                "ws": scales,
                "xs": np.array(0.02, np.float32),
                "xz": np.array(128, np.uint8),
            },
            opset=21,
        )
        with model_of(proto).compile(threads=1) as program:
            np.testing.assert_allclose(
                program(x)["y"], judged(proto, {"x": x})["y"], rtol=1e-4, atol=1e-3
            )


def _gathering() -> Model:
    nodes = [node("Gather", "table places", "y", axis=0)]
    inputs = [tensor("places", ["n"], INT64)]
    return model_of(made(nodes, inputs, [tensor("y", None)], {"table": weights(5, 3)}))


@pytest.mark.parametrize("in_segments", [False, True])
def test_an_index_outside_its_axis_is_the_end_of_its_run_alone(in_segments: bool) -> None:
    """One bad request must not be the last: models have no state, and programs written for others
    know of no reset."""
    if in_segments:
        nodes = [
            node("Gather", "table places", "rows", axis=0),
            node("Range", "zero count one", "found"),
            node("ReduceSum", "rows", "total", keepdims=0),
            node("Cast", "found", "real", to=FLOAT),
            node("Add", "real total", "y"),
        ]
        stored = {"table": weights(5, 3), "zero": np.array(0), "one": np.array(1)}
        inputs = [tensor("places", ["n"], INT64), tensor("count", [], INT64)]
        model = model_of(made(nodes, inputs, [tensor("y", None)], stored))
        more = {"count": np.int64(4)}
    else:
        model, more = _gathering(), {}
    with model.compile(threads=2) as exe:
        good, bad = np.array([0, 4, 2]), np.array([0, 5, 2])
        wanted = exe(places=good, **more)["y"]
        for _ in range(3):  # the first way into a program and the short one
            with pytest.raises(IndexOutOfRange, match="an index is outside its axis"):
                exe(places=bad, **more)
            for _ in range(2):
                np.testing.assert_array_equal(exe(places=good, **more)["y"], wanted)


def test_a_bad_index_of_one_thread_ends_no_run_of_another() -> None:
    with _gathering().compile(threads=1) as exe:
        good, bad = np.array([0, 4, 2]), np.array([0, 5, 2])
        wanted = exe(places=good)["y"]
        problems: list[object] = []

        def ask(places: Any) -> None:
            for _ in range(200):
                try:
                    if not np.array_equal(exe(places=places)["y"], wanted):
                        problems.append("another result")
                except IndexOutOfRange:
                    if places is good:
                        problems.append("an index that is no one's")
                except Exception as error:
                    problems.append(error)

        threads = [Thread(target=ask, args=(one,)) for one in (good, bad, good, bad)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems
