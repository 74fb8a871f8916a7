"""Description: what is told of a model without translating it.

Its inputs and outputs with their types, and what its maker wrote: all that whoever calls a model
needs to know of its file, small enough to be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from arenite.frontends.onnx.types import ValueType, type_from_json, type_to_json
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from onnx import ModelProto


class Port(NamedTuple):
    """An input or an output; one that has a value in the file is not required."""

    name: str
    type: ValueType
    is_required: bool = True


class Description(NamedTuple):
    """Sizes in the types are named as the file names them."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    n_nodes: int
    producer_name: str
    producer_version: str
    domain: str
    graph_name: str
    version: int | None  # None: the file does not say
    text: str
    graph_text: str
    operator_sets: Mapping[str, int]  # versions by domain
    more: Mapping[str, str]  # whatever else its maker wrote

    @classmethod
    def of(
        cls, model: ModelProto, inputs: tuple[Port, ...], outputs: tuple[Port, ...]
    ) -> Description:
        """That of a model whose inputs and outputs are these."""
        from arenite.frontends.onnx.checks import versions_of

        graph = model.graph
        return cls(
            inputs=inputs,
            outputs=outputs,
            n_nodes=len(graph.node),
            producer_name=_text(model.producer_name),
            producer_version=_text(model.producer_version),
            domain=_text(model.domain),
            graph_name=_text(graph.name),
            version=model.model_version if model.HasField("model_version") else None,
            text=_text(model.doc_string),
            graph_text=_text(graph.doc_string),
            operator_sets=versions_of(model.opset_import),
            more={_text(one.key): _text(one.value) for one in model.metadata_props},
        )

    @property
    def has_strings(self) -> bool:
        """Whether strings come or go; a model may also have them inside, which is no matter."""
        return any(_is_of_strings(one.type) for one in (*self.inputs, *self.outputs))

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        ports = {
            side: [
                [one.name, type_to_json(one.type), one.is_required] for one in getattr(self, side)
            ]
            for side in ("inputs", "outputs")
        }
        return self._asdict() | ports

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Description:
        """ValueError, TypeError or LookupError where it is none."""
        ports = {
            side: tuple(
                Port(str(name), type_from_json(kind), bool(is_required))
                for name, kind, is_required in data[side]
            )
            for side in ("inputs", "outputs")
        }
        return cls(**{**data, **ports})


def _is_of_strings(kind: Any) -> bool:
    while hasattr(kind, "element"):
        kind = kind.element
    return bool(kind.is_string)


def _text(given: str | bytes) -> str:
    """What a file says is text; what is not comes as bytes from protobuf."""
    return given if isinstance(given, str) else given.decode("utf-8", "replace")
