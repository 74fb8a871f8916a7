"""GGUF files for tests: honest ones written by the gguf package, hostile ones byte by byte."""

from __future__ import annotations

import struct
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import quants
from gguf.scripts import gguf_convert_endian
from numpy.typing import NDArray

TYPES_WRITTEN = (
    "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS".split()
)
#: Those whose byte order the package can turn.
TYPES_TURNED = "F32 F16 BF16 Q4_0 Q8_0 Q4_K Q6_K".split()


def write_model(path: Path, types: list[str] = TYPES_WRITTEN, shards_of: int = 0) -> None:
    """A small file with a key of every kind and a tensor of each type, random bytes where the
    package has no quantiser; `shards_of` tensors a shard."""
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=shards_of)
    writer.add_uint8("a.uint8", 200)
    writer.add_int8("a.int8", -5)
    writer.add_uint16("a.uint16", 60_000)
    writer.add_int16("a.int16", -30_000)
    writer.add_uint32("a.uint32", 4_000_000_000)
    writer.add_int32("a.int32", -2_000_000_000)
    writer.add_uint64("a.uint64", 2**63 + 1)
    writer.add_key_value("a.int64", -(2**60), gguf.GGUFValueType.INT64)
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 1e300)
    writer.add_bool("a.flag", True)
    writer.add_string("a.text", "grüße, 世界")
    writer.add_array("an.array.of.texts", ["a", "", "übung", "𝄞"])
    writer.add_array("an.array.of.integers", [1, -2, 3])
    writer.add_array("an.array.of.floats", [0.5, -1.25])
    writer.add_array("an.array.of.flags", [True, False, True])
    for name in types:
        qtype = gguf.GGMLQuantizationType[name]
        raw = stored_bytes(qtype)
        writer.add_tensor(f"of.{name}", raw, raw_dtype=None if raw.dtype != np.uint8 else qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stored_bytes(qtype: gguf.GGMLQuantizationType) -> NDArray[Any]:
    """Some tensor of shape (3, 2, 256) of a type, the same on each call."""
    rng = np.random.default_rng(3)
    numbers = rng.standard_normal((3, 2, 256)).astype(np.float32)
    if qtype is gguf.GGMLQuantizationType.F32:
        return numbers
    try:
        quantised: NDArray[Any] = quants.quantize(numbers, qtype)
    except NotImplementedError:
        length, nbytes = gguf.GGML_QUANT_SIZES[qtype]
        return rng.integers(0, 256, (3, 2, 256 // length * nbytes), np.uint8)
    return quantised


def make_big_endian(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert a file in place, by the gguf package's own tool."""
    monkeypatch.setattr("builtins.input", lambda _prompt: "YES")
    reader = gguf.GGUFReader(path, "r+")
    gguf_convert_endian.convert_byteorder(reader, Namespace(order="big", dry_run=False))
    reader.data.flush()


def text(value: str | bytes, order: str = "<") -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(raw)) + raw


def array(kind: int, count: int, elements: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "IQ", kind, count) + elements


@dataclass
class Tensor:
    name: str | bytes = "t"
    sizes: tuple[int, ...] = (4,)
    kind: int = 0
    offset: int = 0
    n_axes: int | None = None


@dataclass
class Layout:
    """A file to be: its parts may contradict each other."""

    keys: list[tuple[str | bytes, int, bytes]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    data: bytes = bytes(64)
    magic: bytes = b"GGUF"
    version: int = 3
    n_keys: int | None = None
    n_tensors: int | None = None
    order: str = "<"
    alignment: int = 32

    def content(self) -> bytes:
        o = self.order
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        head = self.magic + struct.pack(o + "IQQ", self.version, n_tensors, n_keys)
        for key, kind, payload in self.keys:
            head += text(key, o) + struct.pack(o + "I", kind) + payload
        for t in self.tensors:
            n_axes = len(t.sizes) if t.n_axes is None else t.n_axes
            head += text(t.name, o) + struct.pack(o + "I", n_axes)
            head += struct.pack(f"{o}{len(t.sizes)}Q", *t.sizes)
            head += struct.pack(o + "IQ", t.kind, t.offset)
        return head + bytes(-len(head) % self.alignment) + self.data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.content())
        return path
