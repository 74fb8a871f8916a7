"""Mutated models: thousands of rounds end with a graph or one clear error, within limits.

Small models of ONNX's own suite, and real ones of the catalogue.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from arenite.device import Buffer
from arenite.errors import AreniteError
from arenite.frontends.onnx.translate import Translated
from arenite.frontends.onnx.wire import scan
from tests.frontends.onnx.fuzzing import limited, read
from tests.frontends.onnx.models import graph, info, model, stored
from tests.frontends.onnx.mutations import INTEGERS, mutated_bytes, mutated_model
from tests.frontends.onnx.random_models import random_model

#: Of the catalogue.
REAL = ("silero-vad", "magika", "basic-pitch", "ppocr-det", "ppocr-cls")
#: Rounds of one case, and what one round may take.
ROUNDS, SECONDS, NBYTES = 20, 20.0, 1 << 30
#: Small models that are mutated.
N_SMALL = 150


def small(seed: int) -> ModelProto:
    """A random model with numbers for sizes."""
    made = random_model(seed)
    model = ModelProto()
    model.CopyFrom(made.model)
    for one in model.graph.input:
        sizes = made.inputs[0][one.name].shape
        for dim, size in zip(one.type.tensor_type.shape.dim, sizes, strict=True):
            dim.dim_value = size
    return model


def readable(seed: int) -> ModelProto:
    """The first of some small models that is read as it is: sizes are filled in blindly, and of
    some seeds that makes no sense."""
    models = (small(seed + N_SMALL * k) for k in range(10))
    return next(one for one in models if isinstance(read(one.SerializeToString(), {}), Translated))


def gaps(data: bytes) -> list[tuple[int, int]]:
    """What of a file is no weight, as (start, stop)."""
    places = scan("m.onnx", Buffer.from_array(np.frombuffer(data, np.uint8))).places
    found, at = [], 0
    for place in sorted(places, key=lambda one: one.offset):
        if place.offset > at:
            found.append((at, place.offset))
        at = place.offset + place.nbytes
    return [*found, (at, len(data))] if at < len(data) else found


def rounds(data: bytes, seed: str, count: int) -> int:
    """How many of the mutated models became graphs."""
    parsed = ModelProto.FromString(data)
    free = gaps(data)
    n_read = 0
    for k in range(count):
        rng = random.Random(f"{seed} {k}")
        changed = mutated_bytes(data, free, rng) if k % 3 == 0 else mutated_model(parsed, rng)
        try:
            with limited(SECONDS, NBYTES):
                n_read += isinstance(read(changed, {}), Translated)
        except BaseException as error:
            error.add_note(f"round {k} of {seed!r}")
            raise
    return n_read


@pytest.mark.parametrize("part", range(20))
@pytest.mark.parametrize("name", REAL)
def test_mutated_real_models_are_read_or_refused(
    name: str, part: int, catalogue_model: Callable[[str], Path]
) -> None:
    rounds(catalogue_model(name).read_bytes(), f"{name} {part}", ROUNDS)


@pytest.mark.parametrize("seed", range(N_SMALL))
def test_mutated_small_models_are_read_or_refused(seed: int) -> None:
    assert rounds(readable(seed).SerializeToString(), f"small {seed}", ROUNDS)


@pytest.mark.parametrize("seed", range(40))
def test_mutated_small_models_are_compiled_or_refused(seed: int) -> None:
    from arenite.pipeline.program import compile_program

    parsed = small(seed)
    for k in range(2):
        made = read(mutated_model(parsed, random.Random(f"compiled {seed} {k}")), {})
        if isinstance(made, AreniteError):
            continue
        with (
            contextlib.suppress(AreniteError),
            limited(120, 4 << 30),
            compile_program(made.graph, threads=1),
        ):
            pass


# Numbers that decide sizes: nothing is allocated or looped over in proportion to them.


def bomb(op: str, number: int) -> ModelProto:
    """A model of one operator that a number makes huge."""
    x = info("x", [1, 1, 4, 4])
    n = stored("n", np.asarray(number, np.int64))
    row = stored("row", np.asarray([number], np.int64))
    four = stored("four", np.asarray([1, 1, number, 1], np.int64))
    scales = stored("scales", np.asarray([1, 1, number, 1], np.float32))
    pads = stored("pads", np.asarray([0, 0, 0, 0, 0, 0, 0, number], np.int64))
    zero, one = stored("zero", np.asarray(0, np.int64)), stored("one", np.asarray(1, np.int64))
    hertz = [stored(f"f{k}", np.asarray(v, np.float32)) for k, v in enumerate((0.0, 8000.0))]
    node = helper.make_node
    made = {
        "Expand": (node("Expand", ["x", "four"], ["y"]), [four]),
        "Tile": (node("Tile", ["x", "four"], ["y"]), [four]),
        "Range": (node("Range", ["zero", "n", "one"], ["y"]), [zero, n, one]),
        "Pad": (node("Pad", ["x", "pads"], ["y"]), [pads]),
        "Pad reflect": (node("Pad", ["x", "pads"], ["y"], mode="reflect"), [pads]),
        "Resize": (node("Resize", ["x", "", "scales"], ["y"]), [scales]),
        "Resize cubic": (node("Resize", ["x", "", "", "four"], ["y"], mode="cubic"), [four]),
        "ConstantOfShape": (node("ConstantOfShape", ["row"], ["y"]), [row]),
        "OneHot": (
            node("OneHot", ["zero", "n", "two"], ["y"]),
            [zero, n, stored("two", np.asarray([0, 1], np.int64))],
        ),
        "Split": (node("Split", ["x"], ["y"], num_outputs=number), []),
        "SplitToSequence": (node("SplitToSequence", ["x", "n"], ["y"]), [n]),
        "HannWindow": (node("HannWindow", ["n"], ["y"]), [n]),
        "MelWeightMatrix": (
            node("MelWeightMatrix", ["n", "n", "n", "f0", "f1"], ["y"]),
            [n, *hertz],
        ),
        "DFT": (node("DFT", ["x", "n"], ["y"]), [n]),
        "STFT": (node("STFT", ["signal", "one", "", "n"], ["y"]), [one, n]),
        "Col2Im": (
            node("Col2Im", ["x", "image", "image"], ["y"]),
            [stored("image", np.asarray([number, number], np.int64))],
        ),
        "TopK": (node("TopK", ["x", "row"], ["y", "z"]), [row]),
        "EyeLike": (node("EyeLike", ["m"], ["y"], k=number), []),
        "Trilu": (node("Trilu", ["x", "n"], ["y"]), [n]),
        "MaxPool": (node("MaxPool", ["x"], ["y"], kernel_shape=[number, number]), []),
        "AveragePool": (
            node("AveragePool", ["x"], ["y"], kernel_shape=[1, 1], pads=[number] * 4),
            [],
        ),
        "LpPool": (node("LpPool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[number] * 2), []),
        "Conv": (node("Conv", ["x", "x"], ["y"], dilations=[number] * 2, pads=[number] * 4), []),
        "ConvTranspose": (node("ConvTranspose", ["x", "x"], ["y"], strides=[number] * 2), []),
        "output_shape": (node("ConvTranspose", ["x", "x"], ["y"], output_shape=[number] * 2), []),
        "LRN": (node("LRN", ["x"], ["y"], size=number), []),
        "DepthToSpace": (node("DepthToSpace", ["x"], ["y"], blocksize=number), []),
        "SpaceToDepth": (node("SpaceToDepth", ["x"], ["y"], blocksize=number), []),
        "CenterCropPad": (node("CenterCropPad", ["x", "row"], ["y"], axes=[3]), [row]),
        "GroupNormalization": (
            node("GroupNormalization", ["x", "row", "row"], ["y"], num_groups=number),
            [row],
        ),
        "Unsqueeze": (node("Unsqueeze", ["x", "row"], ["y"]), [row]),
        "RandomNormal": (node("RandomNormal", [], ["y"], shape=[number]), []),
        "Multinomial": (node("Multinomial", ["m"], ["y"], sample_size=number), []),
        "RoiAlign": (
            node("RoiAlign", ["x", "m", "image"], ["y"], output_height=number, output_width=2,
                 sampling_ratio=number),
            [stored("image", np.zeros(4, np.int64))],
        ),
        "Gather": (node("Gather", ["x", "n"], ["y"]), [n]),
        "Slice": (node("Slice", ["x", "row", "row", "row", "row"], ["y"]), [row]),
        "Loop": (
            node("Loop", ["n", "", "x"], ["y"], body=graph(
                [node("Identity", ["go"], ["on"]), node("Neg", ["a"], ["b"])],
                [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL),
                 info("a", None)],
                [info("on", [], TensorProto.BOOL), info("b", None)])),
            [n],
        ),
    }  # fmt: skip
    chosen, tensors = made[op]
    inputs = [x, info("m", [4, 4]), info("signal", [1, 64, 1])]
    used = [one for one in inputs if one.name in chosen.input]
    return model(graph([chosen], used, [info("y", None)], tensors), 21)


BOMBS = (
    "Expand", "Tile", "Range", "Pad", "Pad reflect", "Resize", "Resize cubic", "ConstantOfShape",
    "OneHot", "Split", "SplitToSequence", "HannWindow", "MelWeightMatrix", "DFT", "STFT", "Col2Im",
    "TopK", "EyeLike", "Trilu", "MaxPool", "AveragePool", "LpPool", "Conv", "ConvTranspose",
    "output_shape", "LRN", "DepthToSpace", "SpaceToDepth", "CenterCropPad", "GroupNormalization",
    "Unsqueeze", "RandomNormal", "Multinomial", "RoiAlign", "Gather", "Slice", "Loop",
)  # fmt: skip


@pytest.mark.parametrize("op", BOMBS)
def test_a_number_in_a_file_costs_no_time_or_memory_to_read(op: str) -> None:
    for number in INTEGERS:
        with limited(SECONDS, 256 << 20):
            read(bomb(op, number).SerializeToString(), {})


def test_an_attribute_of_another_kind_is_named() -> None:
    made = model(
        graph(
            [helper.make_node("Flatten", ["x"], ["y"], name="it", axis="text")],
            [info("x", [2, 2])],
            [info("y", None)],
        )
    )
    error = read(made.SerializeToString(), {})
    assert isinstance(error, AreniteError)
    assert "'it' (Flatten): attribute 'axis' is not an integer" in str(error)


def test_limits_are_kept() -> None:
    """The judge itself: it stops what takes too long, or too much."""
    from tests.frontends.onnx.fuzzing import TooLong

    with pytest.raises(TooLong), limited(0.2, 1 << 30):
        sum(1 for _ in iter(int, 1))
    with pytest.raises(MemoryError), limited(10, 1 << 28):
        bytes(1 << 30)
