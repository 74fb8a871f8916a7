"""Call: one node of a model, as its operator's handler sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from arenite.dtype import Array, DType
from arenite.errors import AreniteError, InvalidFile, NotSupported
from arenite.frontends.onnx.structure import is_data, sizes_in_run
from arenite.frontends.onnx.values import AnyValue, Items, Maybe, Value
from arenite.ir import Dim, Expr, Node, constant

if TYPE_CHECKING:
    from onnx import GraphProto

    from arenite.frontends.onnx.translate import Translator


class Unknown(Exception):
    """Structure was asked for that only a run knows."""

    def __init__(self, call: Call, index: int, because: AreniteError | None = None) -> None:
        super().__init__()
        self.call = call
        self.index = index
        #: What is wrong as long as it is not known.
        self.because = because

    @property
    def is_found_in_run(self) -> bool:
        """Whether it will not be known before."""
        return self.because is None and self.call.is_found_in_run(self.index)


@dataclass(slots=True, eq=False)
class Call:
    """Inputs, attributes and version of a node; what is wrong is said with its name."""

    translator: Translator
    op: str
    domain: str
    version: int
    name: str
    attrs: Mapping[str, Any]
    inputs: Sequence[AnyValue | None]
    outputs: Sequence[str]  # names; an output that nobody wants is ""

    def with_inputs(self, inputs: Sequence[AnyValue | None]) -> Call:
        """The same node with other inputs."""
        return replace(self, inputs=inputs)

    # Inputs. Left out at the end or named "" they are None.

    def __len__(self) -> int:
        return len(self.inputs)

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def any(self, index: int) -> AnyValue:
        """An input of any kind."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            self.fail(f"input {index} is missing")
        return value

    def value(self, index: int) -> Value:
        """An input that is a tensor."""
        value = self.any(index)
        if isinstance(value, Maybe) and isinstance(value.value, Value):
            value = value.value
        if not isinstance(value, Value):
            self.fail(f"input {index} is a sequence or an optional, not a tensor")
        return value

    def items(self, index: int) -> Items:
        """An input that is a sequence."""
        value = self.any(index)
        if isinstance(value, Maybe) and isinstance(value.value, Items):
            value = value.value
        if not isinstance(value, Items):
            self.fail(f"input {index} is no sequence")
        return value

    def node(self, index: int) -> Node:
        """An input as a node of the graph."""
        return self.value(index).node

    def optional(self, index: int) -> Node | None:
        """An input as a node, or None."""
        return self.node(index) if self.has(index) else None

    def numbers(self, index: int) -> Node:
        """An input as a node whose numbers, where they are known and few, are part of the graph:
        what is made of it may depend on them. Those that stay in the file are its alone."""
        value = self.value(index)
        return value.node if value.known is None else constant(value.known, value.dtype)

    @property
    def nodes(self) -> list[Node]:
        """All inputs as nodes."""
        return [self.node(index) for index in range(len(self.inputs))]

    # What is structure.

    def known(self, index: int) -> Array:
        """The numbers of an input that decides structure."""
        known = self.value(index).known
        if known is None:
            raise Unknown(self, index)
        return known

    def integers(self, index: int) -> list[int]:
        """An input of integers that decide structure, flat."""
        return [int(one) for one in self.known(index).reshape(-1)]

    def sizes(self, index: int, signed: bool = False) -> list[Dim]:
        """An input of integers that may be sizes which are no numbers yet, flat."""
        sizes = self.value(index).sizes
        if sizes is None:
            if not self.is_found_in_run(index):
                raise Unknown(self, index)
            return sizes_in_run(self, index, signed)
        return [one if isinstance(one, Expr) else int(one) for one in sizes.reshape(-1)]

    # And where it is one number.

    def number(self, index: int) -> Array:
        """An input that is one number and decides structure, as an array of no axes."""
        self._check_single(index)
        return self.known(index).reshape(())

    def integer(self, index: int) -> int:
        """An input that is one integer and decides structure."""
        return int(self.number(index))

    def size(self, index: int) -> Dim:
        """An input that is one integer, which may be a size that is no number yet."""
        self._check_single(index)
        return self.sizes(index)[0]

    def _check_single(self, index: int) -> None:
        shape = self.value(index).shape
        if any(one != 1 for one in shape):
            self.fail(f"input {index} is to be one number, and has the shape {shape}")

    def is_found_in_run(self, index: int) -> bool:
        """Whether an input is known neither now nor once those of the model are."""
        if not self.has(index) or self.value(index).sizes is not None:
            return False
        return is_data(self.node(index))

    # Attributes.

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute: a number, text, list, array, graph; `default` where it is not given."""
        given = self.attrs.get(name, default)
        if default is not None and not _is_alike(given, default):
            self.fail(f"attribute {name!r} is {given!r}, which is not of the kind of {default!r}")
        return given

    def need_attr(self, name: str) -> Any:
        """An attribute that must be there."""
        if name not in self.attrs:
            self.fail(f"attribute {name!r} is missing")
        return self.attrs[name]

    def dtype_attr(self, name: str, default: DType | None = None) -> DType:
        """An attribute that is a type of elements."""
        from arenite.frontends.onnx.types import dtype_of

        given = self.attrs.get(name)
        if given is None:
            if default is None:
                self.fail(f"attribute {name!r} is missing")
            return default
        return dtype_of(given, f"attribute {name!r} of {self.where}")

    def subgraph(self, name: str) -> GraphProto:
        """An attribute that is a graph."""
        graph: GraphProto = self.need_attr(name)
        return graph

    @property
    def has_graphs(self) -> bool:
        """Whether an attribute is a graph, which may use values that are no inputs of the node."""
        return any(type(one).__name__ == "GraphProto" for one in self.attrs.values())

    def axis(self, given: int, ndim: int, what: str = "axis") -> int:
        """An axis, counted from the front."""
        if not isinstance(given, int):
            self.fail(f"{what} {given!r} is no number of an axis")
        if not -ndim <= given < max(ndim, 1):
            self.fail(f"{what} {given} of a tensor with {ndim} axes")
        return given % ndim if ndim else 0

    def axis_of(self, x: Node, default: int | None = None) -> int:
        """The attribute `axis`, counted from the front of a tensor that has axes."""
        if x.ndim == 0:
            self.fail("it takes a tensor that has axes")
        return self.axis(self.attr("axis", default), x.ndim)

    def some_axis(self, given: int, ndim: int) -> int:
        """An axis of a tensor that has one."""
        if ndim == 0:
            self.fail(f"axis {given} of a tensor that has no axis")
        return self.axis(given, ndim)

    def axes(self, given: Sequence[int], ndim: int) -> list[int]:
        """Axes, counted from the front, each once."""
        axes = [self.axis(one, ndim) for one in given]
        if len(set(axes)) != len(axes):
            self.fail(f"axes {list(given)} name one axis twice")
        return axes

    # Output.

    @property
    def n_outputs(self) -> int:
        """How many outputs the node names."""
        return len(self.outputs)

    def wants(self, index: int) -> bool:
        """Whether an output is named."""
        return index < len(self.outputs) and self.outputs[index] != ""

    # Errors.

    @property
    def where(self) -> str:
        """The node, for messages."""
        return self.translator.where(self.op, self.name)

    def fail(self, reason: str) -> NoReturn:
        """The file is wrong here."""
        raise InvalidFile(f"{self.where}: {reason}")

    def refuse(self, reason: str) -> NoReturn:
        """What is asked for is right and not to be had here."""
        raise NotSupported(f"{self.where}: {reason}")


def _is_alike(given: object, default: object) -> bool:
    """Whether an attribute is of the kind that its default is of."""
    if isinstance(default, int | float):
        return isinstance(given, int | float)
    return all(isinstance(given, kind) for kind in (str, list) if isinstance(default, kind))
