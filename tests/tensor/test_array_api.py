"""The array API's names: the consortium's own suite where it is at hand, and NumPy's results."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.errors import NotSupported, TypeMismatch

ROOT = Path(__file__).parent.parent.parent
PAGE_SCRIPT = ROOT / "docs" / "make_array_api.py"
LIST = Path(__file__).parent / "array_api_xfails.txt"
#: How many cases of the suite the sample has, and the seed that chooses them.
N_CASES, SEED = 12, 16


def suite() -> Path:
    """The suite beside the checkout, or two folders above it."""
    for folder in (ROOT.parent, ROOT.parent.parent):
        found = folder / "shared" / "judges" / "array-api-tests"
        if found.is_dir():
            return found
    pytest.skip("the array API's suite is not there: ../shared/judges/array-api-tests is missing")


def run_suite(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("ndindex", reason="the array API's suite needs the package ndindex")
    environment = os.environ | {
        "ARRAY_API_TESTS_MODULE": "arenite",
        "ARRAY_API_TESTS_VERSION": "2024.12",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    judge = suite()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short"]
    command += ["--rootdir", str(judge), "-c", str(judge / "pytest.ini"), "-p", "no:xdist"]
    command += ["--disable-deadline", "--derandomize", "--max-examples=2"]
    command += ["--xfails-file", str(LIST), *arguments]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)


def test_a_sample_of_the_suite_passes(tmp_path: Path) -> None:
    folder = suite() / "array_api_tests"
    listed = run_suite(tmp_path, "--collect-only", str(folder)).stdout.splitlines()
    cases = sorted(line for line in listed if "::" in line and "[" not in line)
    assert len(cases) > 150
    chosen = random.Random(SEED).sample(cases, N_CASES)
    names = [str(folder / case.rpartition("array_api_tests/")[2]) for case in chosen]
    done = run_suite(tmp_path, *names, str(folder / "test_has_names.py"))
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout


def test_every_case_on_the_list_has_a_reason_and_the_page_tells_it() -> None:
    run = subprocess.run([sys.executable, PAGE_SCRIPT, "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_tensors_know_their_namespace_and_device() -> None:
    x = arenite.asarray([1.0])
    assert x.__array_namespace__() is arenite
    assert x.__array_namespace__(api_version="2024.12") is arenite
    assert x.to_device(x.device) is x
    with pytest.raises(NotSupported, match="'cpu'"):
        arenite.zeros(3, device="gpu")


def test_dtypes_are_promoted_as_the_standard_says() -> None:
    assert arenite.result_type(arenite.int8, arenite.uint8) == arenite.int16
    assert arenite.result_type(arenite.float32, 1.5) == arenite.float32
    assert arenite.result_type(arenite.asarray([1], dtype="int32"), 1) == arenite.int32
    assert arenite.can_cast(arenite.int8, arenite.int16)
    assert not arenite.can_cast(arenite.float64, arenite.float32)
    assert arenite.isdtype(arenite.complex64, ("integral", "complex floating"))
    assert arenite.finfo(arenite.complex64).bits == 32
    assert arenite.iinfo(arenite.uint8).max == 255
    with pytest.raises(TypeMismatch, match="finfo is of floats"):
        arenite.finfo(arenite.int8)


RNG = np.random.default_rng(3)
SQUARE = RNG.standard_normal((2, 4, 4))
TALL = RNG.standard_normal((3, 5, 3)).astype(np.float32)
SYMMETRIC = SQUARE @ SQUARE.swapaxes(-1, -2) + np.eye(4)


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("det", (SQUARE,)),
        ("inv", (SQUARE,)),
        ("solve", (SQUARE, SQUARE[:, :, :2])),
        ("solve", (SQUARE + 1j, SQUARE[:, :, :2])),
        ("cholesky", (SYMMETRIC,)),
        ("slogdet", (SQUARE,)),
        ("svdvals", (TALL,)),
        ("pinv", (TALL,)),
        ("eigvalsh", (SYMMETRIC,)),
    ],
)
def test_linear_algebra_is_numpys(name: str, operands: tuple[Any, ...]) -> None:
    wanted = getattr(np.linalg, name)(*operands)
    made = getattr(arenite.linalg, name)(*operands)
    pairs = zip(made, wanted, strict=True) if isinstance(made, tuple) else [(made, wanted)]
    for got, expected in pairs:
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr_is_orthogonal_and_a_triangle(mode: str) -> None:
    q, r = arenite.linalg.qr(TALL, mode=mode)
    k = 5 if mode == "complete" else 3
    assert q.shape == (3, 5, k)
    np.testing.assert_allclose((q @ r).numpy(), TALL, atol=1e-5)
    np.testing.assert_allclose((q.mT @ q).numpy(), np.tile(np.eye(k), (3, 1, 1)), atol=1e-5)
    np.testing.assert_array_equal(r.numpy(), np.triu(r.numpy()))


def test_transforms_are_numpys() -> None:
    x = RNG.standard_normal((3, 10))
    for norm in ("backward", "ortho", "forward"):
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
            made = getattr(arenite.fft, name)(x, n=7, axis=1, norm=norm).numpy()
            wanted = getattr(np.fft, name)(x, n=7, axis=1, norm=norm)
            np.testing.assert_allclose(made, wanted, atol=1e-12)
    np.testing.assert_allclose(arenite.fft.rfftn(x).numpy(), np.fft.rfftn(x), atol=1e-12)
    np.testing.assert_array_equal(arenite.fft.fftshift(x).numpy(), np.fft.fftshift(x))


def test_sets_count_every_nan() -> None:
    found = arenite.unique_all([3.0, np.nan, 1.0, 3.0, np.nan])
    np.testing.assert_array_equal(found.values.numpy(), [1, 3, np.nan, np.nan])
    np.testing.assert_array_equal(found.counts.numpy(), [1, 2, 1, 1])
    assert found.values.shape == (4,)
    x, among = RNG.integers(0, 9, (4, 5)), RNG.integers(0, 9, 4)
    np.testing.assert_array_equal(arenite.isin(x, among).numpy(), np.isin(x, among))
    ordered = np.sort(among)
    for side in ("left", "right"):
        got = arenite.searchsorted(ordered, x, side=side).numpy()
        np.testing.assert_array_equal(got, np.searchsorted(ordered, x, side=side))


COMPLEX = RNG.standard_normal(40) + 1j * RNG.standard_normal(40)


@pytest.mark.parametrize("name", ["acos", "asin", "atan", "acosh", "asinh", "atanh"])
def test_inverse_functions_of_complex_numbers(name: str) -> None:
    edges = [2 + 0j, complex(2, -0.0), -2 + 0j, complex(-2, -0.0), 2j, -2j, 1e200 + 1e200j]
    z = np.concatenate([COMPLEX, COMPLEX * 1e-6, COMPLEX * 1e6, edges])
    made, wanted = getattr(arenite, name)(z).numpy(), getattr(np, name)(z)
    np.testing.assert_allclose(made, wanted, rtol=1e-13)


SPECIAL = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
@pytest.mark.parametrize("name", ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh",
                                  "exp", "log", "sin", "sinh", "sqrt", "tan", "tanh"])  # fmt: skip
def test_special_values_of_complex_numbers(name: str, dtype: Any) -> None:
    """NumPy follows C. The sign of a zero or an infinity beside no number is nobody's."""
    z = np.array([complex(a, b) for a in SPECIAL for b in SPECIAL], dtype)
    with np.errstate(all="ignore"):
        made, wanted = getattr(arenite, name)(z).numpy(), getattr(np, name)(z)
    sides = [(made.real, wanted.real, wanted.imag), (made.imag, wanted.imag, wanted.real)]
    for one, other, beside in sides:
        is_free = np.isnan(beside) & ((other == 0) | np.isinf(other))
        one, other = (np.where(is_free, np.abs(part), part) for part in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-5)
        has_sign = other == 0
        np.testing.assert_array_equal(np.signbit(one[has_sign]), np.signbit(other[has_sign]))


