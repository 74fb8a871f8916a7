"""Elements of every dtype the device has: integers wrap at their width, floats round as NumPy's,
NaN and infinities stay what they are. And what loops say that no graph of these tests says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from arenite.backends.webgpu.build import build
from arenite.codegen import loop_ir as ir
from arenite.codegen.groups import grouped
from arenite.codegen.index_width import narrow_indices
from arenite.device.webgpu import FEATURES
from arenite.dtype import BY_NAME, DType, Kind
from arenite.errors import IndexOutOfRange, NotCompiled, RunFailed
from arenite.ir import full, graph_input, make, reference
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from arenite.schedule import fuse
from tests.backends.webgpu.runner import (
    ON_WEBGPU,
    compiled,
    executable,
    expected,
    flushed,
    launch,
    nearest,
    run,
    webgpu,
)
from tests.pipeline.trial import same, sample

F32, F16, BF16, I32 = (BY_NAME[name] for name in ("float32", "float16", "bfloat16", "int32"))
WHOLE = "neg abs sign add sub mul floordiv mod fmod maximum pow shift_left shift_right lt".split()
FLOAT = "abs sign round trunc isnan isinf sqrt add mul div maximum minimum eq ne lt ge".split()
UNARY = frozenset("neg abs sign round trunc isnan isinf sqrt".split())
#: Where the device rounds as it likes.
ULPS = {"sqrt": 4, "div": 4}


@pytest.mark.parametrize("name", ["int8", "uint16", "int32", "float16", "float32"])
def test_arithmetic_is_numpys_up_to_the_edges(name: str) -> None:
    webgpu()
    dtype = BY_NAME[name]
    inputs = [graph_input(f"x{k}", k, (3, 37), dtype) for k in (0, 1)]
    arrays = [sample((3, 37), dtype, seed) for seed in (0, 1)]
    ops = FLOAT if dtype.kind is Kind.FLOAT else WHOLE
    nodes = [make(op, *inputs[: 1 if op in UNARY else 2]) for op in ops]
    nodes += [make("cast", inputs[0], dtype=BY_NAME[to]) for to in ("bool", "uint8", "int16")]
    graph = Graph(tuple(inputs), tuple(nodes))
    with compile_graph(graph, ON_WEBGPU) as program:
        found = program(*arrays)
    for node, one, wanted in zip(nodes, found, expected(graph, arrays, found), strict=True):
        same(one, wanted, ULPS.get(node.op, 0) if dtype.kind is Kind.FLOAT else 0, node)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_every_small_float_is_read_and_rounded_exactly(dtype: DType) -> None:
    webgpu()
    small = np.arange(2**16, dtype=np.uint16).view(dtype.to_numpy())
    [wide] = run([make("cast", graph_input("x", 0, (2**16,), dtype), dtype=F32)], small)
    with np.errstate(invalid="ignore"):
        wanted = small.astype(np.float32)
    np.testing.assert_array_equal(wide, wanted)
    # Halfway between neighbours, a bit beside it, and numbers too large and too small.
    rng = np.random.default_rng(0)
    bits = wanted.view(np.uint32) + rng.choice([0, 1, 2**12, 2**12 + 1, 2**15, 2**15 - 1], 2**16)
    given = bits.astype(np.uint32).view(np.float32)
    [narrow] = run([make("cast", graph_input("x", 0, (2**16,), F32), dtype=dtype)], given)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = given.astype(ml_dtypes.bfloat16 if dtype == BF16 else np.float16)
    both = ~np.isnan(given)
    np.testing.assert_array_equal(narrow.view(np.uint16)[both], rounded.view(np.uint16)[both])
    assert np.isnan(narrow[~both].astype(np.float32)).all()


def test_a_bool_is_a_byte() -> None:
    webgpu()
    given = np.random.default_rng(0).integers(0, 2, 1001).astype(bool)
    [found] = run([make("not", graph_input("x", 0, (1001,), BY_NAME["bool"]))], given)
    np.testing.assert_array_equal(found, ~given)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_numbers_are_stored_beside_elements_that_share_words(name: str) -> None:
    webgpu()
    given = sample((5, 7), BY_NAME["complex64"], 0, edges=False)
    x = graph_input("x", 0, (5, 7), BY_NAME["complex64"])
    wide = make("cast", make("real", x), dtype=F32)
    nodes = [wide, make("cast", wide, dtype=F16), make("cast", wide, dtype=BY_NAME[name])]
    whole, half, parts = run(nodes, given)
    np.testing.assert_array_equal(whole, given.real)
    np.testing.assert_array_equal(half, given.real.astype(np.float16))
    np.testing.assert_array_equal(parts, given.real.astype(name))


def test_infinities_and_small_numbers_are_constants_too() -> None:

    gpu = webgpu()
    x = graph_input("x", 0, (4,), F32)
    numbers = [np.inf, -np.inf, np.nan, 1e-41, -0.0, 3.4028235e38]
    found = run([x + number for number in numbers], np.full(4, -0.0, np.float32))
    for one, number in zip(found, numbers, strict=True):
        wanted = np.full(4, np.float32(-0.0) + np.float32(number))
        if not gpu.keeps_denormals:
            wanted = nearest(one, [wanted, flushed(wanted)])
        np.testing.assert_array_equal(one, wanted)
        assert (np.signbit(one) == np.signbit(wanted)).all() or np.isnan(number)


def test_signs_are_bits_whatever_arithmetic_makes_of_denormals() -> None:
    webgpu()
    given = np.array([1e-41, -1e-41, 0.0, -0.0, -np.inf, 1.5], np.float32)
    x = graph_input("x", 0, (6,), F32)
    found = run([make("abs", x), make("neg", x)], given)
    for one, other in zip(found, [np.abs(given), -given], strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


def test_division_by_numbers_whose_reciprocal_is_a_denormal() -> None:
    webgpu()
    rng = np.random.default_rng(0)
    a = rng.uniform(-3e38, 3e38, 500).astype(np.float32)
    b = rng.uniform(8e37, 3.4e38, 500).astype(np.float32)
    a[:2], b[:2] = [np.inf, 1.0], [3e38, np.inf]
    inputs = [graph_input(f"x{k}", k, (500,), F32) for k in (0, 1)]
    node = make("div", *inputs)
    [found] = run([node], a, b)
    same(found, a / b, ULPS["div"], node)


def test_the_device_says_what_becomes_of_denormals() -> None:
    gpu = webgpu()
    x, y = (graph_input(f"x{k}", k, (2,), F32) for k in (0, 1))
    given = np.array([1e-40, 2e-38], np.float32), np.array([0.5, 0.25], np.float32)
    [found] = run([make("mul", x, y)], *given)
    assert gpu.keeps_denormals == np.array_equal(found, given[0] * given[1])


def test_zeros_are_forgiven_for_denormals_alone_and_only_of_devices_that_make_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = webgpu()
    arrays = [np.array([1e-40, 2e-38, np.nan, 1.0], np.float32)]
    x = graph_input("x", 0, (4,), F32)
    graph = Graph((x,), (make("add", x, x), make("rsqrt", x), make("gt", x, make("neg", x))))
    exact = reference.evaluate(graph, arrays)
    as_zero = reference.evaluate(graph, [flushed(arrays[0])])
    assert all(one[0] != other[0] for one, other in zip(exact, as_zero, strict=True))
    nothing = [np.zeros_like(one) for one in exact]
    for keeps, accepted in ((True, exact), (False, as_zero)):
        monkeypatch.setitem(vars(gpu), "keeps_denormals", keeps)
        for given, wanted in ((exact, exact), (as_zero, accepted)):
            for one, other in zip(expected(graph, arrays, given), wanted, strict=True):
                np.testing.assert_array_equal(one, other)
        for one, other in zip(expected(graph, arrays, nothing), exact, strict=True):
            np.testing.assert_array_equal(one[1:], other[1:])


# Loops by hand


def gathering(error: int) -> ir.GroupKernel:
    """b[v] = a[at[v]], where that is inside."""
    v, at, inside = ir.Name("v"), ir.Name("at"), ir.Name("inside", ir.BOOL)
    n = ir.Name("n")
    body = (
        ir.Let("at", ir.Cast(ir.Load("where", v, I32), ir.INT64)),
        ir.Let("inside", (at >= 0) & (at < n)),
        ir.Require(inside, ir.index(error)),
        ir.Store("b", v, ir.Load("a", at, F32, inside, ir.Const(-1.0, F32))),
    )
    arrays = (
        ir.ArrayArg("a", F32, "in"),
        ir.ArrayArg("where", I32, "in"),
        ir.ArrayArg("b", F32, "out"),
    )
    loop = ir.For("v", ir.index(0), n, body, vector=True)
    plain = ir.LoopKernel("gathering", arrays, ("n",), ir.index(1), "tile", (loop,))
    return narrow_indices(grouped(plain, 64), {"n": (1, 1000)})


def given(n: int, **arrays: Any) -> dict[str, Any]:
    a = np.arange(n, dtype=np.float32)
    where = np.arange(n, dtype=np.int32)[::-1].copy()
    return {"a": a, "where": where, "b": np.zeros(n, np.float32)} | arrays


def test_a_requirement_that_holds_says_nothing() -> None:
    webgpu()
    arrays = given(100)
    launch(gathering(1), arrays, [100], 1)
    np.testing.assert_array_equal(arrays["b"], arrays["a"][::-1])


@pytest.mark.parametrize(("error", "kind"), [(1, IndexOutOfRange), (7, RunFailed)])
def test_a_requirement_that_fails_is_an_error_with_the_kernels_name(
    error: int, kind: type[Exception]
) -> None:
    webgpu()
    where = np.zeros(100, np.int32)
    where[[3, 70]] = -5, 2**31 - 1
    with pytest.raises(kind, match="kernel gathering"):
        launch(gathering(error), given(100, where=where), [100], 1)
    launch(gathering(1), given(100), [100], 1)  # and the device goes on


# Refusals


@pytest.mark.parametrize(("op", "name"), [("neg", "float64"), ("floordiv", "int64")])
def test_a_device_without_numbers_of_64_bits_refuses_what_pairs_do_not_do(
    op: str, name: str
) -> None:
    x = graph_input("x", 0, (3,), BY_NAME[name])
    [kernel] = fuse(Graph.of([make(op, *[x] * (1 + (op == "floordiv")))])).kernels
    assert build(kernel, FEATURES).loops.arrays[0].dtype.bits == 64
    with pytest.raises(NotCompiled, match="no numbers of 64 bits, and pairs of words don't do"):
        build(kernel)


def test_a_device_without_numbers_of_64_bits_has_pairs_of_words() -> None:
    x = graph_input("x", 0, (3,), BY_NAME["int64"])
    [kernel] = fuse(Graph.of([make("neg", x)])).kernels
    assert {array.dtype.name for array in build(kernel).loops.arrays} == {"uint32"}


def test_what_one_buffer_cannot_hold_is_refused_before_it_is_compiled() -> None:
    x = graph_input("x", 0, (2**15, 2**15), F32)
    with pytest.raises(NotCompiled, match="indices have 32 bits"):
        compiled([make("neg", x)])


def test_what_one_binding_cannot_hold_is_refused_with_the_limit() -> None:
    from arenite.errors import DoesNotFit

    gpu = webgpu()
    count = gpu.limits.binding_nbytes // 4
    if (count + 1) * 4 >= 2**31:
        pytest.skip("an array that fills a binding of this device is too large for this test")
    x = graph_input("x", 0, (count + 1,), F32)
    with pytest.raises(DoesNotFit, match=f"binds {gpu.limits.binding_nbytes} at once"):
        executable([make("neg", x)])


@pytest.mark.parametrize("index", [2**32, 2**32 + 1, -(2**32), 2**31, -(2**31) - 1, 2**62, 3, -1])
def test_an_index_of_64_bits_is_not_cut_to_32(index: int) -> None:
    """Its lower word alone may look like an index that is there."""
    webgpu()
    data, at = graph_input("x", 0, (3,), F32), graph_input("at", 1, (2,), BY_NAME["int64"])
    node = make("gather", data, at, axis=0)
    given = np.array([5, 6, 7], np.float32)
    with executable([node]) as program:
        assert "int64" not in program.kernels[-2].code  # two words, not one of 64 bits
        with pytest.raises(IndexOutOfRange, match=r"in kernel .*; correct the indices, then reset"):
            program(given, np.array([0, index]))
        program.reset()
        np.testing.assert_array_equal(program(given, np.array([2, 0]))[0], [7, 5])


def test_comparisons_with_what_32_bits_do_not_hold() -> None:
    webgpu()
    x = graph_input("x", 0, (8,), BY_NAME["int64"])
    given = np.array([2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**62, -(2**62), 0, 5])
    numbers = [5, 2**31 - 1, -(2**31), 2**40, -(2**40)]
    ops = {"lt": np.less, "eq": np.equal, "ge": np.greater_equal}
    nodes = [make(op, x, full((8,), n, BY_NAME["int64"])) for op in ops for n in numbers]
    for found, (op, n) in zip(
        run(nodes, given), ((o, n) for o in ops for n in numbers), strict=True
    ):
        np.testing.assert_array_equal(found, ops[op](given, n), err_msg=f"{op} {n}")
