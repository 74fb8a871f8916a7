"""ONNX models from file to ready: how long, and how much memory, ours and ONNX Runtime's.

    python -m bench.whole_models_load FOLDER [NAME...]

The models of `bench.whole_models`. Every start is a process of its own, and sides alternate:
`warm` is from the path to a program that can be called, with a full cache (9 rounds); `first` is
that and the first call; `cold` is ours with an empty cache. Memory is the peak of the process's
resident set from after the imports to after three calls, less what it was then; anonymous and of
files apart. The last row is the import of each package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean, median

from bench.whole_models_cases import CASES

ROUNDS = 9

START = """
import json, sys, time
import numpy as np
{imports}
arrays = dict(np.load(sys.argv[2]))
def resident():
    with open("/proc/self/status") as status:
        found = dict(line.split(":", 1) for line in status)
    return [int(found[one].split()[0]) for one in ("VmHWM", "RssAnon", "RssFile", "VmRSS")]
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")
before = resident()
began = time.perf_counter()
{load}
ready = time.perf_counter()
{call}
first = time.perf_counter()
{call}
{call}
after = resident()
print(json.dumps({{
    "ready": ready - began, "first": first - began, "peak": (after[0] - before[3]) / 1024,
    "anonymous": (after[1] - before[1]) / 1024, "files": (after[2] - before[2]) / 1024,
}}))
"""

OURS = START.format(
    imports="import arenite",
    load="program = arenite.load(sys.argv[1]).compile(threads=2)",
    call="program(arrays)",
)
THEIRS = START.format(
    imports="import onnxruntime",
    load=(
        "options = onnxruntime.SessionOptions()\n"
        "options.intra_op_num_threads = 2\n"
        "session = onnxruntime.InferenceSession(\n"
        "    sys.argv[1], options, providers=['CPUExecutionProvider'])"
    ),
    call="session.run(None, arrays)",
)


#: Compiled Python files are kept, as an installed package has them: both sides start with them.
ENVIRONMENT = {name: one for name, one in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def start(code: str, *arguments: str, **environment: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def cold(path: str, arrays: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return start(OURS, path, arrays, ARENITE_CACHE_DIR=folder)["first"]


def imported(package: str) -> float:
    code = f"import time\na = time.perf_counter()\nimport {package}\nprint(time.perf_counter() - a)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main(folder: Path, names: list[str]) -> None:
    head = ("MB", "ours ms", "ORT ms", "ratio", "first", "ratio", "cold s", "MiB", "ORT", "ratio")
    print(
        f"{'model':16}" + "".join(f"{one:>9}" for one in head) + "   anonymous + files, ours | ORT"
    )
    less = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, case in CASES.items():
            path = folder / case.file
            if (names and name not in names) or not path.exists():
                continue
            arrays = f"{temporary}/{name}.npz"
            subprocess.run([sys.executable, "-c", FEED, name, str(path), arrays], check=True)
            empty = median(cold(str(path), arrays) for _ in range(3))
            start(OURS, str(path), arrays)
            mine, theirs = [], []
            for _ in range(ROUNDS):
                mine.append(start(OURS, str(path), arrays))
                theirs.append(start(THEIRS, str(path), arrays))
            ours, peer = (
                {key: median(one[key] for one in side) for key in side[0]}
                for side in (mine, theirs)
            )
            less.append(peer["peak"] / ours["peak"])
            print(
                f"{name:16}{path.stat().st_size / 1e6:9.1f}"
                f"{ours['ready'] * 1e3:9.1f}{peer['ready'] * 1e3:9.1f}"
                f"{peer['ready'] / ours['ready']:9.2f}{ours['first'] * 1e3:9.1f}"
                f"{peer['first'] / ours['first']:9.2f}{empty:9.2f}"
                f"{ours['peak']:9.0f}{peer['peak']:9.0f}{less[-1]:9.2f}"
                f"   {ours['anonymous']:.0f} + {ours['files']:.0f} | "
                f"{peer['anonymous']:.0f} + {peer['files']:.0f}",
                flush=True,
            )
    print(f"memory: geometric mean {geometric_mean(less):.2f}")
    ours_import, their_import = (
        median(imported(package) for _ in range(ROUNDS)) for package in ("arenite", "onnxruntime")
    )
    print(f"import: ours {ours_import * 1e3:.0f} ms, onnxruntime {their_import * 1e3:.0f} ms")


FEED = (
    "import sys, numpy; from bench.whole_models_cases import feed; "
    "numpy.savez(sys.argv[3], **feed(sys.argv[1], sys.argv[2]))"
)

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
