"""A program that was written for ONNX Runtime runs here by one import, and a package does too.

python examples/move_over.py [FILE...]                                   (needs: pip install magika)
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import arenite.onnxruntime as ort  # was: import onnxruntime as ort
from arenite.fetch import obtain

# A package that imports it itself finds ours in its place.
sys.modules["onnxruntime"] = ort

from magika import Magika  # noqa: E402 - it imports onnxruntime

TEXTS = {
    "a program": b"import os\n\nclass Reader:\n    def read(self):\n        return os.getcwd()\n",
    "a page": b"<!DOCTYPE html><html><head><title>Hi</title></head><body><p>Text</p></body></html>",
    "a table": b"name,age,city\nAna,54,Lima\nBob,31,Oslo\nEve,27,Kyoto\n" * 4,
    "settings": b'{"threads": 2, "memory": "64MiB", "models": ["magika", "silero-vad"]}',
}


def main(*paths: str) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(
        str(obtain("magika")), options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    [given] = session.get_inputs()
    [scores] = session.run(None, {given.name: np.full((3, 2048), 256, np.int32)})
    print(f"{given}\nruns on {session.get_providers()} and gives {scores.shape}\n")

    tool = Magika()  # of Google: it knows nothing of Arenite
    files = {path: Path(path).read_bytes() for path in paths} or TEXTS
    print(f"{'file':<20} {'is':<12} certainty")
    for name, data in files.items():
        found = tool.identify_bytes(data)
        print(f"{name:<20.20} {found.output.label:<12} {found.score:8.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
