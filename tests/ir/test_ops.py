"""Ops: their types, and meanings NumPy has no name for.

Values are held against NumPy and PyTorch in tests/tensor, through the methods that use them.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.device import Buffer
from arenite.dtype import BY_NAME
from arenite.errors import (
    IndexOutOfRange,
)
from arenite.ir import (
    OPS,
    BufferSource,
    Graph,
    Node,
    Var,
    buffer,
    constant,
    evaluate,
    full,
    make,
    verify,
)
from arenite.ir.dim import bounds
from arenite.ir.ops.sources import philox
from tests.ir.op_examples import ALL_EXAMPLES, numbers, x

F32, I8, I64, U8, BOOL = (BY_NAME[n] for n in ("float32", "int8", "int64", "uint8", "bool"))
C64, Q4 = BY_NAME["complex64"], BY_NAME["q4_0"]


def run(node: Node, *arrays: Any, **bindings: int) -> Any:
    graph = Graph.of([node])
    verify(graph)
    return evaluate(graph, list(arrays), bindings)[0]


@pytest.mark.parametrize("op", [op for op in OPS if op != "parameter"])
def test_every_op_has_a_type_and_a_meaning(op: str) -> None:
    node = ALL_EXAMPLES[op]()
    assert node.op == op
    graph = Graph.of([node])
    verify(graph)
    bindings = {var.name: var.low for var in graph.vars}
    first = evaluate(graph, [numbers(i) for i in graph.inputs], bindings)[0]
    again = evaluate(graph, [numbers(i) for i in graph.inputs], bindings)[0]
    np.testing.assert_array_equal(first, again)


def test_every_family_is_a_word() -> None:
    assert {definition.family for definition in OPS.values()} == set(
        (
            "source elementwise movement reduction scan indexing sort contraction convolution "
            "control host packing transfer"
        ).split()
    )


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_windows_slide(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    axes = data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(1, len(shape)))]
    sizes, strides, dilations = [], [], []
    for axis in axes:
        dilation = data.draw(st.integers(1, 2))
        sizes.append(data.draw(st.integers(1, (shape[axis] - 1) // dilation + 1)))
        strides.append(data.draw(st.integers(1, 3)))
        dilations.append(dilation)
    node = make(
        "window",
        x(*shape),
        axes=tuple(axes),
        sizes=tuple(sizes),
        strides=tuple(strides),
        dilations=tuple(dilations),
    )
    array = np.random.default_rng(0).random(shape).astype(np.float32)
    result = run(node, array)
    for place in itertools.product(*map(range, result.shape)):
        source = list(place[: len(shape)])
        for i, axis in enumerate(axes):
            source[axis] = place[axis] * strides[i] + place[len(shape) + i] * dilations[i]
        assert result[place] == array[tuple(source)]


def test_a_step_between_windows_that_is_never_taken_may_be_huge() -> None:
    node = make("window", x(5), axes=(0,), sizes=(1,), strides=(2**62,), dilations=(2**62,))
    np.testing.assert_array_equal(run(node, np.arange(5, dtype=np.float32)), [[0]])


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000" * 4, "00000000" * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff" * 4, "ffffffff" * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a8885a308d313198a2e03707344",
            "a4093822299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_numbers(counter: str, key: str, expected: str) -> None:
    """Known answers of the authors' library Random123, file kat_vectors, philox4x32-10."""
    words = [int(counter[i : i + 8], 16) for i in range(0, 32, 8)]
    made = philox(np.array([words], np.uint32), (int(key[:8], 16), int(key[8:], 16)))
    assert [f"{word:08x}" for word in made[0]] == expected.split()


def test_random_bits_are_a_function_of_seed_counter_and_place() -> None:
    seed = full((), 0x299F31D0A4093822, BY_NAME["uint64"])
    bits = run(make("random_bits", seed, counter=0x0370734413198A2E, shape=(3, 3)))
    words = np.array([[i, 0, 0x13198A2E, 0x03707344] for i in range(3)], np.uint32)
    expected = philox(words, (0xA4093822, 0x299F31D0)).reshape(-1)[:9]
    np.testing.assert_array_equal(bits.reshape(-1), expected)


@pytest.mark.parametrize("a", [I8, U8])
@pytest.mark.parametrize("b", [I8, U8])
def test_products_of_bytes_are_int32(a: Any, b: Any) -> None:
    rng = np.random.default_rng(0)
    left, right = (
        rng.integers(np.iinfo(t.name).min, np.iinfo(t.name).max, shape).astype(t.name)
        for t, shape in ((a, (3, 50)), (b, (50, 4)))
    )
    node = make(
        "matmul",
        x(3, 50, dtype=a),
        x(50, 4, index=1, dtype=b),
        transpose_a=False,
        transpose_b=False,
    )
    assert node.dtype.name == "int32"
    expected = left.astype(np.int64) @ right.astype(np.int64)
    np.testing.assert_array_equal(run(node, left, right), expected)
    conv = make(
        "conv",
        x(1, 50, 3, dtype=a),
        x(4, 50, 1, index=1, dtype=b),
        strides=(1,),
        padding=((0, 0),),
        dilations=(1,),
        groups=1,
    )
    made = run(conv, left.T[None], right.T[:, :, None])
    np.testing.assert_array_equal(made[0].T, expected)


