"""ONNX Runtime's side of `bench.operators`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime


def prepare(case: str, threads: int) -> Callable[[], list[object]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(case, options, providers=["CPUExecutionProvider"])
    with np.load(Path(case).with_suffix(".npz")) as loaded:
        arrays = dict(loaded)
    return lambda: list(session.run(None, arrays))
