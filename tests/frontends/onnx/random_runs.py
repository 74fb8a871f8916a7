"""Runs of random models, and what differs from a judge's results.

python -m tests.frontends.onnx.random_runs FIRST COUNT [--compile]      says which seeds differ
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.frontends.onnx.file import OnnxFile
from arenite.model import Model
from tests.frontends.onnx.random_judge import Judges, judged, judged_by_node
from tests.frontends.onnx.random_models import RandomModel, is_float_type, random_model
from tests.frontends.onnx.suite import ran, translated

Array = NDArray[Any]


def by_rules(made: RandomModel) -> list[dict[str, Array]]:
    """What a model gives for each binding, with sizes that are numbers, by the reference rules."""
    data = made.model.SerializeToString()
    found = []
    for inputs in made.inputs:
        graph, arrays = translated(OnnxFile.of_bytes(data, "random.onnx"), dict(inputs))
        results = ran(graph, arrays, compiled=False)
        found.append(dict(zip(graph.outputs, results, strict=True)))
    return found


def compiled(made: RandomModel) -> list[dict[str, Array]]:
    """What one compiled model gives for each binding, with sizes that are open."""
    with Model.of_bytes(made.model.SerializeToString()).compile(threads=1) as program:
        return [dict(program(inputs)) for inputs in made.inputs]


def differences(seeds: range, *, is_compiled: bool, judges: Judges) -> dict[int, str]:
    """What differs from the judge's, by seed."""
    found = {}
    for seed in seeds:
        made = random_model(seed)
        try:
            results = compiled(made) if is_compiled else by_rules(made)
            texts = [
                _judged_difference(made, inputs, one, judges)
                for one, inputs in zip(results, made.inputs, strict=True)
            ]
        except Exception as error:  # told with the seed
            last = traceback.extract_tb(error.__traceback__)[-1]
            texts = [f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"]
        if any(texts):
            [text, *_] = filter(None, texts)
            found[seed] = text
    return found


def _judged_difference(
    made: RandomModel, inputs: dict[str, Array], found: dict[str, Array], judges: Judges
) -> str:
    """What differs from the judge's; and from that of its nodes, where it is known to be wrong."""
    text = difference(found, judged(made.model, inputs, judges), made.tolerances)
    if text:
        errors: Judges = Judges()
        again = judged_by_node(made.model, inputs, errors)
        told = {name: n for name, n in errors.items() if not name.startswith("nodes ")}
        if told:
            judges.update(told)
            text = difference(found, again, made.tolerances)
    return text


def difference(
    found: Mapping[str, Array],
    wanted: Mapping[str, Array],
    tolerances: Mapping[str, tuple[float, float]],
) -> str:
    """What differs first, or nothing."""
    for name, other in wanted.items():
        one = found[name]
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{name} is {one.dtype}{one.shape}, not {other.dtype}{other.shape}"
        if not is_float_type(other.dtype):
            if not np.array_equal(one, other):
                return f"{name} differs in {int((one != other).sum())} of {other.size} elements"
            continue
        rtol, atol = tolerances[name]
        wide, its = one.astype(np.float64), other.astype(np.float64)
        wrong = ~np.isclose(wide, its, rtol=rtol, atol=atol, equal_nan=True)
        if wrong.any():
            k = int(np.argmax(np.where(wrong, np.abs(wide - its), -1)))
            return (
                f"{name} differs in {int(wrong.sum())} of {other.size} elements: "
                f"{wide.reshape(-1)[k]} is not {its.reshape(-1)[k]} (by {rtol:g} and {atol:g})"
            )
    return ""


def main(first: str, count: str, *more: str) -> None:
    judges: Judges = Judges()
    for seed in range(int(first), int(first) + int(count)):
        for text in differences(
            range(seed, seed + 1), is_compiled="--compile" in more, judges=judges
        ).values():
            print(f"{seed}: {text[:400]}", flush=True)
    print(dict(judges), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
