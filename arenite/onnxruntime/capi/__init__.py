"""Where programs that catch ONNX Runtime's exceptions import them from."""

from arenite.onnxruntime.capi import onnxruntime_pybind11_state

__all__ = ["onnxruntime_pybind11_state"]
