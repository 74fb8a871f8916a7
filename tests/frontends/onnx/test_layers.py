"""Layers of networks in ONNX files: sizes that are open, attributes that the suite leaves out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.errors import InvalidFile, NotSupported
from arenite.ir import Dim, Var
from tests.frontends.onnx.node_models import judged, model_of, run, same, translated

Array = NDArray[Any]

N, H, W = Var("n", 1, 8), Var("h", 4, 64), Var("w", 4, 64)
T, B = Var("t", 1, 32), Var("b", 1, 8)


def floats(*shape: int) -> Array:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


EMPTY = np.zeros(0, np.float32)
WEIGHTS = floats(6, 4, 3, 3)
SCALES = np.array([1, 1, 2, 0.5], np.float32)
SIZES = np.array([2, 4, 9, 5])
IMAGE = (N, 4, H, W)

#: name to (op, opset, inputs, which are constants, shapes, attributes)
OPEN: dict[str, tuple[Any, ...]] = {
    "conv": ("Conv", 11, [floats(2, 4, 9, 11), WEIGHTS, floats(6)], (1, 2), {0: IMAGE},
             {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "transposed conv": ("ConvTranspose", 11, [floats(2, 4, 5, 7), floats(4, 3, 3, 3)], (1,),
                        {0: IMAGE}, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "max pool": ("MaxPool", 12, [floats(2, 4, 10, 8)], (), {0: IMAGE},
                 {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]}),
    "average pool": ("AveragePool", 19, [floats(2, 4, 10, 8)], (), {0: IMAGE},
                     {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 0, 1, 1],
                      "ceil_mode": 1, "count_include_pad": 1}),
    "nearest": ("Resize", 13, [floats(2, 4, 6, 8), EMPTY, SCALES], (1, 2), {0: IMAGE},
                {"mode": "nearest"}),
    "linear": ("Resize", 13, [floats(2, 4, 6, 8), EMPTY, SCALES], (1, 2), {0: IMAGE},
               {"mode": "linear"}),
    "cubic to a size": ("Resize", 13, [floats(2, 4, 6, 7), EMPTY, EMPTY, SIZES], (1, 2, 3),
                        {0: (2, 4, H, W)}, {"mode": "cubic"}),
    "layer norm": ("LayerNormalization", 17, [floats(2, 3, 4), floats(4), floats(4)], (),
                   {0: (N, T, 4)}, {}),
    "layer norm of an optimiser": ("LayerNormalization", 11, [floats(2, 3, 4), floats(4)], (),
                                   {0: (N, T, 4)}, {"epsilon": 1e-12}),
    "instance norm": ("InstanceNormalization", 7, [floats(2, 4, 6, 7), floats(4), floats(4)], (),
                      {0: IMAGE}, {}),
    "lstm": ("LSTM", 14, [floats(5, 3, 4), floats(2, 20, 4), floats(2, 20, 5), floats(2, 40)],
             (1, 2, 3), {0: (T, B, 4)}, {"hidden_size": 5, "direction": "bidirectional"}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes(name: str) -> None:
    op, opset, inputs, constants, shapes, attrs = OPEN[name]
    model = model_of(op, inputs, opset, constants=constants, **attrs)
    wanted = judged(model, inputs)
    same(run(model, inputs, shapes), wanted)
    same(run(model, inputs, shapes, compiled=True), wanted)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_before_version_13_is_over_all_axes_that_follow(axis: int) -> None:
    x = floats(2, 3, 4)
    raised = np.exp(x)
    total = raised.sum(tuple(range(axis, 3)), keepdims=True)
    for op, wanted in (("Softmax", raised / total), ("LogSoftmax", np.log(raised / total))):
        model = model_of(op, [x], 11, axis=axis)
        same(run(model, [x], {0: (N, T, 4)}), [wanted])


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm_step(x: Array, state: list[Array], w: Array, r: Array, bias: Array) -> list[Array]:
    h, c = state
    i, o, f, g = np.split(w @ x + r @ h + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def gru_step(x: Array, state: list[Array], w: Array, r: Array, bias: Array) -> list[Array]:
    [h] = state
    (xz, xr, xn), (rz, rr, rn), (bz, br, bn) = (np.split(one, 3) for one in (w @ x, r, bias))
    z, reset = sigmoid(xz + rz @ h + bz), sigmoid(xr + rr @ h + br)
    return [(1 - z) * np.tanh(xn + rn @ (reset * h) + bn) + z * h]


def rnn_step(x: Array, state: list[Array], w: Array, r: Array, bias: Array) -> list[Array]:
    return [np.tanh(w @ x + r @ state[0] + bias)]


STEPS: dict[str, tuple[int, int, Callable[..., list[Array]]]] = {
    "LSTM": (4, 2, lstm_step),
    "GRU": (3, 1, gru_step),
    "RNN": (1, 1, rnn_step),
}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", STEPS)
def test_sequences_that_end_earlier(op: str, direction: str) -> None:
    """One sequence after the other, each as long as it is."""
    n_gates, n_states, step = STEPS[op]
    time, batch, width, hidden = 5, 3, 4, 6
    backwards = {"forward": [False], "reverse": [True]}.get(direction, [False, True])
    n = len(backwards)
    x, w = floats(time, batch, width), floats(n, n_gates * hidden, width)
    r, bias = floats(n, n_gates * hidden, hidden), floats(n, 2 * n_gates * hidden)
    lengths = np.array([5, 1, 3], np.int32)
    first = [floats(n, batch, hidden + k)[..., :hidden].copy() for k in range(n_states)]
    inputs = [x, w, r, bias, lengths, *first]
    model = model_of(op, inputs, 14, n_outputs=1 + n_states, hidden_size=hidden,
                     direction=direction)  # fmt: skip
    outputs = np.zeros((time, n, batch, hidden))
    last = [np.zeros((n, batch, hidden)) for _ in range(n_states)]
    for d, is_back in enumerate(backwards):
        both = bias[d, : n_gates * hidden] + bias[d, n_gates * hidden :]
        for b, length in enumerate(lengths):
            state = [one[d, b] for one in first]
            for t in range(length)[::-1] if is_back else range(length):
                state = step(x[t, b], state, w[d], r[d], both)
                outputs[t, d, b] = state[0]
            for k, one in enumerate(state):
                last[k][d, b] = one
    got = run(model, inputs)
    for one, other in zip(got, [outputs, *last], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_lstm_bounds_what_its_gates_are_given() -> None:
    """As ONNX Runtime does it: the cell itself is not bounded."""
    x, w, r = np.abs(floats(12, 1, 3)) * 4, np.abs(floats(1, 8, 3)), floats(1, 8, 2)
    model = model_of("LSTM", [x, w, r], 14, hidden_size=2, clip=0.2)
    h, c = np.zeros(2), np.zeros(2)
    wanted = []
    for t in range(12):
        i, o, f, g = np.split(np.clip(w[0] @ x[t, 0] + r[0] @ h, -0.2, 0.2), 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        wanted.append(h)
    assert np.abs(c).max() > 0.2
    np.testing.assert_allclose(run(model, [x, w, r])[0][:, 0, 0], wanted, rtol=1e-5)


def test_activations_take_their_numbers_in_order() -> None:
    inputs = [floats(3, 2, 4), floats(2, 5, 4), floats(2, 5, 5)]
    model = model_of("RNN", inputs, 14, hidden_size=5, direction="bidirectional",
                     activations=["Softsign", "LeakyRelu"], activation_alpha=[0.3])  # fmt: skip
    [got, *_] = run(model, inputs)
    h = np.zeros((2, 5))
    for t in range(3):
        s = inputs[0][t] @ inputs[1][0].T + h @ inputs[2][0].T
        h = s / (1 + np.abs(s))
        np.testing.assert_allclose(got[t, 0], h, rtol=1e-5, atol=1e-6)
    h = np.zeros((2, 5))
    for t in range(3)[::-1]:
        s = inputs[0][t] @ inputs[1][1].T + h @ inputs[2][1].T
        h = np.where(s < 0, 0.3 * s, s)
        np.testing.assert_allclose(got[t, 1], h, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [0, 2])
def test_regions(mode: str, samples: int) -> None:
    rois = np.array([[0, 0, 20, 20], [3, 5, 22, 18], [-4, -3, 30, 50], [9, 9, 8, 7]], np.float32)
    inputs = [floats(2, 3, 12, 14), rois, np.array([0, 1, 1, 0])]
    model = model_of("RoiAlign", inputs, 16, mode=mode, output_height=3, output_width=4,
                     sampling_ratio=samples, spatial_scale=0.5)  # fmt: skip
    same(run(model, inputs), judged(model, inputs))


def test_a_region_of_an_image_that_is_not_there() -> None:
    from arenite.errors import IndexOutOfRange

    rois = np.array([[0, 0, 4, 4]], np.float32)
    inputs = [floats(2, 1, 6, 6), rois, np.array([-1])]
    model = model_of("RoiAlign", inputs, 16, output_height=2, output_width=2, sampling_ratio=1)
    with pytest.raises(IndexOutOfRange):
        run(model, inputs, compiled=True)


def overlap(a: Array, b: Array) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inner = np.prod(np.maximum(high - low, 0))
    return float(inner / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inner))


@pytest.mark.parametrize("least", [None, 0.4, 2.0])
@pytest.mark.parametrize("most", [4, 1000])
def test_boxes_that_overlap_a_better_one_are_left_out(most: int, least: float | None) -> None:
    rng = np.random.default_rng(3)
    corners = np.sort(rng.uniform(0, 1, (2, 30, 2, 2)), axis=2).reshape(2, 30, 4)
    boxes = corners.astype(np.float32)
    scores = rng.uniform(0, 1, (2, 3, 30)).astype(np.float32)
    wanted = []
    for image in range(2):
        for kind in range(3):
            kept: list[int] = []
            for box in np.argsort(-scores[image, kind]):
                if least is not None and scores[image, kind, box] <= least:
                    continue
                if len(kept) < most and all(
                    overlap(boxes[image, box], boxes[image, one]) <= 0.3 for one in kept
                ):
                    kept.append(int(box))
            wanted += [[image, kind, box] for box in kept]
    limits: list[Array | None] = [np.array([most]), np.array([0.3], np.float32)]
    if least is not None:
        limits.append(np.array([least], np.float32))
    inputs: list[Array | None] = [boxes, scores, *limits]
    model = model_of("NonMaxSuppression", inputs, 11, constants=range(2, len(inputs)))
    n = Var("n", 1, 100)
    shapes: dict[int, tuple[Dim, ...]] = {0: (2, n, 4), 1: (2, 3, n)}
    [got] = run(model, inputs, shapes, compiled=True)
    assert got.tolist() == np.reshape(wanted, (-1, 3)).tolist()


ATTENTIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "causal": (23, {"is_causal": 1}),
    "window": (25, {"left_window_size": 2, "right_window_size": 1}),
    "causal window": (25, {"left_window_size": 1, "is_causal": 1}),
    "left window": (25, {"left_window_size": 2}),
    "soft cap": (23, {"softcap": 1.5, "is_causal": 1}),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_after_a_past_with_shared_heads(name: str) -> None:
    opset, attrs = ATTENTIONS[name]
    inputs = [floats(2, 4, 5, 8), floats(2, 2, 5, 8), floats(2, 2, 5, 6), None,
              floats(2, 2, 3, 8), floats(2, 2, 3, 6)]  # fmt: skip
    model = model_of("Attention", inputs, opset, n_outputs=3, **attrs)
    past = Var("past", 0, 16)
    shapes = {0: (B, 4, T, 8), 1: (B, 2, T, 8), 2: (B, 2, T, 6), 4: (B, 2, past, 8),
              5: (B, 2, past, 6)}  # fmt: skip
    made, _ = translated(model, inputs, shapes)
    is_one_op = any(node.op == "attention" for node in made.graph.nodes)
    assert is_one_op == (name != "soft cap")
    same(run(model, inputs, shapes), judged(model, inputs))


def test_a_size_bomb_takes_no_memory_while_it_is_read() -> None:
    inputs = [floats(1, 1, 4), EMPTY, EMPTY, np.array([1, 1, 10**15])]
    for mode in ("nearest", "linear"):
        model = model_of("Resize", inputs, 13, constants=(1, 2, 3), mode=mode)
        made, _ = translated(model, inputs)
        assert made.graph.outputs[0].shape == (1, 1, 10**15)
    model = model_of("Resize", inputs, 18, constants=(1, 2, 3), mode="linear",
                     antialias=1)  # fmt: skip
    with pytest.raises(NotSupported, match="weights"):
        translated(model, inputs)


def test_what_is_wrong_is_said_with_the_node() -> None:
    inputs = [floats(1, 4, 9, 9), WEIGHTS]
    with pytest.raises(InvalidFile, match=r"'y0' \(Conv\): kernel_shape \[5, 5\]"):
        run(model_of("Conv", inputs, 11, kernel_shape=[5, 5]), inputs)
    with pytest.raises(InvalidFile, match="pads"):
        run(model_of("Conv", inputs, 11, pads=[1, 1]), inputs)
    with pytest.raises(InvalidFile, match="auto_pad is 'SAME'"):
        run(model_of("Conv", inputs, 11, auto_pad="SAME"), inputs)
    layer = [floats(5, 3, 4), floats(1, 20, 4), floats(1, 20, 5)]
    with pytest.raises(InvalidFile, match="2 directions"):
        run(model_of("LSTM", layer, 14, hidden_size=5, direction="bidirectional"), layer)
    with pytest.raises(NotSupported, match="'Swish'"):
        run(model_of("LSTM", layer, 14, hidden_size=5, activations=["Swish"] * 3), layer)


def test_images_are_decoded_by_a_package_that_may_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    inputs = [np.zeros(4, np.uint8)]
    model = model_of("ImageDecoder", inputs, 20)
    with pytest.raises(NotSupported, match="pip install pillow"):
        translated(model, inputs, known=[0])
