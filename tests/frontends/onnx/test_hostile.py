"""Models that lie: each gives one clear error, in bounded time and memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from arenite import passes
from arenite.errors import AreniteError, InvalidFile, NotSupported
from arenite.frontends.onnx.file import OnnxFile
from arenite.ir.node import MAX_ORIGINS
from arenite.model import Model
from tests.frontends.onnx.fuzzing import limited
from tests.frontends.onnx.models import (
    graph,
    info,
    model,
    one_node,
    opened,
    read_or_refused,
    results,
    stored,
    translated,
)


def chain(names: list[tuple[str, str]]) -> ModelProto:
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in names]
    return model(graph(nodes, [info("x", [2])], [info("y", None)]))


def calls_itself() -> ModelProto:
    body = [helper.make_node("Again", ["a"], ["b"], domain="own")]
    function = helper.make_function(
        "own", "Again", ["a"], ["b"], body, [helper.make_opsetid("own", 1)]
    )
    node = helper.make_node("Again", ["x"], ["y"], domain="own")
    return model(graph([node], [info("x", [2])], [info("y", None)]), functions=[function])


def doubling(depth: int) -> ModelProto:
    """Functions that each call the one before twice."""
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own", "F0", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], sets
        )
    ]
    for k in range(1, depth):
        body = [
            helper.make_node(f"F{k - 1}", ["a"], ["c"], domain="own"),
            helper.make_node(f"F{k - 1}", ["c"], ["b"], domain="own"),
        ]
        functions.append(helper.make_function("own", f"F{k}", ["a"], ["b"], body, sets))
    node = helper.make_node(f"F{depth - 1}", ["x"], ["y"], domain="own")
    return model(graph([node], [info("x", [2])], [info("y", None)]), functions=functions)


def nested(depth: int, *, is_known: bool = False) -> ModelProto:
    """Branches in branches; a run finds which are taken, or all know it."""
    short = graph([helper.make_node("Neg", ["x"], ["z0"])], [], [info("z0", None)])
    inner = short
    for k in range(1, depth):
        node = helper.make_node("If", ["yes"], [f"z{k}"], then_branch=inner, else_branch=short)
        inner = graph([node], [], [info(f"z{k}", None)])
    node = helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=short)
    if is_known:
        yes = stored("yes", np.array(True))
        return model(graph([node], [info("x", [2])], [info("y", None)], [yes]))
    given = [info("x", [2]), info("yes", [], TensorProto.BOOL)]
    return model(graph([node], given, [info("y", None)]))


def message(number: int, *parts: bytes) -> bytes:
    """A field of protobuf's that holds others."""
    body = b"".join(parts)
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def deeper_than_protobuf(depth: int) -> bytes:
    """The bytes of branches in branches, which protobuf itself would not write."""
    innermost = graph([helper.make_node("Neg", ["x"], ["z"])], [], [info("z", None)])
    data = innermost.SerializeToString()
    for _ in range(depth):
        kind = _varint(20 << 3) + _varint(5)  # AttributeProto.GRAPH
        attributes = [
            message(5, message(1, name), message(6, data if name == b"then_branch" else b""), kind)
            for name in (b"then_branch", b"else_branch")
        ]
        node = message(1, message(1, b"yes"), message(2, b"z"), message(4, b"If"), *attributes)
        data = node + message(12, info("z", None).SerializeToString())
    return _varint(8) + _varint(9) + message(7, data) + message(8, _varint(16) + _varint(17))


def looping(trips: int | None) -> ModelProto:
    """A loop whose condition stays true."""
    nodes = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["a"], ["b"])]
    truth = TensorProto.BOOL
    given = [info("i", [], TensorProto.INT64), info("go", [], truth), info("a", [2])]
    body = graph(nodes, given, [info("on", [], truth), info("b", [2])])
    count = [] if trips is None else [stored("n", np.array(trips))]
    node = helper.make_node("Loop", ["n" if count else "", "", "x"], ["y"], body=body)
    return model(graph([node], [info("x", [2])], [info("y", None)], count))


def with_tensor(tensor: TensorProto) -> ModelProto:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return model(graph([node], [info("x", [2])], [info("y", None)], [tensor]))


def twice_named() -> ModelProto:
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    return model(graph(nodes, [info("x", [2])], [info("y", None)]))


