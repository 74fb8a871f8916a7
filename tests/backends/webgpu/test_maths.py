"""Functions on WebGPU: the formulas of all devices, held to the same bounds, whatever the driver
makes of them: it may neither contract nor reorder what must be rounded twice."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from arenite.backends.webgpu.shader import Shader
from arenite.device.webgpu import WebGpuAllocator
from arenite.dtype import BY_NAME
from arenite.ir import Node, full, graph_input, make, reference
from arenite.ir.graph import Graph
from arenite.pipeline import compile_graph
from tests.backends.webgpu.runner import ON_WEBGPU, expected, run, webgpu
from tests.pipeline.trial import same, sample

F32, I32 = BY_NAME["float32"], BY_NAME["int32"]
UNARY = (
    "exp exp2 expm1 log log2 log1p rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf"
).split()
BINARY = "floordiv mod fmod atan2 pow".split()
#: Formulas with a division or a root, which WGSL lets a GPU round to a few units in the last place;
#: CPUs that stand in for one round to nearest.
DIVIDING = frozenset("rsqrt tan asin acos atan sinh cosh tanh asinh acosh atanh atan2 div".split())
DIVISION_ULPS = 4
N = 5000


@pytest.mark.parametrize(
    ("name", "ulps"), [("float64", 2), ("float32", 2), ("float16", 1), ("float8_e4m3fn", 1)]
)
def test_functions_are_as_exact_as_elsewhere(name: str, ulps: float) -> None:
    gpu = webgpu()
    dtype = BY_NAME[name]
    if dtype.bits == 64 and not {"shader-f64", "shader-int64"} <= gpu.features:
        pytest.skip(f"{gpu.adapter_name} has no float64: the CPU computes with it")
    inputs = [graph_input(f"x{k}", k, (N,), dtype) for k in (0, 1)]
    arrays = [sample((N,), dtype, seed) for seed in (0, 1)]
    ops = [*UNARY, *BINARY] if dtype.bits >= 32 else ["exp", "tanh", "fmod"]
    nodes = [make(op, *inputs[: 1 if op in UNARY else 2]) for op in ops]
    graph = Graph(tuple(inputs), tuple(nodes))
    with compile_graph(graph, ON_WEBGPU) as program:
        found = program(*arrays)
    for node, one, wanted in zip(nodes, found, expected(graph, arrays, found), strict=True):
        exact = node.op in ("floordiv", "mod", "fmod")
        same(one, wanted, 0 if exact else ulps + division_ulps(gpu, node), node)


def division_ulps(gpu: WebGpuAllocator, node: Node) -> int:
    """What a formula may be off by since the device divides."""
    is_loose = node.op in DIVIDING and node.dtype == F32 and not gpu.is_cpu
    return DIVISION_ULPS if is_loose else 0


def test_nan_stays_nan_where_comparisons_say_anything_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver may assume that nothing is NaN, and take `a < b` for `not a >= b`."""
    gpu = webgpu()
    written, module = [], Shader.module
    opposite = {"<": "{} >= {}", "<=": "{} > {}", ">": "{} <= {}", ">=": "{} < {}"}
    opposite["=="] = "({0} < {1}) | ({0} > {1})"

    def adverse(self: Shader, *places: Any) -> str:
        text = re.sub(
            r"\((a|value) ([<>=]+) (b|best)\)",
            lambda found: f"(!({opposite[found[2]].format(found[1], found[3])}))",
            module(self, *places),
        )
        written.append(text)
        return text

    monkeypatch.setattr(Shader, "module", adverse)
    shape = (9, 131)
    x, y = (graph_input(f"x{k}", k, shape, F32) for k in (0, 1))
    arrays = [sample(shape, F32, seed) for seed in (0, 1)]
    for array in arrays:  # what becomes of denormals is told elsewhere
        array[(array != 0) & (np.abs(array) < 2.0**-126)] = 0.5
    arrays[0][3] = 1.0  # a row without
    nodes = [make(op, x) for op in "exp expm1 log tanh sin erf sign isnan isinf".split()]
    nodes += [make(op, x, y) for op in "maximum minimum fmod eq ne lt le gt ge".split()]
    nodes += [make(op, x, axes=(1,)) for op in ("max", "min")]
    nodes += [make("cast", make(op, x, axis=1), dtype=I32) for op in ("argmax", "argmin")]
    nodes += [make("cast", x, dtype=BY_NAME[name]) for name in ("bool", "int8", "int32")]
    graph = Graph((x, y), tuple(nodes))
    with compile_graph(graph, ON_WEBGPU) as program:
        found = program(*arrays)
    for node, one, wanted in zip(nodes, found, expected(graph, arrays, found), strict=True):
        same(one, wanted, 2 + division_ulps(gpu, node) if node.op in UNARY else 0, node)
    for part in ("!(a >= b)", "!(a <= b)", "!(value <= best)", "!((a < b) | (a > b))"):
        assert any(part in text for text in written), part


