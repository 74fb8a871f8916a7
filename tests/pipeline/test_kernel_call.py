"""One kernel of a program, launched by itself on buffers of the caller."""

from __future__ import annotations

import numpy as np
import pytest

import arenite
from arenite import Var, device, spec
from arenite.device import Buffer
from arenite.errors import (
    BoundsError,
    IndexOutOfRange,
    InvalidArgument,
    ReadOnly,
    SizeMismatch,
    TypeMismatch,
)
from arenite.program.cached_kernel import CachedKernel

N = Var("n", 1, 64)


def softmax() -> CachedKernel:
    with arenite.compile(lambda x: x.softmax(1), spec((N, 24))) as program:
        [kernel] = program.kernels
    return kernel


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_a_kernel_computes_what_its_program_does() -> None:
    kernel, x = softmax(), numbers(5, 24)
    out = np.zeros_like(x)
    kernel(x, out, n=5)
    shifted = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, shifted / shifted.sum(1, keepdims=True), rtol=1e-5)
    assert kernel.var_names == ("n",)
    assert kernel.local_size is None
    assert kernel.host_parallel_safe


def test_buffers_views_and_other_sizes_do_too() -> None:
    kernel, x = softmax(), numbers(7, 24)
    given = Buffer.allocate(device.get("cpu"), arenite.dtype.float32, (9, 24))
    given.copyin(np.concatenate([np.zeros((2, 24), np.float32), x]).tobytes())
    view = given.view(2 * 24 * 4, 7 * 24 * 4, arenite.dtype.float32, (7, 24))
    out = Buffer(device.get("cpu"), arenite.dtype.float32, (7, 24))
    kernel(view, out, n=7)
    alone = np.zeros((1, 24), np.float32)
    kernel(x[3:4].copy(), alone, n=1)
    np.testing.assert_array_equal(out.as_array()[3:4], alone)


def test_scratch_is_made_where_it_is_not_given() -> None:
    with arenite.compile(lambda x: x.sort(0), spec((200,))) as program:
        kernel = next(one for one in program.kernels if len(one.launch.writes) > len(one.outs))
        assert len(program.kernels) == 1
    x = numbers(200)
    out = np.zeros_like(x)
    kernel(x, out)
    np.testing.assert_array_equal(out, np.sort(x))


def test_what_does_not_fit_is_refused() -> None:
    kernel, x = softmax(), numbers(5, 24)
    out = np.zeros_like(x)
    with pytest.raises(InvalidArgument, match="takes 2 buffers"):
        kernel(x, n=5)
    with pytest.raises(InvalidArgument, match="sizes"):
        kernel(x, out)
    with pytest.raises(BoundsError, match="n is 65"):
        kernel(x, out, n=65)
    with pytest.raises(SizeMismatch, match="576 bytes"):
        kernel(x, out, n=6)
    with pytest.raises(TypeMismatch, match="float64"):
        kernel(x.astype(np.float64), out, n=5)
    with pytest.raises(InvalidArgument, match="not list"):
        kernel(x.tolist(), out, n=5)
    out.flags.writeable = False
    with pytest.raises(ReadOnly, match="argument 1"):
        kernel(x, out, n=5)


def test_what_is_written_shares_no_byte_with_what_is_read() -> None:
    kernel, x = softmax(), numbers(6, 24)
    with pytest.raises(InvalidArgument, match="share bytes"):
        kernel(x[:5], x[1:], n=5)


def test_an_error_of_a_kernel_is_told() -> None:
    with arenite.compile(lambda x, i: x.take(i, 0), spec((4,)), spec((3,), "int64")) as program:
        *_, kernel = program.kernels
    with pytest.raises(IndexOutOfRange):
        kernel(numbers(4), np.array([0, 9, 1]), np.zeros(3, np.float32))