def without_versions() -> ModelProto:
    made = chain([("x", "y")])
    del made.opset_import[:]
    return made


def with_type(kind: int) -> ModelProto:
    made = chain([("x", "y")])
    made.graph.input[0].type.tensor_type.elem_type = kind
    return made


def with_versions(*versions: tuple[str, int]) -> ModelProto:
    made = without_versions()
    made.opset_import.extend(helper.make_opsetid(*one) for one in versions)
    return made


def calls_each_other() -> ModelProto:
    sets = [helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own", a, ["a"], ["b"], [helper.make_node(b, ["a"], ["b"], domain="own")], sets
        )
        for a, b in (("There", "Back"), ("Back", "There"))
    ]
    node = helper.make_node("There", ["x"], ["y"], domain="own")
    return model(graph([node], [info("x", [2])], [info("y", None)]), functions=functions)


def loops_in_loops(depth: int, trips: int) -> ModelProto:
    """Each short by itself."""
    truth = TensorProto.BOOL
    inner = [helper.make_node("Neg", ["a0"], ["b0"])]
    for k in range(depth):
        given = [info(f"i{k}", [], TensorProto.INT64), info(f"go{k}", [], truth)]
        nodes = [helper.make_node("Identity", [f"go{k}"], [f"on{k}"]), *inner]
        made = [info(f"on{k}", [], truth), info(f"b{k}", [2])]
        body = graph(nodes, [*given, info(f"a{k}", [2])], made)
        x, y = ("x", "y") if k == depth - 1 else (f"a{k + 1}", f"b{k + 1}")
        inner = [helper.make_node("Loop", ["n", "", x], [y], body=body)]
    held = [stored("n", np.array(trips))]
    return model(graph(inner, [info("x", [2])], [info("y", None)], held))


def sparse(values: list[float], indices: Any, shape: list[int]) -> ModelProto:
    made = chain([("x", "y")])
    made.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"]))
    one = made.graph.sparse_initializer.add()
    one.values.CopyFrom(stored("w", np.asarray(values, np.float32)))
    one.indices.CopyFrom(stored("places", np.asarray(indices, np.int64)))
    one.dims.extend(shape)
    return made


def matching(pattern: str) -> ModelProto:
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)
    given, made = info("x", [2], TensorProto.STRING), info("y", None, TensorProto.BOOL)
    return model(graph([node], [given], [made]), 20)


def with_constant(op: str, numbers: list[int]) -> ModelProto:
    node = helper.make_node(op, ["x", "s"], ["y"])
    held = [stored("s", np.array(numbers))]
    return model(graph([node], [info("x", [4])], [info("y", None)], held))


