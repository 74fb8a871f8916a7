"""OpenVINO's side of `bench.nodes`: its own counters; nodes know what of the model they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import onnx
import openvino

from bench.models import MODELS, image
from bench.nodes_names import CONVOLUTIONS, Owners, name_of
from bench.nodes_side import RUNS, Times, timed

_KINDS = frozenset({"Convolution", "GroupConvolution", "ConvolutionBackpropData"})


def prepare(model: str, threads: int) -> Callable[[], list[Times]]:
    given = MODELS[model]()
    x = [image(given)]
    data, owners = given.SerializeToString(), Owners(given.graph)
    plain, profiled = (_compiled(data, threads, counts) for counts in (False, True))
    run, request = plain.create_infer_request(), profiled.create_infer_request()
    request.infer(x)
    known = _known_names(given.graph, owners, profiled, request)

    def work() -> list[Times]:
        found: list[Times] = []
        for _ in range(2):
            run.infer(x)
            request.infer(x)
        for _ in range(RUNS):
            request.infer(x)
            times: defaultdict[str, float] = defaultdict(float)
            for node in request.get_profiling_info():
                name = known.get(node.node_name, node.node_name)
                is_conv = node.node_type in _KINDS
                key = "layout" if node.node_type == "Reorder" else owners.key_of(name, is_conv)
                times[key] += node.real_time.total_seconds()
            found.append(times | timed(lambda: run.infer(x)))
        return found

    return work


def _known_names(
    graph: onnx.GraphProto,
    owners: Owners,
    compiled: openvino.CompiledModel,
    request: openvino.InferRequest,
) -> dict[str, str]:
    """A name of the model for each node. Convolutions whose scales were multiplied into them have
    lost theirs, but not their order."""
    known: dict[str, str] = {}
    for node in compiled.get_runtime_model().get_ops():
        names = str(node.get_rt_info()["originalLayersNames"].value).split(",")
        parts = [name.split("/")[0] for name in names]
        own = next((name for name in parts if name in owners.of), parts[0])
        known[node.get_friendly_name()] = own
    made = [
        node.node_name
        for node in request.get_profiling_info()
        if node.node_type in _KINDS and node.real_time.total_seconds() > 0
    ]
    found = {owners.of.get(known[name]) for name in made}
    nameless = [name for name in made if known[name] not in owners.of]
    convolutions = (name_of(node) for node in graph.node if node.op_type in CONVOLUTIONS)
    left = [name for name in convolutions if name not in found]
    return known | dict(zip(nameless, left, strict=True))


def _compiled(data: bytes, threads: int, counts: bool) -> openvino.CompiledModel:
    core = openvino.Core()
    config = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERF_COUNT": counts,
    }
    return core.compile_model(core.read_model(data), "CPU", config)
