"""ONNX Runtime's side of `bench.whole_models`."""

from __future__ import annotations

from collections.abc import Callable

import onnxruntime
from bench.whole_models_cases import feed


def prepare(case: str, threads: int) -> Callable[[], object]:
    name, path = case.split(" ", 1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    arrays = feed(name, path)
    return lambda: session.run(None, arrays)
