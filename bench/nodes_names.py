"""Which convolution of a model a name belongs to: its own, or that of what follows it alone."""

from __future__ import annotations

import onnx

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_AFTER = frozenset(
    {"Add", "Mul", "Div", "Clip", "Relu", "HardSigmoid", "BatchNormalization", "Sigmoid"}
    | {"QuantizeLinear", "DequantizeLinear"}
)


def name_of(node: onnx.NodeProto) -> str:
    """What a convolution is called on all sides."""
    return str(node.name or node.output[0])


class Owners:
    """Names of nodes and of values, each with the convolution it follows. Where two meet, the one
    that comes later in the model has what follows."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.of: dict[str, str] = {}
        places: dict[str, int] = {}
        for place, node in enumerate(graph.node):
            found = [self.of[name] for name in node.input if name in self.of]
            if node.op_type in CONVOLUTIONS:
                owner = name_of(node)
                places[owner] = place
            elif node.op_type in _AFTER and found:
                owner = max(found, key=places.__getitem__)
            else:
                continue
            self.of[node.name] = owner
            for name in node.output:
                self.of[name] = owner

    def key_of(self, name: str, is_conv: bool) -> str:
        owner = self.of.get(name)
        if is_conv:
            return f"conv {owner or name}"
        return "rest" if owner is None else f"after {owner}"
