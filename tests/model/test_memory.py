"""Memory that a process takes for an ONNX model, measured: the plan and a small rest.

It is measured in a child that finds everything compiled, from after its imports on. What the plan
counts as read in place is memory of the file, all else is the process's own; each is held to its
part of the plan.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from tests.model.models import INT64, made, node, tensor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads and resets /proc/self")

MIB = 2**20
#: Above the plan and what imports take.
REST_NBYTES = 30 * MIB
#: What a thousand runs may leave behind.
GROWTH_NBYTES = 2 * MIB

MEASURE = """
import importlib, json, sys
import numpy as np
path, (modules, batches, memory) = sys.argv[1], map(json.loads, sys.argv[2:])
for module in modules:
    importlib.import_module(module)
import arenite

def nbytes(*names):
    with open("/proc/self/status") as status:
        found = dict(line.split(":", 1) for line in status)
    return [1024 * int(found[name].split()[0]) for name in names]

def feed(n):
    return np.zeros((n, 4), np.int64)

inputs = {n: feed(n) for n in batches}
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")  # the peak counts from here
before = nbytes("VmRSS", "RssAnon", "RssFile")
found = {}
with arenite.load(path).compile(threads=1, memory=memory) as program:
    program(inputs[max(batches)])
    plan = program.plan
    mapped = plan.regions["mapped"].nbytes if "mapped" in plan.regions else 0
    found["planned"], found["mapped"] = plan.total_nbytes, mapped
    rng = np.random.default_rng(0)
    for k in range(1000 if len(batches) > 1 else 0):
        if k == 100:
            [found["early"]] = nbytes("RssAnon")
        program(inputs[batches[int(rng.integers(len(batches)))]])
    peak, anonymous, file = nbytes("VmHWM", "RssAnon", "RssFile")
    found["late"] = anonymous
    found["peak"] = peak - before[0]
    found["anonymous"], found["file"] = anonymous - before[1], file - before[2]
found["modules"] = [name for name in sys.modules if name.split(".")[0] == "arenite"]
print(json.dumps(found))
"""


def network() -> ModelProto:
    """Rows of a table, read in place, through layers whose weights are packed; batches of any
    size."""
    rng = np.random.default_rng(0)
    names = {f"w{k}": rng.standard_normal((1024, 1024), np.float32) / 32 for k in range(4)}
    table = rng.standard_normal((4096, 1024), np.float32)
    layers = [node("Gather", "table x", "t", axis=0), node("ReduceSum", "t axes", "h0", keepdims=0)]
    for k in range(4):
        layers += [node("MatMul", f"h{k} w{k}", f"m{k}"), node("Relu", f"m{k}", f"h{k + 1}")]
    layers.append(node("Identity", "h4", "y"))
    return made(
        layers,
        [tensor("x", ["batch", 4], INT64)],
        [tensor("y", ["batch", 1024])],
        {"table": table, "axes": np.array([1]), **names},
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory") / "m.onnx"
    path.write_bytes(network().SerializeToString())
    return path


def measured(path: Path, modules: list[str], batches: list[int], memory: str | None = None) -> Any:
    given = [str(path), *map(json.dumps, (modules, batches, memory))]
    done = subprocess.run([sys.executable, "-c", MEASURE, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def modules(path: Path) -> list[str]:
    """What a start imports that finds everything compiled."""
    measured(path, [], [1])
    found: list[str] = measured(path, [], [1])["modules"]
    return found


def held(found: dict[str, int]) -> None:
    """Both kinds of memory are within what was planned, and what was planned is in use."""
    own = found["planned"] - found["mapped"]
    assert found["peak"] <= found["planned"] + REST_NBYTES
    assert found["anonymous"] <= own + REST_NBYTES
    assert found["file"] <= found["mapped"] + REST_NBYTES
    assert found["anonymous"] >= own - MIB


def test_a_process_takes_the_plan_and_little_more(path: Path, modules: list[str]) -> None:
    found = measured(path, modules, [1024])
    held(found)
    assert found["mapped"] >= 16 * MIB, "the table is read in place"
    assert found["planned"] - found["mapped"] >= 16 * MIB, "weights are packed"


def test_a_budget_holds_for_the_process(path: Path, modules: list[str]) -> None:
    needed = -(-measured(path, modules, [1024])["planned"] // MIB)
    for _ in range(2):  # the second finds everything compiled
        found = measured(path, modules, [1024], f"{needed}MiB")
    assert found["planned"] <= needed * MIB
    held(found)


def test_memory_does_not_grow_over_runs_of_changing_shapes(path: Path, modules: list[str]) -> None:
    found = measured(path, modules, [64, *range(1, 20), 33, 47])
    held(found)
    assert found["late"] - found["early"] <= GROWTH_NBYTES


GROW = """
import sys
import numpy as np
import arenite

def anonymous():
    with open("/proc/self/status") as status:
        found = dict(line.split(":", 1) for line in status)
    return 1024 * int(found["RssAnon"].split()[0])

inputs = [np.ones((n, 512), np.float32) for n in (64, 6_000, 12_000, 25_000)]
with arenite.load(sys.argv[1]).compile(threads=1) as program:
    program(inputs[0])
    before = anonymous() - program.plan.total_nbytes
    for x in inputs[1:]:
        program(x)
    print(anonymous() - before - program.plan.total_nbytes, program.plan.total_nbytes)
"""


def test_arenas_that_were_outgrown_go_back_to_the_system(tmp_path: Path) -> None:
    """Sizes that nobody bounded come one larger than the other: the process has the last plan."""
    w = np.random.default_rng(1).standard_normal((512, 512), np.float32) / 32
    nodes = [
        node("MatMul", "x w", "h"),
        node("Softmax", "h", "p"),
        node("MatMul", "p w", "y"),
    ]
    path = tmp_path / "grow.onnx"
    inputs, outputs = [tensor("x", ["batch", 512])], [tensor("y", ["batch", 512])]
    path.write_bytes(made(nodes, inputs, outputs, {"w": w}).SerializeToString())
    line = [sys.executable, "-c", GROW, str(path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    more, planned = map(int, done.stdout.split())
    assert planned >= 90 * MIB, "the arena grew"
    assert more <= 8 * MIB
