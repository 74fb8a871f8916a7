"""Convolutions of bytes, against whole numbers summed by NumPy: exact everywhere."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite import ir
from arenite.backends.cpu.conv.depthwise import Depthwise
from arenite.ir.dim import Var
from arenite.tensor import Tensor
from tests.codegen import targets
from tests.codegen.bytes_kernels import (
    ENDS,
    EXTREMES,
    PLAIN,
    POINT,
    Case,
    Made,
    check_conv,
    conv_arrays,
    made_conv,
    random_bytes,
    wrapped,
)
from tests.codegen.run_kernels import RUNNABLE


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 3))
    limit = {1: 40, 2: 20, 3: 7}[n]
    sides: list[tuple[Any, ...]] = []
    for _ in range(n):
        k, s, d = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
        reach = d * (k - 1)
        pair = (draw(st.integers(0, reach + 2)), draw(st.integers(0, reach + 2)))
        size = draw(st.integers(max(1, reach + 1 - sum(pair)), max(limit, reach + d)))
        sides.append((k, s, d, pair, size))
    kernel, strides, dilations, padding, image = zip(*sides, strict=True)
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    most = 70 if groups < 2 else 20
    return Case(
        image,
        draw(st.integers(1, most)),
        draw(st.integers(1, most)),
        kernel,
        strides,
        dilations,
        padding,
        groups,
        draw(st.integers(1, 2)),
        draw(st.sampled_from([0, 0, 1, 128, 255])),
        draw(ENDS),
        is_signed=draw(st.booleans()),
    )


@pytest.mark.parametrize("target", RUNNABLE)
@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_convolutions_of_any_shape(target: str, case: Case) -> None:
    check_conv(case, target, [*EXTREMES])


@pytest.mark.parametrize("pad_value", [0, 128])
@pytest.mark.parametrize(
    "case",
    [
        replace(PLAIN, image=(56, 56), channels=64, out=64),
        replace(PLAIN, image=(7, 7), channels=512, out=200),
        replace(PLAIN, image=(30, 31), channels=3, kernel=(7, 7), padding=((3, 3), (3, 3))),
        replace(PLAIN, strides=(2, 2), channels=512, image=(9, 30)),
        replace(PLAIN, image=(1, 1), channels=100, out=300),
        replace(PLAIN, image=(40, 40), channels=24, out=24),
        replace(PLAIN, channels=7, out=9, groups=3, images=2),
        replace(POINT, channels=1024, out=33),
        replace(POINT, channels=511, strides=(2, 2)),
        replace(POINT, channels=5, groups=2),
    ],
    ids=str,
)
def test_convolutions_of_networks(case: Case, pad_value: int) -> None:
    for is_signed in (False, True):
        check_conv(replace(case, pad_value=pad_value, is_signed=is_signed), "host")


@pytest.mark.parametrize(
    ("case", "is_copied"),
    [
        (PLAIN, False),
        (replace(PLAIN, dilations=(1, 2), strides=(1, 2)), False),
        (replace(PLAIN, groups=2, channels=8, images=2), False),
        (replace(PLAIN, pad_value=5), True),
        (replace(PLAIN, channels=21), True),
        (replace(POINT, channels=21), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("target", RUNNABLE)
def test_images_are_copied_only_where_they_must(case: Case, is_copied: bool, target: str) -> None:
    assert bool(made_conv(case, target).built.scratch) == is_copied
    check_conv(case, target)


@pytest.mark.parametrize("pad_value", [0, 77])
def test_images_whose_size_is_known_later(pad_value: int) -> None:
    n, h, w = Var("n", 0, 4), Var("h", 3, 64), Var("w", 3, 400)
    case = replace(PLAIN, pad_value=pad_value)
    made = made_conv(case, "host", (n, h, w, case.channels))
    for images, high, wide in ((1, 3, 3), (3, 14, 15), (2, 40, 37), (1, 5, 400), (0, 4, 4)):
        here = replace(case, images=images, image=(high, wide))
        arrays, expected = conv_arrays(here)
        [got] = made.run(arrays, {"n": images, "h": high, "w": wide})
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", [name for name in RUNNABLE if targets.named(name).has_fma])
@pytest.mark.parametrize("kinds", [*product([np.uint8, np.int8], repeat=2)])
@pytest.mark.parametrize("case", [replace(PLAIN, channels=1, groups=g) for g in (5, 16, 77)])
def test_every_channel_by_itself(target: str, kinds: tuple[Any, Any], case: Case) -> None:
    x = random_bytes((1, *case.image, case.groups), kinds[0], 1)
    w = random_bytes((*case.kernel, case.groups), kinds[1], 2)
    attrs = {name: case.attrs[name] for name in ("strides", "padding", "dilations")}

    def function(image: Tensor, taps: Tensor) -> Tensor:
        return Tensor.of_node(ir.make("depthwise_last", image.node, taps.node, **attrs))

    made = Made(function, [(x.shape, x.dtype), (w.shape, w.dtype)], target, Depthwise)
    padded = np.pad(x.astype(np.int64), ((0, 0), *case.padding, (0, 0)))
    expected = np.zeros((1, *case.places, case.groups), np.int64)
    for i, j in product(range(3), range(3)):
        high, wide = case.places
        expected += padded[:, i : i + high, j : j + wide] * w[i, j].astype(np.int64)
    [got] = made.run([x, w])
    np.testing.assert_array_equal(got, wrapped(expected))
