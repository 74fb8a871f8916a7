"""Operators of ai.onnx.ml: trees, encoders."""
