"""What callers give: what fits goes through as it is, what does not is refused before anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite import Var
from arenite.dtype import BY_NAME
from arenite.errors import BoundsError, InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.dim import Dim
from arenite.ir.outline import Port
from arenite.runtime.arguments import Arguments, write_to

N, M = Var("n", 1, 8), Var("m", 0, 8)
FLOAT32 = BY_NAME["float32"]


def port(name: str, *shape: Dim) -> Port:
    return Port(name, shape, FLOAT32)


def zeros(*shape: int) -> NDArray[Any]:
    return np.zeros(shape, np.float32)


FIXED = Arguments((port("x", 4, 6),), ())
OPEN = Arguments((port("x", N, 6), port("y", M, 2 * N)), (N, M))


def test_arrays_that_fit_are_read_in_place() -> None:
    x = zeros(4, 6)
    assert FIXED.fitting([x])[0] is x
    assert OPEN.fitting([zeros(3, 6), zeros(0, 6)])
    assert (FIXED.is_open, OPEN.is_open) == (False, True)
    assert OPEN.dtypes == [np.dtype(np.float32)] * 2


def test_what_native_code_cannot_read_in_place_is_copied() -> None:
    wide = np.arange(48, dtype=np.float32).reshape(6, 8)
    odd = np.frombuffer(bytes(range(97)), np.uint8)[1:].view(np.float32).reshape(4, 6)
    assert not odd.flags.aligned
    for given in (wide[:, :4].T, odd):
        [made] = FIXED.fitting([given])
        assert made.flags.c_contiguous
        assert made.flags.aligned
        np.testing.assert_array_equal(made, given)


@pytest.mark.parametrize(
    ("arguments", "arrays", "error", "message"),
    [
        (FIXED, [], InvalidArgument, "1 inputs are needed, not 0"),
        (FIXED, [zeros(4, 6)] * 2, InvalidArgument, "1 inputs are needed, not 2"),
        (FIXED, [zeros(4, 6).astype(np.float64)], TypeMismatch, "'x' is float32, .* float64"),
        (FIXED, [zeros(6, 4)], ShapeMismatch, r"'x' is .* has shape \(6, 4\)"),
        (FIXED, [zeros(4, 6, 1)], ShapeMismatch, r"has shape \(4, 6, 1\)"),
        (OPEN, [zeros(3, 6), zeros(6)], ShapeMismatch, r"'y' is .* has shape \(6,\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: Arguments, arrays: list[NDArray[Any]], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        arguments.fitting(arrays)


def test_sizes_are_read_off_the_shapes() -> None:
    assert OPEN.sizes([zeros(3, 6), zeros(0, 6)]) == {"n": 3, "m": 0}
    assert OPEN.sizes([zeros(8, 6), zeros(8, 16)]) == {"n": 8, "m": 8}
    twice = Arguments((port("x", N), port("y", N)), (N,))
    assert twice.sizes([zeros(5), zeros(5)]) == {"n": 5}
    with pytest.raises(ShapeMismatch, match=r"'y' is .* has shape \(4,\)"):
        twice.sizes([zeros(5), zeros(4)])
    with pytest.raises(ShapeMismatch, match=r"'y' is .* has shape \(1, 7\)"):
        OPEN.sizes([zeros(3, 6), zeros(1, 7)])
    with pytest.raises(ShapeMismatch, match=r"'x' is .* has shape \(3, 5\)"):
        OPEN.sizes([zeros(3, 5), zeros(1, 6)])
    for n in (0, 9):
        with pytest.raises(BoundsError, match="n"):
            OPEN.sizes([zeros(n, 6), zeros(1, 2 * n)])
    hidden = Arguments((port("x", 2 * N),), (N,))
    with pytest.raises(BoundsError, match="no input has 'n' as a size by itself"):
        hidden.sizes([zeros(6)])


def test_results_go_into_all_arrays_or_none() -> None:
    results = [zeros(3) + 1, zeros(2, 2) + 2]
    targets = [zeros(3), zeros(2, 2)]
    made = write_to(targets, results)
    assert all(one is other for one, other in zip(made, targets, strict=True))
    assert (made[0] == 1).all()
    assert (made[1] == 2).all()
    for wrong in (zeros(4), zeros(2, 2).astype(np.float64)):
        first = zeros(3)
        with pytest.raises(ShapeMismatch, match="does not go into an array of"):
            write_to([first, wrong], results)
        assert not first.any()
    with pytest.raises(InvalidArgument, match="2 outputs do not go into 1 arrays"):
        write_to(targets[:1], results)
