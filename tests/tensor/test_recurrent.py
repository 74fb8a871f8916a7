"""LSTM and GRU against PyTorch, from `recurrent_reference.npz`, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Var
from arenite.errors import ShapeMismatch, TypeMismatch

Array = NDArray[Any]
CASES = ["", "_one_step", "_wide"]


def given(case: str) -> dict[str, Array]:
    with np.load(Path(__file__).with_name("recurrent_reference.npz")) as file:
        return {name.split("/")[1]: file[name] for name in file if name.startswith(f"{case}/")}


def close(made: Any, exact: Array) -> None:
    assert made.shape == exact.shape
    assert np.abs(made - exact).max() < 2e-6


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_lstm_is_pytorchs(case: str, threads: int) -> None:
    a = given(f"lstm{case}")

    def layer(x: Any, h: Any, c: Any) -> Any:
        return arenite.lstm(x, a["w"], a["r"], a["bw"] + a["br"], (h, c))

    program = arenite.compile(layer, a["x"], a["h"], a["c"], threads=threads)
    y, (h, c) = program(a["x"], a["h"], a["c"])
    close(y, a["y"])
    close(h, a["last_h"])
    close(c, a["last_c"])
    program.verify()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_gru_is_pytorchs(case: str, threads: int) -> None:
    a = given(f"gru{case}")

    def layer(x: Any, h: Any) -> Any:
        return arenite.gru(x, a["w"], a["r"], a["bw"], a["br"], h)

    program = arenite.compile(layer, a["x"], a["h"], threads=threads)
    y, h = program(a["x"], a["h"])
    close(y, a["y"])
    close(h, a["last_h"])
    program.verify()


@pytest.mark.parametrize("case", CASES)
def test_a_batch_of_one_is_pytorchs(case: str) -> None:
    a = given(f"lstm{case}")
    x, h, c = a["x"][:, :1], a["h"][:1], a["c"][:1]

    def layer(x: Any, h: Any, c: Any) -> Any:
        return arenite.lstm(x, a["w"], a["r"], a["bw"] + a["br"], (h, c))

    program = arenite.compile(layer, x, h, c)
    y, (h, c) = program(x, h, c)
    close(y, a["y"][:, :1])
    close(h, a["last_h"][:1])
    close(c, a["last_c"][:1])
    program.verify()
    # One product with its bias before the loop, one product and one kernel for the gates in it,
    # and the last h and c, which are handed out as copies.
    assert len(program.kernels) == 5


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_batch_of_one_backwards(kind: str) -> None:
    a = given(kind)
    layer = getattr(arenite, kind)
    y, _ = layer(a["x"][:, :1], a["w"], a["r"], reverse=True)
    turned, _ = layer(a["x"][::-1, :1].copy(), a["w"], a["r"])
    assert np.array_equal(y.numpy(), turned.numpy()[::-1])


def test_products_in_loops_read_weights_as_they_lie() -> None:
    rng = np.random.default_rng(1)
    xs, w = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((6, 1, 40), (30, 40)))

    def steps(xs: Any, w: Any) -> Any:
        return arenite.scan(lambda total, x: (total + x.sum(), x @ w.T), 0.0, xs)[1]

    program = arenite.compile(steps, xs, w)
    assert np.array_equal(program(xs, w), xs @ w.T)
    assert not any("permute" in kernel.entry_point for kernel in program.kernels)


def sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


def test_gru_that_resets_first() -> None:
    """By the definition, in NumPy: PyTorch has no such layer."""
    a = given("gru")
    wide = {name: array.astype(np.float64) for name, array in a.items()}
    w, r, bw, br = (np.split(wide[name], 3) for name in ("w", "r", "bw", "br"))
    h = wide["h"]
    outputs = []
    for x in wide["x"]:
        reset, update = (sigmoid(x @ w[k].T + bw[k] + h @ r[k].T + br[k]) for k in range(2))
        new = np.tanh(x @ w[2].T + bw[2] + (reset * h) @ r[2].T + br[2])
        h = (1 - update) * new + update * h
        outputs.append(h)
    y, last = arenite.gru(a["x"], a["w"], a["r"], a["bw"], a["br"], a["h"], reset_first=True)
    close(y.numpy(), np.stack(outputs))
    close(last.numpy(), h)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_backwards_is_forwards_on_time_turned_round(kind: str) -> None:
    a = given(kind)
    layer = getattr(arenite, kind)
    y, _ = layer(a["x"], a["w"], a["r"], reverse=True)
    turned, _ = layer(a["x"][::-1].copy(), a["w"], a["r"])
    assert np.array_equal(y.numpy(), turned.numpy()[::-1])


def test_time_and_batch_may_be_open() -> None:
    a = given("lstm_wide")
    spec = arenite.spec((Var("time", 0, 50), Var("batch", 0, 8), a["x"].shape[2]))
    program = arenite.compile(lambda x: arenite.lstm(x, a["w"], a["r"])[0], spec)
    whole = program(a["x"])
    known, _ = arenite.lstm(a["x"], a["w"], a["r"])
    np.testing.assert_allclose(whole, known.numpy(), rtol=1e-5, atol=1e-6)
    assert np.array_equal(program(a["x"][:5]), whole[:5])
    assert program(a["x"][:0]).shape == (0, *whole.shape[1:])
    assert program(a["x"][:, :0]).shape == (whole.shape[0], 0, whole.shape[2])
    program.verify()


def test_what_does_not_fit_is_refused() -> None:
    a = given("lstm")
    with pytest.raises(ShapeMismatch, match="need w of shape"):
        arenite.lstm(a["x"], a["w"][:-1], a["r"])
    with pytest.raises(ShapeMismatch, match="the initial c is"):
        arenite.lstm(a["x"], a["w"], a["r"], None, (a["h"], a["h"][:1]))
    with pytest.raises(ShapeMismatch, match=r"x\[time, batch, inputs\]"):
        arenite.gru(a["x"][0], a["w"], a["r"])
    with pytest.raises(TypeMismatch, match="float64"):
        arenite.lstm(a["x"], a["w"].astype(np.float64), a["r"])


def stepped(kind: str, x: Array, w: Array, r: Array) -> Array:
    """By the definition, in NumPy and float64, without biases."""
    x, w, r = (array.astype(np.float64) for array in (x, w, r))
    h = c = np.zeros((x.shape[1], r.shape[1]))
    outputs = []
    for row in x:
        of_x, of_h = (np.split(z, len(r) // r.shape[1], -1) for z in (row @ w.T, h @ r.T))
        if kind == "lstm":
            i, f, g, o = (a + b for a, b in zip(of_x, of_h, strict=True))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            reset, update = (sigmoid(of_x[k] + of_h[k]) for k in range(2))
            h = (1 - update) * np.tanh(of_x[2] + reset * of_h[2]) + update * h
        outputs.append(h)
    return np.stack(outputs)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("batch", [4, 7, 16])
def test_steps_of_several_rows_are_cut_in_two_and_the_same_on_any_threads(
    kind: str, batch: int
) -> None:
    rng = np.random.default_rng(3)
    gates = {"lstm": 4, "gru": 3}[kind] * 128
    w, r = (0.1 * rng.standard_normal((gates, n), dtype=np.float32) for n in (32, 128))
    x = rng.standard_normal((9, batch, 32), dtype=np.float32)

    def layer(x: Any) -> Any:
        return getattr(arenite, kind)(x, w, r)[0]

    programs = [arenite.compile(layer, x, threads=threads) for threads in (1, 2, 3)]
    alone = programs[0](x)
    close(alone, stepped(kind, x, w, r))
    for program in programs:
        program.verify()
        assert [kernel.global_size[0] for kernel in program.kernels[-2:]] == [2, 2]
        for _ in range(5):
            assert program(x).tobytes() == alone.tobytes()
