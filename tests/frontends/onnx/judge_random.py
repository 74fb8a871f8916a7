"""Random models against ONNX Runtime: by hand, where it is installed.

    python -m tests.frontends.onnx.judge_random write FOLDER FIRST COUNT      here
    python tests/frontends/onnx/judge_random.py judge FOLDER                  where onnxruntime is
    python -m tests.frontends.onnx.judge_random compare FOLDER [--compile]    here

`write` makes models and inputs, `judge` runs them by ONNX Runtime alone (it needs nothing of this
project), `compare` says where our results differ, and which models the peer refuses.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np


def write(folder: Path, first: int, count: int) -> None:
    from tests.frontends.onnx.random_models import random_model

    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + count):
        made = random_model(seed)
        (folder / f"{seed}.onnx").write_bytes(made.model.SerializeToString())
        np.savez(folder / f"{seed}.in.npz", **made.inputs)  # type: ignore[arg-type]


def judge(folder: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # What is judged is what operators mean; fusions of the peer are approximations of it.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    refused = 0
    for path in sorted(folder.glob("*.onnx")):
        with np.load(path.with_suffix(".in.npz")) as inputs:
            given = dict(inputs)
        try:
            session = onnxruntime.InferenceSession(str(path), options)
            results = session.run(None, given)
        except Exception as error:
            refused += 1
            path.with_suffix(".refused").write_text(str(error))
            continue
        names = [one.name for one in session.get_outputs()]
        np.savez(path.with_suffix(".out.npz"), **dict(zip(names, results, strict=True)))
    print(f"{refused} models are refused")


def compare(folder: Path, *, compiled: bool) -> None:
    from tests.frontends.onnx.random_models import random_model
    from tests.frontends.onnx.random_runs import difference, outputs_of

    counts: Counter[str] = Counter()
    for path in sorted(folder.glob("*.onnx"), key=lambda one: int(one.stem)):
        judged = path.with_suffix(".out.npz")
        if not judged.exists():
            counts["refused by ONNX Runtime"] += 1
            continue
        made = random_model(int(path.stem))
        with np.load(judged) as loaded:
            wanted: dict[str, Any] = dict(loaded)
        try:
            found = outputs_of(made, compiled=compiled)
            wrong = difference(found, wanted, made.tolerances)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            wrong = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        counts["differs" if wrong else "same"] += 1
        if wrong:
            print(f"{path.stem}: {wrong[:400]}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    place = Path(sys.argv[2])
    if sys.argv[1] == "write":
        write(place, int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "judge":
        judge(place)
    else:
        compare(place, compiled="--compile" in sys.argv)
