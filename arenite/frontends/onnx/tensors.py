"""Tensors of an ONNX file: small ones as numbers, large ones where they lie.

Data may stand in the message itself, in the same file (`wire.py` found its place), or in another
file of the model's folder. Every size is checked against the file before anything is allocated.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from arenite.dtype import DType
from arenite.errors import InvalidFile
from arenite.frontends.onnx.strings import Strings
from arenite.frontends.onnx.tensor_files import TensorFiles, TensorPlace, refused
from arenite.frontends.onnx.types import STRING, dtype_of
from arenite.frontends.onnx.values import Value
from arenite.frontends.onnx.wire import MIN_NBYTES, Place
from arenite.frontends.stored_tensor import quoted
from arenite.ir import Node, make

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import TensorProto

MAX_AXES = 64
MAX_ELEMENTS = 1 << 60
#: Elements that may be written one by one in a message.
_COUNTED = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
_EXTERNAL = 1  # TensorProto.DataLocation
_DIGITS = re.compile(r"[0-9]{1,18}")


class Tensors:
    """The tensors of one model file."""

    def __init__(
        self, path: str, files: TensorFiles, places: Sequence[Place], key: str, strings: Strings
    ) -> None:
        self.path = path
        self._strings = strings
        self._files = files
        self._places = places
        self._key = key
        #: A place is one tensor however often it is asked for.
        self._nodes: dict[TensorPlace, Node] = {}

    def value(self, proto: TensorProto) -> Value:
        """A tensor as a value of the model."""
        where = f"{self.path}: tensor {quoted(proto.name)}"
        dtype = dtype_of(proto.data_type, where)
        shape = tuple(proto.dims)
        count = _count(where, shape)
        if proto.HasField("segment"):
            raise InvalidFile(f"{where} is in segments, which no version of ONNX reads")
        entries = {one.key: one.value for one in proto.external_data}
        if not all(isinstance(one, str) for one in (proto.name, *entries, *entries.values())):
            raise InvalidFile(f"{where} has a name or a place that is no text")
        if self._key in entries:
            return self._placed(where, proto, dtype, shape, entries[self._key])
        if proto.data_location == _EXTERNAL:
            return self._external(where, proto, dtype, shape, entries)
        return self._inline(where, proto, dtype, shape, count)

    # Data in files.

    def _placed(
        self, where: str, proto: TensorProto, dtype: DType, shape: tuple[int, ...], entry: str
    ) -> Value:
        place = self._places[int(entry)]
        is_alone = len(proto.external_data) == 1 and not proto.raw_data
        if not is_alone or any(getattr(proto, name) for name in _COUNTED):
            raise InvalidFile(f"{where} has data in several places")
        wanted = {4: ("float32", "complex64"), 10: ("float64", "complex128")}.get(place.field)
        if wanted is not None and dtype.name not in wanted:
            raise InvalidFile(f"{where} of {dtype} has its data as {wanted[0]}")
        return self._stored(where, dtype, shape, "", place.offset, place.nbytes)

    def _external(
        self,
        where: str,
        proto: TensorProto,
        dtype: DType,
        shape: tuple[int, ...],
        entries: dict[str, str],
    ) -> Value:
        location = entries.get("location", "")
        if not location:
            raise refused(where, location)
        file = self._files.file(location, where)
        offset = _decimal(where, "offset", entries.get("offset", "0"))
        left = max(0, file.nbytes - offset)
        nbytes = _decimal(where, "length", entries.get("length", str(dtype.nbytes(shape))))
        if nbytes > left:
            raise InvalidFile(
                f"{where}: {nbytes} bytes from byte {offset} on are not in {quoted(location)}, "
                f"which has {file.nbytes}"
            )
        if proto.data_type == STRING:
            raise InvalidFile(f"{where} is of strings, which can't be in another file")
        value = self._stored(where, dtype, shape, location, offset, nbytes)
        if nbytes >= MIN_NBYTES:
            return value
        # As small as this they are numbers, wherever they stand.
        return Value.of_known(value.node.attr("source").array().copy(), dtype)

    def _stored(
        self,
        where: str,
        dtype: DType,
        shape: tuple[int, ...],
        location: str,
        offset: int,
        nbytes: int,
    ) -> Value:
        wanted = dtype.nbytes(shape)
        if nbytes != wanted:
            raise InvalidFile(
                f"{where} of {dtype}{list(shape)} takes {wanted} bytes, and has {nbytes}"
            )
        place = TensorPlace(location, offset, dtype.name, shape)
        node = self._nodes.get(place)
        if node is None:
            node = self._nodes[place] = make("buffer", source=self._files.source(place))
        return Value.of(node, is_constant=True)

    # Data in the message.

    def _inline(
        self, where: str, proto: TensorProto, dtype: DType, shape: tuple[int, ...], count: int
    ) -> Value:
        if proto.data_type == STRING:
            if len(proto.string_data) != count:
                raise InvalidFile(f"{where}: {len(proto.string_data)} strings for {list(shape)}")
            texts = np.asarray([*proto.string_data, None], object)[:-1].reshape(shape)
            return Value.of_known(self._strings.keep(texts), dtype, is_string=True)
        self._check_inline(where, proto, dtype, shape, count)
        from onnx import numpy_helper

        try:
            array = np.asarray(numpy_helper.to_array(proto))
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidFile(f"{where} can't be read: {error}") from error
        return Value.of_known(array, dtype)

    def _check_inline(
        self, where: str, proto: TensorProto, dtype: DType, shape: tuple[int, ...], count: int
    ) -> None:
        if proto.HasField("raw_data"):
            wanted, given = dtype.nbytes(shape), len(proto.raw_data)
            unit = "bytes"
        else:
            given = max(len(getattr(proto, name)) for name in _COUNTED)
            per_byte = 8 // dtype.bits if dtype.bits < 8 else 1
            is_complex = dtype.name.startswith("complex")
            wanted = 2 * count if is_complex else -(-count // per_byte)
            unit = "numbers"
        if given != wanted:
            raise InvalidFile(
                f"{where} of {dtype}{list(shape)} takes {wanted} {unit}, and has {given}"
            )


def _count(where: str, shape: tuple[int, ...]) -> int:
    if len(shape) > MAX_AXES or any(size < 0 for size in shape):
        raise InvalidFile(f"{where} has the shape {list(shape[:8])}, which is none")
    count = prod(shape)
    if count > MAX_ELEMENTS:
        raise InvalidFile(f"{where} would have {count} elements")
    return count


def _decimal(where: str, name: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise InvalidFile(f"{where}: its {name} in another file is {quoted(text)}, no number")
    return int(text)