LIES: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "a cycle": (lambda: chain([("b", "a"), ("a", "b"), ("x", "y")]), "made by no node before it"),
    "an undefined name": (lambda: chain([("nothing", "y")]), "'nothing' is made by no node"),
    "an output nobody makes": (lambda: chain([("x", "z")]), "'y', is made by no node"),
    "a name made twice": (twice_named, "'y' is the name of something else too"),
    "an input's name made again": (lambda: chain([("x", "x"), ("x", "y")]), "something else too"),
    "a function that calls itself": (calls_itself, "function 'Again' calls itself"),
    "functions that double": (lambda: doubling(30), "nodes, its functions counted"),
    "graphs in graphs": (lambda: nested(32), "graphs are nested more than 32 deep"),
    "graphs in graphs that are known": (
        lambda: nested(32, is_known=True),
        "graphs are nested more than 32 deep",
    ),
    "a loop without an end": (lambda: looping(None), "it would never end"),
    "a loop of 2^62 trips": (lambda: looping(2**62), "it would run for days"),
    "a hundred axes": (
        lambda: bomb("Expand", x=np.ones(1, np.float32), shape=np.ones(100, np.int64)),
        "has 100 axes",
    ),
    "no operator set": (without_versions, "does not say which version"),
    "an old operator set": (lambda: one_node("Neg", version=5), "version 5 of ONNX's operators"),
    "a future operator set": (lambda: one_node("Neg", version=999), "version 999"),
    "an unknown type": (lambda: with_type(77), "no element type 77"),
    "a negative size": (
        lambda: with_tensor(TensorProto(name="w", data_type=1, dims=[-2], float_data=[1, 2])),
        "which is none",
    ),
    "2^60 elements": (
        lambda: with_tensor(TensorProto(name="w", data_type=1, dims=[2**31, 2**31])),
        "elements",
    ),
    "more elements than numbers": (
        lambda: with_tensor(TensorProto(name="w", data_type=1, dims=[10**9], float_data=[1.0])),
        "takes 1000000000 numbers, and has 1",
    ),
    "raw bytes that are too few": (
        lambda: with_tensor(TensorProto(name="w", data_type=1, dims=[4], raw_data=b"1234")),
        "takes 16 bytes, and has 4",
    ),
    "an unknown operator": (lambda: one_node("Frobnicate"), "'Frobnicate' of ai.onnx 17"),
    "an escape in a name": (lambda: one_node("Ev\x1bil"), r"Ev\\x1bil"),
    "a version below all": (lambda: with_versions(("", -(2**63))), "which can't be"),
    "a version beyond all": (lambda: with_versions(("", 17), ("own", 2**62)), "which can't be"),
    "two versions of one set": (
        lambda: with_versions(("", 17), ("ai.onnx", 9)),
        "of versions 17 and 9",
    ),
    "versions of others alone": (lambda: with_versions(("own", 1)), "does not say which version"),
    "functions that call each other": (calls_each_other, "function '(There|Back)' calls itself"),
    "loops in loops": (lambda: loops_in_loops(5, 1000), "10+ times, as loops around it say"),
    "a product of sizes over 64 bits": (
        lambda: with_tensor(TensorProto(name="w", data_type=1, dims=[2**32, 2**32])),
        "would have 18446744073709551616 elements",
    ),
    "a sparse index outside": (lambda: sparse([1, 2], [0, 99], [4]), "indices outside"),
    "a sparse index below": (lambda: sparse([1, 2], [-1, 0], [4]), "indices outside"),
    "a sparse index twice": (lambda: sparse([1, 2], [1, 1], [4]), "are to grow"),
    "sparse indices of other axes": (
        lambda: sparse([1, 2], [[0, 1, 2], [0, 1, 3]], [4]),
        "indices outside",
    ),
    "fewer sparse values than indices": (lambda: sparse([1], [0, 1], [4]), "one for each value"),
    "a sparse tensor of 2^80": (lambda: sparse([1], [5], [2**40, 2**40]), "at most 268435456"),
    "a sparse tensor of no size": (lambda: sparse([1], [0], [-4]), "would have -4 elements"),
    "a sum over 100,000 letters": (
        lambda: one_node("Einsum", equation="a" * 100_000),
        r"einsum 'a{77}'\.\.\.",
    ),
    "100,000 dots": (lambda: one_node("Einsum", 2, equation="." * 100_000), "1 terms for 2"),
    "an expression of 10^9 states": (
        lambda: matching("((a{1000}){1000}){1000}"),
        "more than 10000 states",
    ),
    "100,000 parentheses": (
        lambda: matching("(" * 100_000 + "a" + ")" * 100_000),
        "nested more than 100 deep",
    ),
    "negative sizes of a shape": (lambda: with_constant("Reshape", [-2, -2]), "a negative size"),
    "negative repeats": (lambda: with_constant("Tile", [-2]), "may be negative"),
    "a negative k": (lambda: with_constant("TopK", [-2]), "k = -2 of an axis"),
    "an index of 2^62": (lambda: with_constant("Gather", [2**62]), "is outside of axis 0"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_in_bounded_memory(lie: str) -> None:
    make, reason = LIES[lie]
    data = make().SerializeToString()
    opened(one_node("Neg"))  # so that what is loaded once is loaded
    tracemalloc.start()
    try:
        with pytest.raises((InvalidFile, NotSupported), match=reason) as caught:
            translated(opened(ModelProto.FromString(data)))
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert "m.onnx" in text
    assert len(text) < 2000
    assert text.isprintable()


def test_a_sum_over_products_of_all_is_planned_or_refused() -> None:
    letters = "abcdefghijklmnopqrst"
    made = one_node("Einsum", 20, equation=",".join(letters) + "->" + letters)
    for one in made.graph.input:
        one.type.tensor_type.shape.dim[0].dim_value = 50
    with limited(60, 2**30), pytest.raises(AreniteError, match="bytes is not within"):
        Model.of_bytes(made.SerializeToString()).plan()


def test_names_of_branches_may_be_those_around_them() -> None:
    """Two branches, and the graph they stand in, each have a `t`."""
    sides = [graph([helper.make_node(op, ["x"], ["t"])], [], [info("t", None)])
             for op in ("Neg", "Abs")]  # fmt: skip
    nodes = [
        helper.make_node("Exp", ["x"], ["t"]),
        helper.make_node("If", ["c"], ["u"], then_branch=sides[0], else_branch=sides[1]),
        helper.make_node("Sub", ["t", "u"], ["y"]),
    ]
    given = [info("x", [2]), info("c", [], TensorProto.BOOL)]
    x = np.array([1, -2], np.float32)
    for truth, side in ((True, -x), (False, np.abs(x))):
        [found] = results(model(graph(nodes, given, [info("y", None)])), x, np.array(truth))
        np.testing.assert_allclose(found, np.exp(x) - side, rtol=1e-6)


def test_60_000_nodes_take_no_more_for_each_than_few_do() -> None:
    """Each turns a sign: what nodes become when they cancel is not told of all of them."""
    made = chain([(f"t{k}" if k else "x", f"t{k + 1}") for k in range(59_999)])
    made.graph.node.append(helper.make_node("Neg", ["t59999"], ["y"]))
    file = opened(made)
    plan = Model(file).plan()
    assert plan.peak_nbytes < 2**20
    simplified, _ = passes.run(translated(file).graph, passes.NEUTRAL)
    [output] = simplified.outputs
    assert len(simplified.origins.of(output)) <= MAX_ORIGINS


def test_tensors_that_nobody_names_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made = chain([("x", "y")])
    empty = [TensorProto(name=f"w{k}", data_type=1, dims=[0]) for k in range(100_000)]
    made.graph.initializer.extend(empty)
    file = opened(made)
    read: list[str] = []
    monkeypatch.setattr(OnnxFile, "tensor", lambda _, one: read.append(one.name))
    translated(file)
    assert read == []


def test_expressions_that_go_back_elsewhere_are_linear_here() -> None:
    """(a+)+b of a thousand a: exponential for those who try all ways."""
    exe = Model.of_bytes(matching("(a+)+b" * 20).SerializeToString()).compile(threads=1)
    with exe, limited(60, 2**30):
        found = exe(np.array(["a" * 5000, ("a" * 50 + "b") * 20]))["y"]
    np.testing.assert_array_equal(found, [False, True])


@pytest.mark.parametrize("depth", [33, 99, 600])
def test_graphs_deeper_than_protobuf_reads_are_refused(depth: int) -> None:
    with pytest.raises(InvalidFile, match=r"m\.onnx.*(MaxDepth|nested more than 100 deep)"):
        translated(OnnxFile.of_bytes(deeper_than_protobuf(depth), "m.onnx"))


@pytest.mark.parametrize("is_known", [False, True])
def test_graphs_as_deep_as_may_be_give_what_they_say(is_known: bool) -> None:
    """31 branches in the model's own graph: 32 graphs."""
    x = np.array([1, -2], np.float32)
    for depth in (1, 8, 31):
        made = nested(depth, is_known=is_known)
        for truth in (True, False):
            given = [x] if is_known else [x, np.array(truth)]
            np.testing.assert_array_equal(results(made, *given)[0], -x)
    with Model.of_bytes(made.SerializeToString()).compile(threads=1) as program:
        np.testing.assert_array_equal(program(*given)["y"], -x)


@pytest.mark.parametrize("trips", [-(2**63), -1, 0, 1, 1000])
def test_loops_that_end_make_their_trips(trips: int) -> None:
    x = np.array([1, 2], np.float32)
    [found] = results(looping(trips), x)
    np.testing.assert_array_equal(found, x if trips < 1 or trips % 2 == 0 else -x)


def test_a_sum_over_more_channels_than_there_are_is_one_over_all() -> None:
    x = np.arange(1, 4, dtype=np.float32).reshape(1, 3, 1)
    for size in (7, 2**40):
        node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=float(size), bias=1.0)
        made = model(graph([node], [info("x", [1, 3, 1])], [info("y", None)]))
        [found] = results(made, x)
        np.testing.assert_allclose(found, x / 15**0.75, rtol=1e-6)


