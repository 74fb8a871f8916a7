"""ONNX's own node cases, run through the importer: by the reference rules, or compiled.

python -m tests.frontends.onnx.suite [--compile | --device=NAME] [PATTERN...]
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, SequenceProto, TensorProto, numpy_helper

from arenite.dtype import of as dtype_of
from arenite.errors import AreniteError, NotSupported
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.inputs import Absent, StructureNeeded
from arenite.frontends.onnx.translate import Argument, Given, Translated, translate
from arenite.frontends.onnx.values import AnyValue, Items, Maybe, Value
from arenite.ir import evaluate
from arenite.ir.element import held_dtype

Array = NDArray[Any]


#: Cases whose numbers are known better than the suite has them: (part of the name, rtol, atol).
#: Sums of bfloat16 and float16 that are rounded after every step there and once here differ by the
#: last bits of these types; of transforms whose result is 0 the suite has the noise of float32.
ROUNDED = (
    ("bf16", 2.0**-6, 1e-7),
    ("attention_4d_causal_fp16_expanded", 2.0**-9, 1e-7),
    ("test_dft_inverse", 1e-3, 1e-6),
)


@dataclass(frozen=True)
class Case:
    """A model with inputs and the outputs they must give; in each list an array, a list or None."""

    name: str
    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


@cache
def cases() -> dict[str, Case]:
    """All node cases by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    made = {}
    for one in found:
        assert one.data_sets is not None
        assert one.model is not None
        [(inputs, outputs)] = one.data_sets
        graph = one.model.graph
        data = [read(i, v.type) for i, v in zip(inputs, graph.input, strict=True)]
        wanted = [read(o, v.type) for o, v in zip(outputs, graph.output, strict=True)]
        made[one.name] = Case(one.name, one.model, data, wanted, one.rtol, one.atol)
    return made


def read(data: Any, kind: onnx.TypeProto) -> Any:
    """An array, a list of arrays, or None."""
    if isinstance(data, TensorProto):
        return np.asarray(numpy_helper.to_array(data))
    if isinstance(data, SequenceProto):
        return numpy_helper.to_list(data)
    if isinstance(data, onnx.OptionalProto):
        return numpy_helper.to_optional(data)
    return data if isinstance(data, list) or data is None else np.asarray(data)


def given_of(data: Any) -> Given:
    """What an input is, for data of a case: sizes are numbers."""
    if data is None:
        return Absent()
    if isinstance(data, list):
        return tuple(map(given_of, data))
    if is_text(data):
        return Argument(data.shape, dtype_of("int64"), is_string=True)
    return Argument(data.shape, held_dtype(data.dtype))


def flat(data: Any) -> list[Array]:
    if data is None:
        return []
    return [one for item in data for one in flat(item)] if isinstance(data, list) else [data]


def translated(file: OnnxFile, inputs: dict[str, Any]) -> tuple[Translated, list[Array]]:
    """The graph for these inputs, and the arrays it takes."""
    known: dict[str, Array] = {}
    while True:
        given = {name: known.get(name, given_of(data)) for name, data in inputs.items()}
        try:
            made = translate(file, given)
        except StructureNeeded as needed:
            new = [name for name in needed.names if name not in known]
            if not new:
                raise
            known |= {name: inputs[name] for name in new}
            continue
        arrays = [a for name, data in inputs.items() if name not in known for a in flat(data)]
        return made, arrays


def run(case: Case, *, compiled: bool, device: str = "cpu") -> list[Any]:
    """The outputs of a case, by the reference rules or compiled for a device."""
    file = OnnxFile.of_bytes(case.model.SerializeToString(), case.name)
    inputs = dict(zip([one.name for one in case.model.graph.input], case.inputs, strict=True))
    made, arrays = translated(file, inputs)
    with file.strings.in_call():
        arrays = [file.strings.places(one) if is_text(one) else one for one in arrays]
        results = ran(made, arrays, compiled=compiled, device=device)
        remaining = iter(results)
        return [rebuilt(file, value, remaining) for value in made.outputs.values()]


def is_text(array: Array) -> bool:
    return array.dtype == object or array.dtype.kind in "US"


def ran(
    made: Translated, arrays: list[Array], *, compiled: bool, device: str = "cpu"
) -> list[Array]:
    if compiled:
        from arenite.pipeline.program import compile_program
        from arenite.program.options import Options

        with compile_program(made.graph, Options(device=device), threads=1) as program:
            return list(program(*arrays))
    return evaluate(made.graph, arrays)


def rebuilt(file: OnnxFile, value: AnyValue, arrays: Iterator[Array]) -> Any:
    if isinstance(value, Items):
        return [rebuilt(file, one, arrays) for one in value.values]
    if isinstance(value, Maybe):
        return None if value.value is None else rebuilt(file, value.value, arrays)
    assert isinstance(value, Value)
    return file.strings.texts(next(arrays)) if value.is_string else next(arrays)


def compare(case: Case, results: Sequence[Any]) -> None:
    """AssertionError where a result is not the suite's, in value, type or shape."""
    wanted = case.outputs
    if "bernoulli" in case.name:  # whose numbers the standard leaves open: types and shapes alone
        wanted = [np.zeros_like(one) for one in wanted]
        results = [np.zeros_like(one) for one in results]
    assert len(results) == len(wanted)
    for one, other in zip(results, wanted, strict=True):
        same(case, one, other)


def same(case: Case, one: Any, other: Any) -> None:
    if other is None:
        assert one is None
        return
    if isinstance(other, list):
        assert isinstance(one, list)
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(case, a, b)
        return
    one = np.asarray(one)
    assert one.shape == other.shape, f"shape {one.shape}, not {other.shape}"
    if is_text(other):
        assert one.tolist() == other.tolist()
        return
    assert one.dtype == other.dtype, f"dtype {one.dtype}, not {other.dtype}"
    if other.dtype.kind in "biu":
        np.testing.assert_array_equal(one, other)
        return
    if other.dtype.kind == "V":  # of ml_dtypes
        one, other = one.astype(np.float32), other.astype(np.float32)
    rtol, atol = case.rtol, case.atol
    for part, *bounds in ROUNDED:
        if part in case.name:
            rtol, atol = bounds
    np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def outcome(case: Case, *, compiled: bool, device: str = "cpu") -> tuple[str, str]:
    """pass, unsupported, wrong or error, with the reason."""
    try:
        results = run(case, compiled=compiled, device=device)
    except NotSupported as error:
        return "unsupported", str(error)
    except (AreniteError, AssertionError, Exception) as error:
        return "error", f"{type(error).__name__}: {error}"
    try:
        compare(case, results)
    except AssertionError as error:
        return "wrong", " ".join(str(error).split())[:300]
    return "pass", ""


def main(arguments: list[str]) -> None:
    devices = [one.removeprefix("--device=") for one in arguments if one.startswith("--device=")]
    compiled, device = "--compile" in arguments or bool(devices), (devices or ["cpu"])[0]
    patterns = [one for one in arguments if not one.startswith("--")]
    counts: Counter[str] = Counter()
    for name, case in cases().items():
        if patterns and not any(one in name for one in patterns):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result, reason = outcome(case, compiled=compiled, device=device)
        counts[result] += 1
        if result != "pass" or "--all" in arguments:
            print(f"{result:12} {name:50} {reason[:220]}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")
    main(sys.argv[1:])
