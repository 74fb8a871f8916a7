"""Models made by others give what ONNX Runtime gives, and are kept to their plans."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from arenite.model import Model
from tests.model.real_models import CASES, REFERENCES, feeds, kept


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_onnx_runtimes(name: str, catalogue_model: Callable[[str], Path]) -> None:
    with np.load(REFERENCES) as wanted, Model.open(catalogue_model(name)).compile() as program:
        for k, feed in enumerate(feeds(name)):
            found = program(feed)
            for output, array in found.items():
                key = f"{name}/{k}/{output}"
                assert list(array.shape) == wanted[f"{key}/shape"].tolist()
                np.testing.assert_allclose(kept(array), wanted[key], rtol=1e-3, atol=2e-5)
        # Calls of other shapes need no program of their own, but for another sampling rate.
        assert program.variants.n_compiled == (2 if name == "silero-vad" else 1)
        program.verify()


#: A package that imports ONNX Runtime itself and is told nothing: what it says of a few files.
PACKAGE = """
import sys
if sys.argv[1] == "arenite":
    import arenite.onnxruntime
    sys.modules["onnxruntime"] = arenite.onnxruntime
import onnxruntime
from magika import Magika
tool = Magika()
assert type(tool._onnx_session) is onnxruntime.InferenceSession
assert type(tool._onnx_session).__module__.startswith(sys.argv[1])
texts = "import os\\nclass A:\\n    pass\\n", "a,b\\n1,2\\n" * 9, "# Title\\n\\n- it\\n", "<p>x</p>"
for text in texts:
    found = tool.identify_bytes(text.encode())
    print(found.dl.label, f"{found.score:.6f}")
"""


def test_a_package_moves_over_by_another_import() -> None:
    said = []
    for module in ("arenite", "onnxruntime"):
        run = subprocess.run(
            [sys.executable, "-c", PACKAGE, module], capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        said.append([line.split() for line in run.stdout.splitlines()])
    ours, theirs = said
    assert [label for label, _ in ours] == [label for label, _ in theirs]
    assert len(ours) == 4
    scores = [[float(score) for _, score in one] for one in said]
    # Of short texts nearly all is padding, whose deviation the model divides by: ONNX Runtime's
    # float32 is off by 0.006 there, against the same in float64, ours by 0.0001.
    np.testing.assert_allclose(scores[0], scores[1], atol=0.01)