def test_a_plan_of_a_convolution_with_pads_of_2_to_40_ends() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[2**40] * 4)
    weights = [stored("w", np.ones((1, 1, 2, 2), np.float32))]
    made = model(graph([node], [info("x", [1, 1, 4, 4])], [info("y", None)], weights))
    with limited(30, 1 << 30), contextlib.suppress(AreniteError):
        Model.of_bytes(made.SerializeToString()).plan()


def test_a_value_that_a_loop_doubles_is_as_long_as_it_says() -> None:
    nodes = [
        helper.make_node("Identity", ["go"], ["on"]),
        helper.make_node("Concat", ["a", "a"], ["b"], axis=0),
    ]
    truth = TensorProto.BOOL
    given = [info("i", [], TensorProto.INT64), info("go", [], truth), info("a", [None])]
    body = graph(nodes, given, [info("on", [], truth), info("b", [None])])
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    for trips in (0, 5):
        count = [stored("n", np.array(trips))]
        made = model(graph([loop], [info("x", [2])], [info("y", None)], count))
        x = np.array([1, 2], np.float32)
        with Model.of_bytes(made.SerializeToString()).compile(threads=1) as program:
            np.testing.assert_array_equal(program(x)["y"], np.tile(x, 2**trips))
    count = [stored("n", np.array(60))]
    made = model(graph([loop], [info("x", [2])], [info("y", None)], count))
    with (
        Model.of_bytes(made.SerializeToString()).compile(memory="64MiB", threads=1) as program,
        pytest.raises(AreniteError, match=r"memory|bytes"),
    ):
        program(x)


