"""Inputs of real models for tests, and of their outputs what is kept as a reference.

python -m tests.model.real_models PYTHON    writes references.npz beside this file, with a Python
                                            that has onnxruntime
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

REFERENCES = Path(__file__).with_name("references.npz")
#: Elements of an output that are kept.
MOST_KEPT = 1500

#: Models of the catalogue with the shapes of inputs; a letter is a size.
CASES: dict[str, list[dict[str, Any]]] = {
    "silero-vad": [
        {"input": (1, 576), "state": (2, 1, 128), "sr": 16000},
        {"input": (1, 288), "state": (2, 1, 128), "sr": 8000},
        {"input": (3, 576), "state": (2, 3, 128), "sr": 16000},
    ],
    "magika": [{"bytes": (1, 2048)}, {"bytes": (3, 2048)}],
    "ppocr-det": [{"x": (1, 3, 64, 96)}, {"x": (1, 3, 96, 32)}],
    "ppocr-rec": [{"x": (1, 3, 48, 80)}, {"x": (2, 3, 48, 67)}],
    "ppocr-cls": [{"x": (1, 3, 48, 192)}, {"x": (2, 3, 48, 192)}],
    "basic-pitch": [{"serving_default_input_2:0": (1, 43844, 1)}],
}


def feeds(name: str) -> Iterator[dict[str, Array]]:
    """The inputs of each case: noise that a seed makes, bytes for who reads bytes."""
    for seed, case in enumerate(CASES[name]):
        generator = np.random.default_rng(seed)
        feed: dict[str, Array] = {}
        for key, given in case.items():
            if isinstance(given, int):
                feed[key] = np.array(given)
            elif key == "bytes":
                feed[key] = generator.integers(0, 257, given).astype(np.int32)
            else:
                feed[key] = generator.standard_normal(given).astype(np.float32)
        yield feed


def kept(array: Array) -> Array:
    """Some elements of an output, over all of it."""
    flat = array.reshape(-1)
    return flat[:: -(-flat.size // MOST_KEPT)]


_PEER = """
import sys
import numpy as np
import onnxruntime
from tests.model.real_models import feeds, kept
name, path, out = sys.argv[1:]
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_outputs()]
found = {}
for k, feed in enumerate(feeds(name)):
    for output, array in zip(names, session.run(None, feed)):
        found[f"{name}/{k}/{output}"] = kept(array)
        found[f"{name}/{k}/{output}/shape"] = np.array(array.shape)
np.savez(out, **found)
"""


def main(python: str) -> None:
    from arenite.fetch import obtain

    found: dict[str, Array] = {}
    root = Path(__file__).parent.parent.parent
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            out = Path(folder) / "out.npz"
            command = [python, "-c", _PEER, name, str(obtain(name)), str(out)]
            subprocess.run(command, check=True, cwd=root)
            with np.load(out) as loaded:
                found |= {key: loaded[key] for key in loaded.files}
    arrays: dict[str, Any] = found
    np.savez_compressed(REFERENCES, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
