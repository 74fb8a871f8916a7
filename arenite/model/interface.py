"""What goes into a model and what comes out: names and types, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from arenite.dtype import DType
from arenite.errors import InvalidArgument, printable
from arenite.frontends.onnx.types import MapType, OptionalType, SequenceType, TensorType, ValueType
from arenite.frontends.stored_tensor import quoted
from arenite.model.sizes import SizeNames
from arenite.records import NamedTuple


class ValueInfo(NamedTuple):
    """One input or output. Sizes in `type` are numbers, names, or None where nothing is known."""

    name: str
    type: ValueType
    is_required: bool = True

    @property
    def tensor(self) -> TensorType | None:
        """The type of a tensor; None: it is a sequence or an optional."""
        return self.type if isinstance(self.type, TensorType) else None

    @property
    def dtype(self) -> DType | None:
        """Of a tensor's elements; None for strings, sequences and optionals."""
        return None if self.tensor is None or self.tensor.is_string else self.tensor.dtype

    @property
    def shape(self) -> tuple[int | str | None, ...] | None:
        """Of a tensor; None: of any rank, or no tensor."""
        return None if self.tensor is None else self.tensor.shape

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class Interface(Sequence[ValueInfo]):
    """Inputs or outputs, by position or by name."""

    def __init__(self, values: Sequence[ValueInfo]) -> None:
        self._values = tuple(values)
        self._by_name = {one.name: one for one in self._values}

    @property
    def names(self) -> list[str]:
        """In order."""
        return list(self._by_name)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._by_name:
                raise InvalidArgument(f"there is no {key!r}; there are {', '.join(self.names)}")
            return self._by_name[key]
        return self._values[key]

    def __iter__(self) -> Iterator[ValueInfo]:
        return iter(self._values)

    def rows(self) -> list[list[str]]:
        """For a table: name, type and shape of each."""
        rows = [["name", "type", "shape"]]
        for one in self:
            kind, shape = _columns(one.type)
            rows.append([printable(one.name), kind if one.is_required else f"{kind}, or none",
                         printable(shape)])  # fmt: skip
        return rows

    def __str__(self) -> str:
        from arenite.memory.tables import aligned

        return aligned(self.rows(), set())

    def __repr__(self) -> str:
        return f"<Interface {', '.join(map(str, self))}>"

    def _repr_html_(self) -> str:
        from arenite.memory.html import html_table

        return html_table(self.rows())


def _columns(kind: ValueType) -> tuple[str, str]:
    if isinstance(kind, TensorType):
        name = "string" if kind.is_string else kind.dtype.name
        if kind.shape is None:
            return name, "any"
        return name, f"[{', '.join('?' if one is None else str(one) for one in kind.shape)}]"
    inner, shape = _columns(kind.element)
    if isinstance(kind, MapType):
        return f"map from {kind.key} to {inner}", shape
    return f"{'sequence of' if isinstance(kind, SequenceType) else 'optional'} {inner}", shape


def with_names(kind: ValueType, path: str, names: SizeNames) -> ValueType:
    """The type of an input with every size of its tensor named; those of sequences are found in
    calls."""
    if isinstance(kind, OptionalType):
        return OptionalType(with_names(kind.element, path, names))
    if isinstance(kind, TensorType) and kind.shape is not None:
        shape = tuple(names.named(one, path, axis) for axis, one in enumerate(kind.shape))
        return kind._replace(shape=shape)
    return kind


def open_sizes(kind: ValueType) -> list[str]:
    """The names of sizes in the type of an input."""
    if isinstance(kind, OptionalType):
        return open_sizes(kind.element)
    if isinstance(kind, TensorType) and kind.shape is not None:
        return [one for one in kind.shape if isinstance(one, str)]
    return []


def element_of(kind: ValueType, where: str) -> ValueType:
    """The type within a sequence or an optional."""
    if not isinstance(kind, SequenceType | OptionalType):
        raise InvalidArgument(f"{where} is {quoted(str(kind))}, which has no parts")
    return kind.element