def test_large_angles_are_reduced_exactly() -> None:
    webgpu()
    given = (10.0 ** np.random.default_rng(0).uniform(3, 38, N)).astype(np.float32)
    node = make("sin", graph_input("x", 0, (N,), F32))
    [found] = run([node], given)
    same(found, np.sin(given.astype(np.longdouble)).astype(np.float32), 2, node)


def test_what_is_rounded_twice_is_not_taken_together() -> None:
    """(x + c) - c, (x * c) / c and (x - y) + y are no x in floats."""
    gpu = webgpu()
    x, y = (graph_input(f"x{k}", k, (N,), F32) for k in (0, 1))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(N).astype(np.float32) for _ in range(2))
    b *= 1e5
    large, huge = full((N,), 2.0**20, F32), full((N,), 3e38, F32)
    nodes = [
        make("sub", make("add", x, large), large),
        make("div", make("mul", x, huge), huge),
        make("add", make("sub", x, y), y),
    ]
    found = run(nodes, a, b)
    with np.errstate(over="ignore"):
        wanted = [(a + 2.0**20) - np.float32(2.0**20), a * np.float32(3e38) / np.float32(3e38)]
    wanted.append((a - b) + b)
    for node, one, other in zip(nodes, found, wanted, strict=True):
        same(one, other.astype(np.float32), division_ulps(gpu, node), node)


@pytest.mark.parametrize("op", "add sub mul floordiv mod fmod shift_right".split())
@pytest.mark.parametrize("name", ["int64", "uint64"])
def test_integers_of_64_bits_are_numpys(name: str, op: str) -> None:
    gpu = webgpu()
    if "shader-int64" not in gpu.features:
        pytest.skip(f"{gpu.adapter_name} has no int64: the CPU computes with it")
    dtype = BY_NAME[name]
    inputs = [graph_input(f"x{k}", k, (N,), dtype) for k in (0, 1)]
    info = np.iinfo(name)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(info.min, info.max, N, dtype=name, endpoint=True) for _ in range(2))
    b[: N // 2] %= 100  # small divisors, and zeros
    a[:4], b[:4] = info.min, info.max
    if op == "shift_right":
        b = np.abs(b.astype(np.int64) % 64).astype(name)
    node = make(op, *inputs)
    [found] = run([node], a, b)
    functions = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "floordiv": np.floor_divide,
        "mod": np.mod,
        "fmod": np.fmod,
        "shift_right": np.right_shift,
    }
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, functions[op](a, b))


