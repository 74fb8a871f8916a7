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


def test_a_package_moves_over_by_another_import(catalogue_model: Callable[[str], Path]) -> None:
    """What a program does that knows ONNX Runtime alone: import it, open a session, run it."""
    path = catalogue_model("magika")
    program = (
        "import sys, arenite.onnxruntime; sys.modules['onnxruntime'] = arenite.onnxruntime\n"
        "import numpy as np\n"
        "import onnxruntime as rt\n"
        "rt.disable_telemetry_events()\n"
        f"session = rt.InferenceSession({str(path)!r}, providers=['CPUExecutionProvider'])\n"
        "name = session.get_inputs()[0].name\n"
        "text = np.full((1, 2048), 256, np.int32)\n"
        "[scores] = session.run(['target_label'], {name: text})\n"
        "assert scores.shape == (1, 214) and abs(scores.sum() - 1) < 1e-4\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
