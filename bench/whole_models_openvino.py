"""OpenVINO's side of `bench.whole_models`."""

from __future__ import annotations

from collections.abc import Callable

import openvino

from bench.whole_models_cases import feed


def prepare(case: str, threads: int) -> Callable[[], object]:
    name, path = case.split(" ", 1)
    core = openvino.Core()
    core.set_property(
        "CPU",
        {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"},
    )
    arrays = feed(name, path)
    model = core.read_model(path)
    shapes = {one: list(arrays[one.any_name].shape) for one in model.inputs}
    model.reshape(shapes)
    request = core.compile_model(model, "CPU").create_infer_request()
    return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)
