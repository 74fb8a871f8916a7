"""Models run by ONNX Runtime, the outside judge of what models give. It runs in a process of its
own: of some empty tensors it divides by zero, which ends the process.

    run_runtime(model, arrays)     the outputs, or Refused with its reason
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto

#: Types that it gives as arrays of others, of bytes mostly.
HIDDEN = ("bfloat16", "float8", "float4", "int4", "int2")

_CHILD = """
import pickle, sys
import onnxruntime

options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = options.inter_op_num_threads = 1
# What is judged is what operators mean; fusions of the peer are approximations of it.
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
asked, answered = sys.stdin.buffer, sys.stdout.buffer
while True:
    try:
        data, given = pickle.load(asked)
    except EOFError:
        break
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        found = [one.type for one in session.get_outputs()], session.run(None, given)
    except Exception as error:
        found = str(error), None
    pickle.dump(found, answered)
    answered.flush()
"""


class Refused(Exception):
    """ONNX Runtime has no such operator, no such type, or finds something wrong."""


class _Child:
    """The process, started when it is first needed, and again where a model ended it."""

    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def ask(cls, data: bytes, given: dict[str, Any]) -> tuple[Any, Any]:
        if cls.process is None:
            cls.process = subprocess.Popen(
                [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        asked, answered = cls.process.stdin, cls.process.stdout
        assert asked is not None
        assert answered is not None
        try:
            pickle.dump((data, given), asked)
            asked.flush()
            found: tuple[Any, Any] = pickle.load(answered)
        except (EOFError, BrokenPipeError):
            asked.close()
            answered.close()
            code, cls.process = cls.process.wait(), None
            return f"it ended the process with {code}", None
        return found


def run_runtime(model: ModelProto, given: Mapping[str, Any]) -> list[Any]:
    """The outputs of a model: arrays, or lists of them."""
    if any(isinstance(one, np.ndarray) and one.dtype.kind == "V" for one in given.values()):
        raise Refused("it takes no arrays of this type")
    kinds, results = _Child.ask(model.SerializeToString(), dict(given))
    if results is None:
        raise Refused(kinds)
    if any(hidden in kind for kind in kinds for hidden in HIDDEN):
        raise Refused("it gives no arrays of this type")
    return [one if isinstance(one, list) or one is None else np.asarray(one) for one in results]