def test_every_unknown_operator_is_listed_with_node_and_version() -> None:
    inner = graph([helper.make_node("Inner", ["x"], ["z"], name="deep")], [], [info("z", None)])
    nodes = [
        helper.make_node("Odd", ["x"], ["a"], name="first"),
        helper.make_node("Odd", ["a"], ["b"], name="second"),
        helper.make_node("Strange", ["b"], ["c"], domain="far.away"),
        helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner),
    ]
    given = [info("x", [2]), info("yes", [], TensorProto.BOOL)]
    with pytest.raises(NotSupported) as caught:
        translated(opened(model(graph(nodes, given, [info("y", None)]))))
    text = str(caught.value)
    assert "'Odd' of ai.onnx 17 (node 'first' and 1 more)" in text
    assert "'Strange' of far.away 1 (node 'c')" in text
    assert "'Inner' of ai.onnx 17 (node 'deep' and 1 more)" in text


def bomb(op: str, n_outputs: int = 1, **inputs: Any) -> ModelProto:
    """A node with constants that ask for very much."""
    tensors = [stored(name, array) for name, array in inputs.items()]
    outputs = [f"y{k}" for k in range(n_outputs)]
    node = helper.make_node(op, [*inputs], outputs, name="bomb")
    kinds = [info(name, None) for name in outputs]
    return model(graph([node], [], kinds, tensors))


MANY = np.asarray([10**15], np.int64)
BOMBS: dict[str, Callable[[], ModelProto]] = {
    "Expand": lambda: bomb("Expand", x=np.ones(1, np.float32), shape=MANY),
    "Tile": lambda: bomb("Tile", x=np.ones(1, np.float32), repeats=MANY),
    "ConstantOfShape": lambda: bomb("ConstantOfShape", shape=MANY),
    "Pad": lambda: bomb("Pad", x=np.ones(1, np.float32), pads=np.asarray([10**15, 0])),
    "Range": lambda: bomb(
        "Range", start=np.int64(0), limit=np.int64(10**15), delta=np.int64(1)
    ),
    "Resize": lambda: bomb(
        "Resize", x=np.ones((1, 1, 1, 1), np.float32), roi=np.zeros(0, np.float32),
        scales=np.zeros(0, np.float32), sizes=np.asarray([1, 1, 10**7, 10**8]),
    ),
    "OneHot": lambda: bomb(
        "OneHot", indices=np.zeros(1, np.int64), depth=np.int64(10**15),
        values=np.arange(2, dtype=np.float32),
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", BOMBS)
def test_shapes_beyond_all_memory_cost_nothing_to_read(op: str) -> None:
    """Reading gives a graph whose plan says what it would take, or one clear error."""
    data = BOMBS[op]().SerializeToString()
    tracemalloc.start()
    try:
        read_or_refused(data)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
