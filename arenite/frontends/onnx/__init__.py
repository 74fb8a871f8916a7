"""ONNX files: a model as a Graph, with its weights where they lie."""