@pytest.mark.parametrize(
    ("transpose_a", "transpose_b"), [*itertools.product([False, True], repeat=2)]
)
def test_matmul_transposes(transpose_a: bool, transpose_b: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 3, 4)).astype(np.float32), rng.random((4, 5)).astype(np.float32)
    given_a = a.swapaxes(1, 2) if transpose_a else a
    given_b = b.T if transpose_b else b
    node = make(
        "matmul",
        x(*given_a.shape),
        x(*given_b.shape, index=1),
        transpose_a=transpose_a,
        transpose_b=transpose_b,
    )
    np.testing.assert_allclose(run(node, given_a, given_b), a @ b, rtol=1e-6)


def test_scattering_in_order() -> None:
    data, places = np.zeros(3, np.float32), np.array([1, 1, 2])
    updates = np.array([5, 7, 9], np.float32)
    for reduction, expected in (
        ("none", [0, 7, 9]),
        ("add", [0, 12, 9]),
        ("mul", [0, 0, 0]),
        ("min", [0, 0, 0]),
        ("max", [0, 7, 9]),
    ):
        node = make(
            "scatter_elements",
            x(3),
            constant(places),
            x(3, index=1),
            axis=0,
            reduction=reduction,
        )
        assert run(node, data, updates).tolist() == expected


@pytest.mark.parametrize("op", ["gather", "gather_elements", "scatter_elements"])
@pytest.mark.parametrize("wrong", [-1, 3])
def test_indices_are_checked(op: str, wrong: int) -> None:
    places = constant(np.array([0, wrong]))
    inputs = [x(3), places, x(2, index=1)] if op == "scatter_elements" else [x(3), places]
    attrs: dict[str, Any] = {"axis": 0}
    if op == "scatter_elements":
        attrs["reduction"] = "none"
    arrays = [np.zeros(3, np.float32), np.zeros(2, np.float32)][: len(inputs) - 1]
    message = f"{op}: index {wrong} is not within 0..2 of axis 0"
    with pytest.raises(IndexOutOfRange, match=message):
        run(make(op, *inputs, **attrs), *arrays)


def test_reductions_of_nothing() -> None:
    empty = np.zeros((0, 2), np.float32)
    for op, expected in (("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)):
        assert run(make(op, x(0, 2), axes=(0,)), empty).tolist() == [expected] * 2
    for op in ("argmax", "argmin"):
        assert run(make(op, x(0, 2), axis=0), empty).tolist() == [0, 0]
    ints = np.zeros((0,), np.int8)
    assert run(make("max", x(0, dtype=I8), axes=(0,)), ints) == -128
    assert run(make("min", x(0, dtype=I8), axes=(0,)), ints) == 127
    bools = np.zeros((0,), bool)
    assert not run(make("max", x(0, dtype=BOOL), axes=(0,)), bools)
    assert run(make("min", x(0, dtype=BOOL), axes=(0,)), bools)


def test_buffers_and_constants() -> None:
    data = np.arange(6, dtype=np.float32)
    source = buffer(data).attr("source")
    assert source.storage is data
    assert not source.array().flags.writeable
    assert repr(source) == f"BufferSource({source.id})"
    held = Buffer.from_array(data)
    assert BufferSource(held).array().tolist() == data.tolist()
    assert run(buffer(held)).tolist() == data.tolist()
    made = constant(data)
    data[0] = 9
    assert made.attr("data").array[0] == 0
    assert repr(made.attr("data")).startswith("ConstantData(")
    import ml_dtypes

    tiny = np.array([-8, 7, 3], ml_dtypes.int4)
    assert run(buffer(tiny)).tolist() == run(constant(tiny)).tolist() == [-8, 7, 3]
    packed = buffer(tiny).attr("source").storage
    assert bytes(packed.as_host_bytes()) == b"\x78\x03"


def test_sizes_of_results_may_be_open() -> None:
    n = Var("n", 3, 9)
    image = x(n, 4, 2 * n, 7)
    kernel = x(8, 4, 3, 3, index=1)
    attrs: dict[str, Any] = {
        "strides": (2, 1),
        "padding": ((1, 1), (0, 0)),
        "dilations": (1, 1),
        "groups": 1,
    }
    assert make("conv", image, kernel, **attrs).shape == (n, 8, n, 5)
    del attrs["groups"]
    turned, panels = x(n, 2 * n, 7, 4), x(1, 1, 3, 3, 4, 16, index=1)
    assert make("conv_last", turned, panels, channels=8, **attrs).shape == (n, n, 5, 8)
    assert make("depthwise_last", turned, x(3, 3, 4), **attrs).shape == (n, n, 5, 4)
    joined = make("concat", image, image, axis=2)
    assert joined.shape[2] == 4 * n
    assert bounds(joined.shape[2]) == (12, 36)
    backwards = make("slice", x(n), start=(n - 1,), stop=(-1,), step=(-2,))
    assert backwards.shape == ((n + 1) // 2,)


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "bfloat16", "float16"])
@pytest.mark.parametrize("descending", [False, True])
def test_nan_is_the_greatest_of_every_float_that_is_sorted(name: str, descending: bool) -> None:
    """NumPy itself sorts what ml_dtypes calls a float, and has NaN anywhere."""
    given = np.array([1, np.nan, 0, 2, 0, -1, np.nan, 5, 0], np.float32)
    array = given.astype(BY_NAME[name].to_numpy())
    nodes = [
        make("argsort", constant(array), axis=0, descending=descending),
        make("select", constant(array), count=9, descending=descending),
        make("argmax", constant(array), axis=0),
    ]
    places, selected, greatest = evaluate(Graph.of(nodes))
    ascending, downwards = [5, 2, 4, 8, 0, 3, 7, 1, 6], [1, 6, 7, 3, 0, 2, 4, 8, 5]
    np.testing.assert_array_equal(places, downwards if descending else ascending)
    np.testing.assert_array_equal(selected, places)
    assert greatest == 1
