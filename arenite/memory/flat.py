"""Plain data and arrays as one run of bytes, read back in place.

8 bytes: how many follow | JSON: the data, and name, type and length of each array |
zeros up to a multiple of 64 | the first array | zeros up to a multiple of 64 | the second ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arenite import saved_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 64
_LENGTH_NBYTES = 8
#: What elements may be.
_TYPES = {text: np.dtype(text) for text in ("|b1", "|u1", "<u2", "<u4", "<i4", "<i8", "<u8")}

Arrays: TypeAlias = "dict[str, NDArray[Any]]"


def flattened(data: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of JSON data and of arrays of one dimension."""
    import json

    kinds = [[name, array.dtype.str, len(array)] for name, array in arrays.items()]
    about = json.dumps([data, kinds], separators=(",", ":")).encode()
    made = bytearray(len(about).to_bytes(_LENGTH_NBYTES, "little") + about)
    for array in arrays.values():
        made += bytes(-len(made) % ALIGNMENT)
        made += array.tobytes()
    return bytes(made)


def unflattened(content: memoryview) -> tuple[dict[str, Any], Arrays]:
    """The data and the arrays, which lie in `content`; ValueError or KeyError where it is not
    what `flattened` makes."""
    n = int.from_bytes(content[:_LENGTH_NBYTES], "little")
    at = _LENGTH_NBYTES + n
    if at > len(content):
        raise ValueError(f"{len(content)} bytes; the first part alone has {n}")
    data, kinds = saved_json.loads(bytes(content[_LENGTH_NBYTES:at]))
    arrays: Arrays = {}
    for name, kind, length in kinds:
        at += -at % ALIGNMENT
        dtype = _TYPES[kind]
        if type(length) is not int or not 0 <= length * dtype.itemsize <= len(content) - at:
            raise ValueError(f"array {name!r} of {length!r} elements is not in the bytes")
        arrays[name] = np.frombuffer(content, dtype, length, at)
        at += length * dtype.itemsize
    return data, arrays
