"""Tensor: a lazy array with NumPy's names and semantics.

A tensor wraps a node of the IR. Operations build larger graphs and compute nothing; types and
shapes are checked at once, so an error is raised at the line that made it. Numbers are computed by
`realize`, and by whatever must see them: `numpy()`, `item()`, `bool(t)`, DLPack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from arenite.device import Buffer
from arenite.dtype import INT64, DType, Kind
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument, NotSupported, SizeMismatch, TypeMismatch
from arenite.ir import OPS, Expr, Graph, Node, buffer, size, topological
from arenite.ir.compose.basic import cast
from arenite.ir.element import convert, held_dtype
from arenite.tensor import realize as realization
from arenite.tensor.base import (
    ORIGINS,
    DTypeLike,
    array_of,
    described,
    need_cpu,
    node_of_array,
    record_origin,
)
from arenite.tensor.linear import LinearMethods
from arenite.tensor.losses import LossMethods
from arenite.tensor.promote import INTEGERS
from arenite.tensor.resampling import ResamplingMethods
from arenite.tensor.shown import html_of, text_of

#: Those that differ from the newest in names that it has besides.
_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


class Tensor(ResamplingMethods, LossMethods, LinearMethods):
    """A lazy array with NumPy's methods: operations build a graph, and numbers are computed when
    they are asked for. `Tensor(data)` copies anything NumPy takes; a Tensor or a number among it.
    """

    __slots__ = ()

    def __init__(self, data: Any, dtype: DTypeLike | None = None) -> None:
        if isinstance(data, Tensor):
            node = data.node
        elif isinstance(data, Node):
            raise InvalidArgument("a node becomes a tensor with Tensor.of_node")
        elif isinstance(data, Expr):
            node = size(data, INT64)
        else:
            node = node_of_array(array_of(data) if dtype is None else _typed(data, dtype_of(dtype)))
        self._node = node if dtype is None else cast(node, dtype_of(dtype))
        record_origin(self._node)

    @classmethod
    def of_node(cls, node: Node) -> Self:
        """The tensor that stands for a node."""
        tensor = cls.__new__(cls)
        tensor._node = node
        return tensor

    @property
    def is_realized(self) -> bool:
        """Whether its numbers are there already."""
        return OPS[self._node.op].storage == "constant"

    def realize(self) -> Self:
        """Compute the numbers, once; the tensor then stands for them."""
        realize_all(self)
        return self

    def numpy(self) -> NDArray[Any]:
        """The numbers, read-only; `np.array(t)` makes a copy to write to."""
        self.realize()
        node = self._node
        source = node.attr("data" if node.op == "constant" else "source")
        array: NDArray[Any] = source.array if node.op == "constant" else source.array()
        return array

    def item(self) -> bool | int | float | complex:
        """The only element, as a Python number."""
        if self.size != 1:
            raise SizeMismatch(f"{described(self._node)} has {self.size} elements, not one")
        element = self.numpy().reshape(-1)[0]
        if self.dtype.kind is Kind.FLOAT:
            return float(element)
        if self.dtype.kind in INTEGERS:
            return int(element)
        return bool(element) if self.dtype.kind is Kind.BOOL else complex(element)

    def tolist(self) -> Any:
        """The numbers as nested Python lists; of no axes, one number."""
        return self.numpy().tolist()

    @property
    def device(self) -> str:
        """Where the numbers are: "cpu"."""
        return "cpu"

    def to_device(self, device: str, /, *, stream: Any = None) -> Self:
        """The tensor on a device, which is "cpu"; there are no streams."""
        need_cpu(device)
        if stream is not None:
            raise NotSupported(f"to_device: 'cpu' has no streams, and {stream!r} is none of it")
        return self

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The module with the array API's functions."""
        import arenite

        if api_version not in (None, *_API_VERSIONS):
            raise InvalidArgument(
                f"version {api_version!r} of the array API is not one of {', '.join(_API_VERSIONS)}"
            )
        return arenite

    def copy(self) -> Self:
        """Itself: a tensor never changes."""
        return self

    def __array__(
        self, dtype: np.dtype[Any] | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{described(self._node)} cannot become {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        node = self.realize().node
        storage = node.attr("source").storage if node.op == "buffer" else None
        held = storage if isinstance(storage, Buffer) else Buffer.from_array(self.numpy())
        return held.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from arenite.tensor.numpy_protocol import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self, function: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        from arenite.tensor.numpy_protocol import call_function

        return call_function(function, args, kwargs)

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self._real())

    def __float__(self) -> float:
        return float(self._real())

    def __complex__(self) -> complex:
        return complex(self.item())

    def _real(self) -> bool | int | float:
        value = self.item()
        if isinstance(value, complex):
            raise TypeMismatch(f"{described(self._node)} is no real number")
        return value

    def __index__(self) -> int:
        if self.dtype.kind not in INTEGERS or self.ndim:
            raise TypeError(f"only an integer tensor of no axes is an index, not {self!r}")
        return int(self._real())

    def __format__(self, spec: str) -> str:
        """`f"{t.sum():.2f}"`: one element as a Python number; without a spec, the tensor's text."""
        if not spec:
            return str(self)
        if self.size != 1:
            raise TypeError(
                f"a tensor of one element is formatted with {spec!r}, not {described(self._node)}; "
                "choose elements, or format t.numpy()"
            )
        return format(self.item(), spec)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: a tensor never changes."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its numbers, which are computed if they are not there."""
        return _restored, (type(self), self.numpy(), self.dtype.name, self.name)

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)


def _typed(data: Any, dtype: DType) -> NDArray[Any]:
    """Data as an array; Python's numbers at once in the dtype that is wanted."""
    given = array_of(data)
    if isinstance(data, list | tuple | bool | int | float | complex) and dtype.has_numpy:
        return convert(given, held_dtype(given.dtype), dtype)
    return given


def _restored(kind: type[Tensor], array: NDArray[Any], dtype: str, name: str | None) -> Tensor:
    """The tensor that was pickled."""
    tensor = kind.of_node(node_of_array(array))
    if tensor.dtype != dtype_of(dtype):
        raise TypeMismatch(f"a pickled tensor is {dtype}, and its numbers are {tensor.dtype}")
    return tensor if name is None else tensor.named(name)


def settle(*tensors: Tensor) -> None:
    """Compute tensors whose sizes are found while running, so that these are numbers; not where
    they depend on arguments of a function that is being compiled."""
    below = topological([tensor.node for tensor in tensors])
    if not any(OPS[node.op].storage == "given" for node in below):
        realize_all(*tensors)


def realize_all(*tensors: Tensor) -> None:
    """Compute several tensors in one run; what they share is computed once."""
    pending = [tensor for tensor in tensors if not tensor.is_realized]
    if not pending:
        return
    for tensor in pending:
        names = [var.name for var in Graph.of([tensor.node]).vars]
        if names:
            raise NotSupported(
                f"{tensor!r} has sizes that are not bound: {', '.join(names)}; compile a function "
                "of it instead"
            )
    parts = [realization.part_of_array(tensor.node) for tensor in pending]
    nodes = [t.node for t, part in zip(pending, parts, strict=True) if part is None]
    computed = iter(realization.realize(nodes) if nodes else ())
    for tensor, part in zip(pending, parts, strict=True):
        array = next(computed) if part is None else part
        origins = ORIGINS.of(tensor._node)
        tensor._node = buffer(array)
        ORIGINS.add(tensor._node, *origins)
