"""Sources: where values come from.

input         an argument of the graph, by position
constant      an array that belongs to the graph, known by its content
buffer        an array that exists already, known by an id: its content is never looked at
full, iota    made up on the spot
state         what lives from run to run, zero at first, known by its name; of several copies
              each run works on one
size          a number that is known when sizes are: the value of an expression over Vars
random_bits   Philox4x32-10: a function of seed, counter and position, so it needs no state
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from arenite.device import Buffer
from arenite.dtype import INT64, UINT32, UINT64, Array, DType
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir.data import BufferSource, ConstantData
from arenite.ir.dim import Dim, bounds
from arenite.ir.element import convert, held_dtype, numpy_dtype, widened
from arenite.ir.node import Node, Shape, attr_key
from arenite.ir.ops.define import (
    NUMBER,
    Attrs,
    Inferred,
    Sizes,
    define,
    is_dim,
    is_dims,
    is_number,
    make,
    need_dtype,
)

_constants: weakref.WeakValueDictionary[str, ConstantData] = weakref.WeakValueDictionary()


def constant(array: Array, dtype: DType | None = None) -> Node:
    """A constant node over a copy of `array`; `dtype` where NumPy's own is not enough (int4)."""
    dtype = held_dtype(array.dtype) if dtype is None else dtype
    owned = np.array(array, numpy_dtype(dtype), order="C")
    owned.flags.writeable = False
    hashed = hashlib.blake2b(f"{dtype.name}{owned.shape}".encode(), digest_size=20)
    hashed.update(owned.tobytes())
    digest = hashed.hexdigest()
    data = _constants.setdefault(digest, ConstantData(owned, dtype, digest))
    return make("constant", data=data)


def buffer(storage: Array | Buffer) -> Node:
    """A node for an array that exists; no copy is made, and nobody may write to it from now on."""
    return make("buffer", source=BufferSource(storage))


def full(shape: Sequence[Dim], value: bool | int | float | complex, dtype: DType) -> Node:
    """`value`, rounded to `dtype`, everywhere."""
    if type(value) in (bool, int, float, complex):
        held = _rounded_once(attr_key(value), value, dtype)
    else:  # a number of NumPy's
        held = _rounded(value, dtype)
    return make("full", shape=tuple(shape), value=held, dtype=dtype)


@lru_cache(1 << 10)
def _rounded_once(key: Hashable, value: bool | int | float | complex, dtype: DType) -> object:
    """`_rounded`, for numbers that models have many times; `key` tells 0.0, -0.0, 0 and False
    apart."""
    return _rounded(value, dtype)


def _rounded(value: bool | int | float | complex, dtype: DType) -> object:
    given = np.asarray(value)
    with np.errstate(over="ignore"):
        return widened(convert(given, dtype_of(given.dtype), dtype), dtype).item()


def size(dim: Dim, dtype: DType) -> Node:
    """The value of a size, as a tensor of no axes."""
    return full((), dim, dtype) if isinstance(dim, int) else make("size", value=dim, dtype=dtype)


def graph_input(name: str, index: int, shape: Sequence[Dim], dtype: DType) -> Node:
    """The node of an input, by its name and its place among the inputs."""
    return make("input", name=name, index=index, shape=tuple(shape), dtype=dtype)


def check_sizes(op: str, shape: Shape) -> Shape:
    for size in shape:
        if bounds(size)[0] < 0:
            raise ShapeMismatch(f"{op}: shape {shape} has size {size}, which may be negative")
    return shape