def test_special_values_of_expm1() -> None:
    """As the standard has them; NumPy gives no number for most."""
    inf, nan = math.inf, math.nan
    wanted = {
        complex(0, 0): complex(0, 0), complex(-0.0, 0): complex(0, 0), complex(inf, 0): inf,
        complex(-inf, 1.0): complex(-1, 0), complex(-inf, inf): complex(-1, 0),
        complex(inf, inf): complex(inf, nan), complex(-inf, nan): complex(-1, 0),
        complex(inf, nan): complex(inf, nan), complex(nan, 0): complex(nan, 0),
        complex(nan, 1.0): complex(nan, nan), complex(1.0, inf): complex(nan, nan),
    }  # fmt: skip
    made = arenite.expm1(arenite.asarray(list(wanted))).numpy()
    np.testing.assert_array_equal(made.real, [one.real for one in wanted.values()])
    np.testing.assert_array_equal(made.imag, [one.imag for one in wanted.values()])
    assert not np.signbit(made.real[:2]).any()


def test_next_numbers() -> None:
    a = np.array([0.0, 1, -1, np.inf, 1e30, -0.0, np.nan, 5], np.float32)
    b = np.array([1.0, 2, 1, 0, np.inf, -1, 0, 5], np.float32)
    np.testing.assert_array_equal(arenite.nextafter(a, b).numpy(), np.nextafter(a, b))


def test_small_arrays_and_their_parts_share_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from arenite import pipeline

    built: list[str] = []
    plain = pipeline.compile_anew

    def count(graph: Any, *rest: Any) -> Any:
        built.append(str(graph))
        return plain(graph, *rest)

    monkeypatch.setattr(pipeline, "compile_anew", count)
    x, y = arenite.asarray([1.5, 2.5, 3.5]), arenite.asarray([7.0, 8.0, 9.0, 10.0])
    for i in range(3):
        for k in range(4):
            assert (x[i] * y[k] - x[i]).item() == (1.5 + i) * (7 + k) - (1.5 + i)
    assert len(built) <= 2  # of which none where the cache has it
    assert y[1].item() == 8  # part of an array: no program
