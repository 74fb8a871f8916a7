"""Kernels that differ in numbers alone are one function, and compute what they did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.numbers import MAX_NUMBERS, stays, with_shared_loops
from arenite.codegen.printer import kernel_text
from arenite.pipeline.build import _Building
from arenite.program.options import Options

F32 = ir.FLOAT32
Array = NDArray[Any]


def scaled(name: str, *numbers: float, n: int = 32, stride: int = 1) -> Built:
    """out[i] = max(x[stride i] * a + b ..., 0)."""
    at = ir.Name("i")
    value: ir.Expr = ir.Load("x", at * ir.index(stride), F32)
    for k, number in enumerate(numbers):
        value = ir.Binary("mul" if k % 2 == 0 else "add", value, ir.Const(number, F32))
    value = ir.Binary("max", value, ir.Const(0.0, F32))
    loop = ir.For("i", ir.index(0), ir.index(n), (ir.Store("out", at, value),), vector=True)
    arrays = (ir.ArrayArg("x", F32, "in"), ir.ArrayArg("out", F32, "out"))
    return Built(ir.LoopKernel(name, arrays, (), ir.index(1), "tile", (loop,)), 1)


def texts(built: dict[int, Built]) -> list[str]:
    return [kernel_text(replace(one.loops, name="kernel")) for one in built.values()]


def given(one: Built) -> list[float]:
    """The floats that a kernel is given."""
    return [float(np.uint32(bits).view(np.float32)) for _, bits in one.numbers]


def test_a_number_that_differs_is_given_and_one_that_is_the_same_stays() -> None:
    made = with_shared_loops(
        {0: scaled("a", 0.25, 3.0), 1: scaled("b", 0.5, 3.0), 2: scaled("c", -7.5, 3.0)}, ()
    )
    assert len({*texts(made)}) == 1
    assert [one.loops.name for one in made.values()] == ["a", "b", "c"]
    assert [given(one) for one in made.values()] == [[0.25], [0.5], [-7.5]]
    assert "3.0f" in texts(made)[0]
    assert made[0].loops.sizes == ("float32$0",)


def test_numbers_that_change_together_are_given_once() -> None:
    made = with_shared_loops({0: scaled("a", 0.25, 0.25), 1: scaled("b", 0.5, 0.5)}, ())
    assert [given(one) for one in made.values()] == [[0.25], [0.5]]


@pytest.mark.parametrize(
    ("one", "other"),
    [((1.0,), (0.5,)), ((0.0,), (0.5,)), ((float("inf"),), (0.5,)), ((0.5,), (0.5, 2.0))],
)
def test_what_stands_for_itself_and_other_loops_are_kept_apart(
    one: tuple[float, ...], other: tuple[float, ...]
) -> None:
    built = {0: scaled("a", *one), 1: scaled("b", *other)}
    assert with_shared_loops(built, ()) == built


def test_too_many_numbers_are_not_given() -> None:
    numbers = [1.5 + k for k in range(MAX_NUMBERS + 1)]
    built = {0: scaled("a", *numbers), 1: scaled("b", *(-number for number in numbers))}
    made = with_shared_loops(built, ())
    assert made == built


def test_sizes_are_given_to_what_runs_once_alone() -> None:
    built = {0: scaled("a", 2.0, n=32, stride=3), 1: scaled("b", 2.0, n=48, stride=5)}
    assert with_shared_loops(built, ()) == built
    assert with_shared_loops(built, (0,)) == built
    made = with_shared_loops(built, (0, 1))
    assert len({*texts(made)}) == 1
    assert [[bits for _, bits in one.numbers] for one in made.values()] == [[32, 3], [48, 5]]


def test_layers_with_scales_of_their_own_are_one_function() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((32, 32)).astype(np.float32) for _ in range(3)]
    scales = [0.37, 1.7, -0.2]

    def network(x: Any) -> Any:
        for weight, scale in zip(weights, scales, strict=True):
            x = arenite.maximum(x @ arenite.asarray(weight) * scale + 0.125, 0)
        return x

    x = rng.standard_normal((5, 32)).astype(np.float32)
    wanted: Array = x
    for weight, scale in zip(weights, scales, strict=True):
        wanted = np.maximum(wanted @ weight * np.float32(scale) + np.float32(0.125), 0)
    with arenite.compile(network, x) as program:
        np.testing.assert_allclose(program(x), wanted, rtol=1e-4, atol=1e-5)
        kernels = program.executable.kernels
        assert len(kernels) == 3
        assert len({kernel.launch.entry for kernel in kernels}) == 1
        program.executable.verify()


def test_what_is_said_to_stay_does() -> None:
    """Of any kernels, whatever others there are and whichever run once."""
    rng = np.random.default_rng(0)

    def function(x: Any) -> Any:
        for scale in (0.3, 0.7):
            w = rng.standard_normal((24, 24)).astype(np.float32)
            x = ((x @ w).maximum(0.0) @ w) * scale
        return x.sum(0)

    x = arenite.spec((40, 24))
    built: dict[int, Built] = {}
    graph = arenite.compile(function, x).executables[0].graph
    for one in _Building(graph, Options()):
        built[len(built)] = one
    some = {number for number, one in built.items() if stays(one.loops)}
    assert 0 < len(some) < len(built)
    assert not any(type(built[number].loops) is ir.LoopKernel for number in some)
    for at_load in ((), built):
        made = with_shared_loops(built, at_load)
        assert all(made[number] is built[number] for number in some)
    assert not stays(scaled("a", 0.25).loops)