def _infer_typed(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    return check_sizes("a source", attrs["shape"]), attrs["dtype"]


def _never(*_: Any) -> Array:
    raise InvalidArgument("an input has no value of its own; it is given when the graph is run")


define(
    "input",
    "source",
    (0, 0),
    _infer_typed,
    _never,
    {"name": str, "index": int, "shape": is_dims, "dtype": DType},
    storage="given",
)
define(
    "constant",
    "source",
    (0, 0),
    lambda inputs, attrs: (attrs["data"].array.shape, attrs["data"].dtype),
    lambda arrays, attrs, shape, dtype: attrs["data"].array,
    {"data": ConstantData},
    storage="constant",
)
define(
    "buffer",
    "source",
    (0, 0),
    lambda inputs, attrs: (attrs["source"].shape, attrs["source"].dtype),
    lambda arrays, attrs, shape, dtype: attrs["source"].array(),
    {"source": BufferSource},
    storage="constant",
)


def _infer_state(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    shape, dtype = _infer_typed(inputs, attrs)
    if not all(type(size) is int for size in shape):
        raise ShapeMismatch(
            f"state {attrs['name']!r} of shape {shape}: a state keeps its bytes, so its sizes are "
            "numbers; give the largest"
        )
    if attrs["copies"] < 1:
        raise InvalidArgument(
            f"state {attrs['name']!r} has {attrs['copies']} copies; one is needed"
        )
    return shape, dtype


define(
    "state",
    "source",
    (0, 0),
    _infer_state,
    _never,
    {"name": str, "shape": is_dims, "dtype": DType, "copies": int},
    defaults={"copies": 1},
    storage="given",
)


def _full_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    return np.full(shape, np.asarray(attrs["value"]).astype(numpy_dtype(dtype)))


define(
    "full",
    "source",
    (0, 0),
    _infer_typed,
    _full_reference,
    {"value": is_number, "shape": is_dims, "dtype": DType},
    storage="made up",
    keeps_order=True,
)


def _infer_size(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    if attrs["dtype"].kind not in NUMBER:
        raise TypeMismatch(f"size: a size is a number, not {attrs['dtype']}")
    return (), attrs["dtype"]


define(
    "size",
    "source",
    (0, 0),
    _infer_size,
    lambda arrays, attrs, shape, dtype: convert(np.asarray(attrs["value"]), INT64, dtype),
    {"value": is_dim, "dtype": DType},
    storage="made up",
)


def _infer_iota(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    shape, dtype = _infer_typed(inputs, attrs)
    if not 0 <= attrs["axis"] < len(shape):
        raise ShapeMismatch(f"iota: axis {attrs['axis']} is none of shape {shape}")
    if dtype.kind not in NUMBER:
        raise TypeMismatch(f"iota counts in numbers, not in {dtype}")
    return shape, dtype


def _iota_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    axis: int = attrs["axis"]
    counts = convert(np.arange(shape[axis]), INT64, dtype)
    ones = [1] * len(shape)
    ones[axis] = shape[axis]
    return np.broadcast_to(counts.reshape(ones), shape)


define(
    "iota",
    "source",
    (0, 0),
    _infer_iota,
    _iota_reference,
    {"axis": int, "shape": is_dims, "dtype": DType},
    storage="made up",
)


def philox(counters: Array, key: tuple[int, int]) -> Array:
    """Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).

    `counters` is uint32[n, 4]; so is the result.
    """
    x0, x1, x2, x3 = (counters[:, i].astype(np.uint64) for i in range(4))
    low = np.uint64(0xFFFFFFFF)
    k0, k1 = key
    for _ in range(10):
        a, b = x0 * np.uint64(0xD2511F53), x2 * np.uint64(0xCD9E8D57)
        x0, x1, x2, x3 = (
            (b >> np.uint64(32)) ^ x1 ^ np.uint64(k0),
            b & low,
            (a >> np.uint64(32)) ^ x3 ^ np.uint64(k1),
            a & low,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3], axis=1).astype(np.uint32)


def _infer_random(inputs: tuple[Node, ...], attrs: Attrs) -> Inferred:
    (seed,) = inputs
    need_dtype("random_bits", "the seed", seed, UINT64)
    if seed.shape != ():
        raise ShapeMismatch(f"random_bits: the seed is one number, not of shape {seed.shape}")
    if not 0 <= attrs["counter"] < 2**64:
        raise InvalidArgument(f"random_bits: counter {attrs['counter']} is not within 64 bits")
    return check_sizes("random_bits", attrs["shape"]), UINT32


def _random_reference(arrays: list[Array], attrs: Attrs, shape: Sizes, dtype: DType) -> Array:
    """Element i is word i % 4 of the block with counter words (i//4 low, high, counter low, high);
    the key is the seed, low word first."""
    seed, counter = int(arrays[0]), attrs["counter"]
    count = int(np.prod(shape, dtype=np.int64))
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    words = np.empty((len(blocks), 4), np.uint32)
    words[:, 0] = blocks & np.uint64(0xFFFFFFFF)
    words[:, 1] = blocks >> np.uint64(32)
    words[:, 2], words[:, 3] = counter & 0xFFFFFFFF, counter >> 32
    bits = philox(words, (seed & 0xFFFFFFFF, seed >> 32))
    return bits.reshape(-1)[:count].reshape(shape)


define(
    "random_bits",
    "source",
    (1, 1),
    _infer_random,
    _random_reference,
    {"counter": int, "shape": is_dims},
)
