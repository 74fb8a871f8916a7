"""A stand-in for ONNX Runtime: programs move over by changing one import.

    import arenite.onnxruntime as ort

    session = ort.InferenceSession("model.onnx")
    [y] = session.run(None, {"x": x})

What a program may ask for and what means nothing here (arenas, execution orders) is taken and
ignored; what would change results or be missed is refused, and what is not known warns once.
"""

from __future__ import annotations

from arenite import __version__ as _arenite_version
from arenite.onnxruntime import capi as capi
from arenite.onnxruntime.environment import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from arenite.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from arenite.onnxruntime.session import InferenceSession, ModelMetadata, NodeArg
from arenite.onnxruntime.values import IOBinding, OrtDevice, OrtValue

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

#: Of the interface that this one follows, and whose it is.
__version__ = f"{get_version_string()}+arenite.{_arenite_version}"
