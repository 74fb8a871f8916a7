"""What callers give: what fits goes through as it is, what does not is refused before anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite import Var
from arenite.dtype import BY_NAME, DType
from arenite.errors import BoundsError, InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim, Found
from arenite.ir.interface import Port
from arenite.ir.node import Shape
from arenite.program.arguments import Arguments, check_room, check_targets, write_to

N, M = Var("n", 1, 8), Var("m", 0, 8)
FLOAT32 = BY_NAME["float32"]


def port(name: str, *shape: Dim) -> Port:
    return Port(name, shape, FLOAT32)


def zeros(*shape: int) -> NDArray[Any]:
    return np.zeros(shape, np.float32)


def fixed() -> Arguments:
    return Arguments((port("x", 4, 6),), ())


def open_() -> Arguments:
    return Arguments((port("w", 3), port("x", N, 6), port("y", M, 2 * N)), (N, M))


def test_arrays_that_fit_are_read_in_place() -> None:
    x = zeros(4, 6)
    assert fixed().fitting([x])[0] is x
    alike = np.zeros((4, 6), np.dtype(np.float32, copy=True))
    assert fixed().fitting([alike])[0] is alike
    assert open_().fitting([zeros(3), zeros(3, 6), zeros(0, 6)])
    assert (fixed().is_open, open_().is_open) == (False, True)
    assert open_().dtypes == [np.dtype(np.float32)] * 3


def test_what_native_code_cannot_read_in_place_is_copied() -> None:
    wide = np.arange(48, dtype=np.float32).reshape(6, 8)
    odd = np.frombuffer(bytes(range(97)), np.uint8)[1:].view(np.float32).reshape(4, 6)
    assert not odd.flags.aligned
    for array in (wide[:, :4].T, odd):
        [made] = fixed().fitting([array])
        assert made.flags.c_contiguous
        assert made.flags.aligned
        np.testing.assert_array_equal(made, array)


@pytest.mark.parametrize(
    ("arguments", "arrays", "error", "message"),
    [
        (fixed, [], InvalidArgument, "1 inputs are needed, not 0"),
        (fixed, [zeros(4, 6)] * 2, InvalidArgument, "1 inputs are needed, not 2"),
        (fixed, [zeros(4, 6).astype(np.float64)], TypeMismatch, "'x' is float32, .* float64"),
        (fixed, [zeros(6, 4)], ShapeMismatch, r"'x' is .* has shape \(6, 4\)"),
        (fixed, [zeros(4, 6, 1)], ShapeMismatch, r"has shape \(4, 6, 1\)"),
        (open_, [zeros(4), zeros(3, 6), zeros(1, 6)], ShapeMismatch, r"'w' is .* has shape \(4,\)"),
        (open_, [zeros(3), zeros(3, 6), zeros(6)], ShapeMismatch, r"'y' is .* has shape \(6,\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: Callable[[], Arguments],
    arrays: list[NDArray[Any]],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        arguments().fitting(arrays)


def test_sizes_are_read_off_the_shapes() -> None:
    assert open_().sizes([zeros(3), zeros(3, 6), zeros(0, 6)]) == {"n": 3, "m": 0}
    assert open_().sizes([zeros(3), zeros(8, 6), zeros(8, 16)]) == {"n": 8, "m": 8}
    twice = Arguments((port("x", N), port("y", N)), (N,))
    assert twice.sizes([zeros(5), zeros(5)]) == {"n": 5}
    with pytest.raises(ShapeMismatch, match=r"'y' is .* has shape \(4,\)"):
        twice.sizes([zeros(5), zeros(4)])
    with pytest.raises(ShapeMismatch, match=r"'y' is .* has shape \(1, 7\)"):
        open_().sizes([zeros(3), zeros(3, 6), zeros(1, 7)])
    with pytest.raises(ShapeMismatch, match=r"'x' is .* has shape \(3, 5\)"):
        open_().sizes([zeros(3), zeros(3, 5), zeros(1, 6)])
    for n in (0, 9):
        with pytest.raises(BoundsError, match="n"):
            open_().sizes([zeros(3), zeros(n, 6), zeros(1, 2 * n)])
    hidden = Arguments((port("x", N * N, N // 2),), (N,))
    with pytest.raises(BoundsError, match="no input has 'n' as a size from which it follows"):
        hidden.sizes([zeros(9, 1)])


def test_sizes_follow_from_sizes_that_are_linear_in_them() -> None:
    m = Var("m", 1, 9)
    double = Arguments((port("x", 2 * N + 1),), (N,))
    for n in range(1, 9):
        assert double.sizes([zeros(2 * n + 1)]) == {"n": n}
    with pytest.raises(ShapeMismatch, match=r"'x' is .*2\*n \+ 1.* has shape \(6,\)"):
        double.sizes([zeros(6)])
    for size in (1, 19):
        with pytest.raises(BoundsError, match="n = "):
            double.sizes([zeros(size)])
    chain = Arguments((port("x", m * N + 3, 7), port("y", 3 * m - 2, m - 1)), (N, m))
    for n, k in ((1, 1), (8, 9), (3, 2)):
        arrays = [zeros(k * n + 3, 7), zeros(3 * k - 2, k - 1)]
        assert chain.sizes(arrays) == {"n": n, "m": k}
    with pytest.raises(ShapeMismatch, match="'y' is"):
        chain.sizes([zeros(5, 7), zeros(4, 2)])


def test_results_go_into_all_arrays_or_none() -> None:
    results = [zeros(3) + 1, zeros(2, 2) + 2]
    targets = [zeros(3), zeros(2, 2)]
    made = write_to(targets, results, [None, None], "it is over")
    assert all(one is other for one, other in zip(made, targets, strict=True))
    assert (made[0] == 1).all()
    assert (made[1] == 2).all()
    first = zeros(3)
    with pytest.raises(ShapeMismatch, match=r"be .*\[2, 2\] and does not go into .*: it is over"):
        write_to([first, zeros(4)], results, [None, (4, 2)], "it is over")
    assert not first.any()
    made = write_to([None, whole := zeros(4, 2)], results, [None, (4, 2)], "it is over")
    assert made[0] is results[0]
    assert made[1].base is whole
    assert whole.tolist() == [[2, 2]] * 2 + [[0, 0]] * 2


def test_what_is_known_of_results_is_checked_before_they_are_there() -> None:
    found = Found("found", 0, 6)
    outputs: list[tuple[Shape, DType]] = [((3, 2 * N), FLOAT32), ((found, 2), BY_NAME["int4"])]
    sizes = {"n": 4}
    small = np.zeros((6, 2), ml_dtypes.int4)
    for size in (0, 6):
        check_room([zeros(3, 8), small[:size]], outputs, sizes)
    for first, second in (
        (zeros(3, 7), small),
        (zeros(24), small),
        (zeros(3, 8).astype(np.float64), small),
        (zeros(3, 8), small.astype(np.int8)),
        (zeros(3, 8), small[:, :1]),
        (zeros(3, 8), np.zeros((7, 2), ml_dtypes.int4)),
    ):
        with pytest.raises(ShapeMismatch, match="does not go into an array of"):
            check_room([first, second], outputs, sizes)
    with pytest.raises(ShapeMismatch, match=r"float32\[3, 8\] does not .* float32\[2, 2\]"):
        check_room([zeros(2, 2), small], outputs, sizes)
    with pytest.raises(InvalidArgument, match="2 outputs do not go into 1 arrays"):
        check_room([small], outputs, sizes)


def test_targets_have_bytes_of_their_own() -> None:
    x = zeros(12)
    check_targets([x[::2], x[1::2], zeros(0), x[3:3]])
    check_targets([x[:4], x[4:8], x[11:7:-1]])
    for targets, message in (
        ([x[:4], x[3:8]], r"out\[0\] and out\[1\] share bytes"),
        ([x[8:], zeros(3), x[:9]], r"out\[0\] and out\[2\] share bytes"),
        ([x[::2], x[1:2], x[4:5]], r"out\[0\] and out\[2\] share bytes"),
        ([np.broadcast_to(x, (2, 12))], r"out\[0\] is no array that can be written"),
        ([[1.0, 2.0]], r"out\[0\] is no array that can be written"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            check_targets(targets)
    with pytest.raises(InvalidArgument, match="mine and yours share bytes"):
        check_targets([x, x], ["mine", "yours"])


@settings(max_examples=80, deadline=None)
@given(
    shape=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    strides=st.lists(st.integers(-5, 5), min_size=3, max_size=3),
)
def test_elements_that_share_bytes_are_refused(shape: list[int], strides: list[int]) -> None:
    steps = [4 * stride for stride in strides[: len(shape)]]
    room = np.zeros(100, np.float32)[40:]
    array = np.lib.stride_tricks.as_strided(room, shape, steps)
    places = [sum(k * s for k, s in zip(at, steps, strict=True)) for at in np.ndindex(*shape)]
    if len(set(places)) < len(places):
        with pytest.raises(InvalidArgument, match=r"elements of out\[0\] share bytes"):
            check_targets([array])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(2, 0, 1),
        lambda x: x[::-1, ::2, 1:3],
        lambda x: x[:, :1, :],
        lambda x: x[:, :, ::-2],
        lambda x: x[:, None, ..., None],
    ],
)
def test_views_of_an_array_are_targets(view: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    check_targets([view(zeros(2, 3, 4))])
