"""ONNX Runtime's side of `bench.nodes`: its own profile, of a session for each round."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import onnxruntime

from bench.models import MODELS, image
from bench.nodes_names import Owners
from bench.nodes_side import RUNS, Times, timed

_LAYOUT = frozenset({"ReorderInput", "ReorderOutput", "Transpose"})


def prepare(model: str, threads: int) -> Callable[[], list[Times]]:
    given = MODELS[model]()
    x = {given.graph.input[0].name: image(given)}
    data, owners = given.SerializeToString(), Owners(given.graph)
    plain = session_of(data, threads)

    def work() -> list[Times]:
        with tempfile.TemporaryDirectory() as folder:
            session = session_of(data, threads, folder)
            for _ in range(2 + RUNS):
                session.run(None, x)
            events = json.loads(Path(session.end_profiling()).read_text())
        nodes = [one for one in events if str(one["name"]).endswith("_kernel_time")]
        n = len(nodes) // (2 + RUNS)
        plain.run(None, x)
        return [
            _summed(nodes[k * n : (k + 1) * n], owners) | timed(lambda: plain.run(None, x))
            for k in range(2, 2 + RUNS)
        ]

    return work


def session_of(
    data: bytes, threads: int, profile: str | None = None
) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = f"{profile}/onnx"
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _summed(nodes: list[dict[str, object]], owners: Owners) -> Times:
    times: defaultdict[str, float] = defaultdict(float)
    for node in nodes:
        args, micros = node["args"], node["dur"]
        assert isinstance(args, dict)
        assert isinstance(micros, int)
        op = str(args["op_name"])
        name = str(node["name"]).removesuffix("_kernel_time").removesuffix("_nchwc")
        name = name.split("_token_")[0]
        key = "layout" if op in _LAYOUT else owners.key_of(name, is_conv="Conv" in op)
        times[key] += micros / 1e6
    return times