@pytest.mark.parametrize("source", ["int64", "uint64", "float64", "uint32", "int32", "float32"])
def test_casts_to_and_from_64_bits_are_the_references(source: str) -> None:
    gpu = webgpu()
    if not {"shader-f64", "shader-int64"} <= gpu.features:
        pytest.skip(f"{gpu.adapter_name} has no numbers of 64 bits: the CPU casts them")
    x = graph_input("x", 0, (N,), BY_NAME[source])
    array = sample((N,), BY_NAME[source], 5)
    targets = "int64 uint64 float64 int32 uint32 float32 int8 uint16 bool float16 bfloat16".split()
    nodes = [make("cast", x, dtype=BY_NAME[target]) for target in targets]
    graph = Graph((x,), tuple(nodes))
    found = run(nodes, array)
    for node, one, wanted in zip(nodes, found, expected(graph, [array], found), strict=True):
        same(one, wanted, 0, node)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_what_is_nothing_of_numbers_is_nan_of_nan_and_the_infinite(name: str) -> None:
    """A driver may take x - x and x * 0 for 0, x / x for 1, x + 0 for x, and 0 - x for -x."""
    if name == "float64" and not {"shader-f64", "shader-int64"} <= webgpu().features:
        pytest.skip("this device has no float64: the CPU computes with it")
    dtype = BY_NAME[name]
    array = np.array([np.nan, np.inf, -np.inf, -0.0, 2.0, 0.0], name)
    x, y = (graph_input(f"x{k}", k, (6,), dtype) for k in (0, 1))
    zero, minus = full((6,), 0.0, dtype), full((6,), -0.0, dtype)
    nodes = [
        make("sub", x, x),
        make("div", x, x),
        make("mul", x, zero),
        make("mul", x, minus),
        make("add", x, make("neg", x)),
        make("add", x, zero),
        make("add", zero, x),
        make("add", make("mul", x, y), zero),
        make("sub", zero, x),
        make("sub", zero, make("mul", x, y)),
        make("sub", make("add", x, y), make("add", y, x)),
        make("sub", make("mul", x, y), make("mul", y, x)),
        make("sub", make("maximum", x, y), x),
    ]
    found = run(nodes, array, array)
    for node, one, wanted in zip(
        nodes, found, reference.evaluate(Graph((x, y), tuple(nodes)), [array, array]), strict=True
    ):
        np.testing.assert_array_equal(one, wanted, err_msg=repr(node))
        is_number = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(one[is_number]), np.signbit(wanted[is_number]))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_zero_times_and_zero_by_what_is_no_number_is_nan_in_every_width(name: str) -> None:
    """A driver may take 0 * x and 0 / x for 0, also of a zero that it casts from 16 bits."""
    if name == "float64" and not {"shader-f64", "shader-int64"} <= webgpu().features:
        pytest.skip("this device has no float64: the CPU computes with it")
    dtype = BY_NAME[name]
    numbers = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 3.0]
    array = np.array([numbers, [2.0] * 8, numbers[::-1]]).astype(dtype.to_numpy())
    x = graph_input("x", 0, array.shape, dtype)
    zero, minus = (full(array.shape, number, dtype) for number in (0.0, -0.0))
    products = [make("mul", x, zero), make("mul", minus, x), make("mul", make("abs", x), zero)]
    nodes = [
        *products,
        *(make("sum", one, axes=(axis,)) for one in products for axis in (0, 1)),
        make("cumsum", products[0], axis=1),
        make("sub", zero, products[0]),
        make("add", products[1], x),
        make("div", zero, x),
        make("div", minus, x),
        make("div", x, zero),
        make("floordiv", zero, x),
    ]
    found = run(nodes, array)
    for node, one, other in zip(
        nodes, found, reference.evaluate(Graph((x,), tuple(nodes)), [array]), strict=True
    ):
        made, wanted = one.astype(np.float64), other.astype(np.float64)
        np.testing.assert_array_equal(made, wanted, err_msg=repr(node))
        is_number = ~np.isnan(wanted) & (node.op != "sum")
        signs = np.signbit(made[is_number]), np.signbit(wanted[is_number])
        np.testing.assert_array_equal(*signs, err_msg=repr(node))
