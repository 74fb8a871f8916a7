"""Tensors of an ONNX file: small ones as numbers, large ones where they lie.

Data may stand in the message itself, in the same file (`wire.py` found its place), or in another
file of the model's folder. Every size is checked against the file before anything is allocated.
"""

from __future__ import annotations

import os
import re
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from arenite.device import Buffer
from arenite.dtype import DType
from arenite.errors import InvalidFile
from arenite.frontends.folder_files import map_inside
from arenite.frontends.onnx.strings import Strings
from arenite.frontends.onnx.types import STRING, dtype_of
from arenite.frontends.onnx.values import Value
from arenite.frontends.onnx.wire import Place
from arenite.frontends.stored import StoredTensor, quoted
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
    """The tensors of one model file; what lies in files is mapped once each."""

    def __init__(
        self, path: str, file: Buffer, places: Sequence[Place], key: str, folder: str | None
    ) -> None:
        self.path = path
        self.strings = Strings()
        self._file = file
        self._places = places
        self._key = key
        self._folder = folder  # None: there are no other files
        self._others: dict[str, Buffer] = {}
        #: A place is one tensor however often it is asked for.
        self._nodes: dict[tuple[int, int, str, tuple[int, ...]], Node] = {}

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
        return self._stored(where, proto, dtype, shape, self._file, place.offset, place.nbytes)

    def _external(
        self,
        where: str,
        proto: TensorProto,
        dtype: DType,
        shape: tuple[int, ...],
        entries: dict[str, str],
    ) -> Value:
        location = entries.get("location", "")
        file = self._other(where, location)
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
        return self._stored(where, proto, dtype, shape, file, offset, nbytes)

    def _other(self, where: str, location: str) -> Buffer:
        known = self._others.get(location)
        if known is not None:
            return known
        if self._folder is None:
            raise InvalidFile(
                f"{where} has its data in {quoted(location)}, and the model came as bytes, without "
                "a folder; load it from its file"
            )
        parts = re.split(r"[/\\]", location)
        if (
            not location
            or not location.isprintable()
            or os.path.isabs(location)
            or "\\" in location
            or ":" in location
            or ".." in parts
        ):
            raise InvalidFile(
                f"{where} has its data in {quoted(location)}; only files in the model's own folder "
                "are read, named from there"
            )
        mapped = map_inside(self._folder, location)
        path = os.path.join(self._folder, location)
        if os.stat(path).st_nlink > 1:
            raise InvalidFile(
                f"{where} has its data in {quoted(location)}, which has another name elsewhere "
                "(a hard link) and may be anyone's file; put a copy in its place if you trust it"
            )
        self._others[location] = file = mapped.file()
        return file

    def _stored(
        self,
        where: str,
        proto: TensorProto,
        dtype: DType,
        shape: tuple[int, ...],
        file: Buffer,
        offset: int,
        nbytes: int,
    ) -> Value:
        wanted = dtype.nbytes(shape)
        if nbytes != wanted:
            raise InvalidFile(
                f"{where} of {dtype}{list(shape)} takes {wanted} bytes, and has {nbytes}"
            )
        key = (id(file), offset, dtype.name, shape)
        node = self._nodes.get(key)
        if node is None:
            stored = StoredTensor(proto.name, dtype, shape, offset, nbytes, file)
            node = self._nodes[key] = make("buffer", source=stored.source)
        return Value.of(node, is_constant=True)

    # Data in the message.

    def _inline(
        self, where: str, proto: TensorProto, dtype: DType, shape: tuple[int, ...], count: int
    ) -> Value:
        if proto.data_type == STRING:
            if len(proto.string_data) != count:
                raise InvalidFile(f"{where}: {len(proto.string_data)} strings for {list(shape)}")
            texts = np.asarray([*proto.string_data, None], object)[:-1].reshape(shape)
            return Value.of_known(self.strings.keep(texts), dtype, is_string=True)
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
