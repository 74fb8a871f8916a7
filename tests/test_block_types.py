"""Descriptions of block types, judged by reading them element by element.

Types that no file has show that kernels, reference and panels follow the description alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import dtype
from arenite.backends.cpu.ops.block_forms import packed_panels, panel_weights
from arenite.dtype import BY_NAME, DType, Kind, float32
from arenite.dtype.block_types import BLOCK_TYPES, E2M1, Bits, BlockType, Number, Scale, number
from arenite.dtype.blocks import dequantised
from arenite.errors import TypeMismatch
from arenite.frontends.gguf.reader import DTYPES
from arenite.ir import graph_input
from arenite.ir.graph import Graph
from arenite.ir.ops.blocks import dequantise, matmul_blocks, rows_of_blocks
from arenite.pipeline import compile_graph
from tests.codegen.block_weights import weights_node

Array = NDArray[Any]

UNUSUAL = [
    # Scales of bfloat16, each for 64 elements; nibbles one after the other, two bits above them.
    BlockType(
        "six_bits",
        None,
        128,
        "bfloat16 d[2]; uint8 low[64]; uint8 high[32]",
        number(Bits("low", 4, group=1), Bits("high", 2, group=4), zero=32),
    ),
    # Scales and least values of float32, bytes without a sign.
    BlockType(
        "wide",
        None,
        32,
        "float32 d; float32 m; uint8 q[32]",
        number(Bits("q", 8), zero=128),
        least=Scale("m", negative=True),
    ),
    # Scales of 8 bits for 16 elements each, a table of fractions, planes in two fields.
    BlockType(
        "table",
        None,
        32,
        "uint8 q[8]; float8_e5m2 s[2]; uint8 more[8]",
        number((Bits("q", 4, group=8), Bits("more", 4, group=4)), table=tuple(v / 2 for v in E2M1)),
        Scale("s"),
    ),
    # A table of fractions beside a scale that is not made another.
    BlockType(
        "wide_table",
        None,
        32,
        "float32 d; uint8 q[16]",
        number(Bits("q", 4), table=E2M1),
    ),
    # Signed codes of 64 elements under one scale of float16, and least values beside them.
    BlockType(
        "coded",
        None,
        256,
        "uint8 codes[4]; uint8 least[4]; float16 d; float16 m; uint8 q[64]",
        number(Bits("q", 2, group=16)),
        Scale("d", number(Bits("codes", 8), signed=True)),
        Scale("m", number(Bits("least", 4, shifts=(2,)), zero=8)),
    ),
]
#: How many bytes each dtype takes.
NBYTES = {"uint8": 1, "uint16": 2, "uint32": 4, "float16": 2, "bfloat16": 2, "float32": 4}


def places(block: BlockType) -> dict[str, tuple[str, int, int]]:
    """Of each field its dtype, where it begins and where it ends, as the text says."""
    found, at = {}, 0
    for text in block.struct.split(";"):
        kind, name, length = re.findall(r"^ *(\w+) (\w+)(?:\[(\d+)\])?$", text)[0]
        end = at + NBYTES.get(kind, 1) * int(length or 1)
        found[name], at = (kind, at, end), end
    return found


@pytest.fixture(params=UNUSUAL, ids=lambda block: str(block.name))
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BlockType:
    made: BlockType = request.param
    own = DType(made.name, Kind.BLOCK, made.nbytes * 8, made.length)
    monkeypatch.setitem(BLOCK_TYPES, made.name, made)
    monkeypatch.setitem(BY_NAME, made.name, own)
    return made


def numbers_one_by_one(block: BlockType, of: Number, raw: bytes) -> list[float]:
    """The numbers of a block, bit by bit."""
    planes = []
    for plane in of.planes:
        found = []
        for bits in plane:
            _, begin, end = places(block)[bits.field]
            first = begin + bits.first
            count = bits.nbytes or end - first
            group = bits.group or count
            for start in range(first, first + count, group):
                for k in range(bits.digits or len(bits.shifts or range(0, 8, bits.width))):
                    for byte in raw[start : start + group]:
                        if bits.digits:
                            found.append(byte * 3**k % 256 * 3 // 256)
                        else:
                            shift = bits.shifts[k] if bits.shifts else k * bits.width
                            found.append(byte // 2**shift % 2**bits.width)
        planes.append(found)
    wholes = []
    for pieces in zip(*planes, strict=True):
        whole, below = 0, 0
        for piece, plane in zip(pieces, of.planes, strict=True):
            whole, below = whole + piece * 2**below, below + plane[0].width
        wholes.append(whole)
    if of.table:
        return [of.table[whole] for whole in wholes]
    half = 2 ** (sum(plane[0].width for plane in of.planes) - 1)
    return [w - 2 * half if of.signed and w >= half else w - of.zero for w in wholes]


def scales_one_by_one(block: BlockType, scale: Scale, raw: bytes) -> NDArray[np.float32]:
    """The scale of each element."""
    name, begin, end = places(block)[scale.field]
    kinds = {"bfloat16": ml_dtypes.bfloat16, "float8_e5m2": ml_dtypes.float8_e5m2}
    floats = np.frombuffer(raw[begin:end], np.dtype(kinds.get(name, name))).astype(np.float32)
    found = np.repeat(floats, block.length // len(floats))
    if scale.codes:
        codes = np.array(numbers_one_by_one(block, scale.codes, raw), np.float32)
        found = found * np.repeat(codes, block.length // len(codes))
    return -found if scale.negative else found


def judged(block: BlockType, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    rows = []
    for own in raw.reshape(-1, block.nbytes):
        content = own.tobytes()
        values = np.array(numbers_one_by_one(block, block.number, content), np.float32)
        made = scales_one_by_one(block, block.scale, content) * values
        if block.least:
            made = made + scales_one_by_one(block, block.least, content)
        rows.append(made)
    return np.stack(rows).reshape(len(raw), -1)


def random_rows(block: BlockType, rows: int, depth: int) -> NDArray[np.uint8]:
    """Random bytes, with scales of a sensible size."""
    rng = np.random.default_rng(rows)
    raw = rng.integers(0, 256, (rows * depth // block.length, block.nbytes), dtype=np.uint8)
    for kind, begin, end in places(block).values():
        if "float" in kind:
            size = (len(raw), (end - begin) // NBYTES.get(kind, 1))
            values = rng.uniform(-0.02, 0.02, size).astype(BY_NAME[kind].to_numpy())
            raw[:, begin:end] = values.view(np.uint8)
    return raw.reshape(rows, -1)


def test_any_described_type_is_read_packed_and_multiplied(block: BlockType) -> None:
    rows, depth = 37, 2 * block.length
    raw = random_rows(block, rows, depth)
    wanted = judged(block, raw)
    own = dtype.of(block.name)
    np.testing.assert_array_equal(dequantised(raw, own, (rows, depth)), wanted)
    panels = packed_panels(raw, own)
    np.testing.assert_array_equal(panel_weights(panels, own, rows, depth), wanted)
    w = weights_node(block.name, raw, depth)
    other = weights_node(block.name, raw.copy(), depth)
    x = graph_input("x", 0, (5, depth), float32)
    indices = graph_input("indices", 1, (2,), BY_NAME["int64"])
    graph = Graph.of(
        [
            matmul_blocks(x, w),
            rows_of_blocks(w, indices),
            rows_of_blocks(other, indices),
            dequantise(other),
        ]
    )
    given = np.random.default_rng(0).standard_normal((5, depth)).astype(np.float32)
    chosen = np.array([36, 3])
    with compile_graph(graph) as exe:
        product, row_of_panels, row, everything = exe(given, chosen)
    for found in (row_of_panels, row):
        np.testing.assert_array_equal(found, wanted[chosen])
    np.testing.assert_array_equal(everything, wanted)
    runs = np.abs(given.astype(np.float64)).reshape(5, -1, 32)
    step = np.repeat(runs.max(axis=-1) / 127 * 0.501, 32, axis=-1)
    bound = (step + 2.0**-18 * np.abs(given)) @ np.abs(wanted.astype(np.float64)).T + 1e-4
    assert np.all(np.abs(product - given.astype(np.float64) @ wanted.T.astype(np.float64)) <= bound)


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_the_table_says_what_lies_in_a_block(name: str) -> None:
    """Element by element, with the digits of base 3 that no unusual type has."""
    own = BLOCK_TYPES[name]
    raw = np.random.default_rng(1).integers(0, 128, (2, own.nbytes), dtype=np.uint8)
    for name_of, value in (("d", 0.5), ("m", 0.25)):
        if name_of in places(own):
            kind, begin, end = places(own)[name_of]
            size = (2, (end - begin) // NBYTES.get(kind, 1))
            stored = np.full(size, value, np.float32).astype(BY_NAME[kind].to_numpy())
            raw[:, begin:end] = stored.view(np.uint8)
    found = dequantised(raw, dtype.of(name), (2, own.length))
    values = np.array([numbers_one_by_one(own, own.number, r.tobytes()) for r in raw])
    assert np.unique(values).size > 2
    if own.least is None and own.scale.codes is None:
        np.testing.assert_array_equal(found, 0.5 * values)
    else:
        assert {
            len(numbers_one_by_one(own, s.codes, raw[0].tobytes())) for s in own.scales if s.codes
        } <= {8, 16}
    assert own.gguf is None or DTYPES[own.gguf] == dtype.of(name)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"number": number(Bits("q", 8), zero=100)}, "a power of two"),
        ({"number": number(Bits("q", 8, group=2), zero=128)}, "groups of 1 byte or of fours"),
        ({"struct": "float16 d[4]; uint8 q[32]"}, "parts of 16 or 32"),
        ({"scale": Scale("d", number(Bits("q", 4, nbytes=1), table=E2M1))}, "without a table"),
    ],
)
def test_what_panels_do_not_hold_is_refused_and_still_read(
    changes: dict[str, Any], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"odd_{'_'.join(changes)}_{rule[0]}"  # kernels are kept by the name of a type
    made = BlockType(
        **{
            "name": name,
            "gguf": None,
            "length": 32,
            "struct": "float16 d; uint8 q[32]",
            "number": number(Bits("q", 8)),
            **changes,
        }
    )
    monkeypatch.setitem(BLOCK_TYPES, name, made)
    monkeypatch.setitem(BY_NAME, name, DType(name, Kind.BLOCK, made.nbytes * 8, 32))
    raw = random_rows(made, 3, 64)
    w = weights_node(name, raw, 64)
    with pytest.raises(TypeMismatch, match=f"no {name}.*{rule}"):
        compile_graph(Graph.of([matmul_blocks(graph_input("x", 0, (1, 64), float32), w)]))
    [found] = compile_graph(Graph.of([dequantise(w)]))()
    np.testing.assert_array_equal(found, judged(made, raw))


ENTRY = """
BLOCK_TYPES["q6_0"] = BlockType(
    "q6_0",
    99,
    32,
    "float16 d; uint8 low[16]; uint8 high[8]",
    number(Bits("low", 4), Bits("high", 2), zero=32),
)
"""
USE = """
import sys
import numpy as np
from pathlib import Path
from arenite.device import Buffer
from arenite.dtype import of
from arenite.dtype.blocks import dequantised
from arenite.frontends.gguf import GgufFile
from arenite.ir import buffer, graph_input
from arenite.ir.graph import Graph
from arenite.ir.ops.blocks import matmul_blocks
from arenite.pipeline import compile_graph

tensor = GgufFile.open(sys.argv[1]).tensors["w"]
assert (tensor.dtype, tensor.shape) == (of("q6_0"), (40, 64)), tensor
numbers = dequantised(tensor.buffer().copyout(), tensor.dtype, tensor.shape)
x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
node = matmul_blocks(graph_input("x", 0, (2, 64), of("float32")), buffer(tensor.buffer()))
[found] = compile_graph(Graph.of([node]))(x)
np.savez(sys.argv[2], numbers=numbers, found=found, x=x)
"""


def test_a_new_type_is_one_entry_in_one_file(tmp_path: Path) -> None:
    """A copy of the package, with nothing changed but the table of block types."""
    package = Path(arenite.__file__).parent
    copy = tmp_path / "arenite"
    copy.mkdir()
    for part in package.iterdir():
        if part.name not in ("dtype", "__pycache__"):
            (copy / part.name).symlink_to(part)
    shutil.copytree(package / "dtype", copy / "dtype")
    table = copy / "dtype" / "block_types.py"
    usual = table.read_text()
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (80, 26), dtype=np.uint8)
    blocks[:, :2] = rng.uniform(0.01, 0.02, (80, 1)).astype(np.float16).view(np.uint8)
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_file(blocks.tobytes()))
    low, high = blocks[:, 2:18], blocks[:, 18:]
    nibbles = np.hstack([low & 15, low >> 4]).astype(int)
    pairs = np.hstack([high >> shift & 3 for shift in (0, 2, 4, 6)]).astype(int)
    scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    # A description that is changed makes other kernels, whatever is kept of the first.
    for zero in (32, 16):
        table.write_text(usual + ENTRY.replace("zero=32", f"zero={zero}"))
        run = subprocess.run(
            [sys.executable, "-c", USE, path, tmp_path / "found.npz"],
            cwd=tmp_path,
            # Python takes a module written again within a second, of as many bytes, for the same.
            env={
                **os.environ,
                "ARENITE_CACHE_DIR": str(tmp_path / "cache"),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        found = np.load(tmp_path / "found.npz")
        wanted = (scales * (nibbles + 16 * pairs - zero).astype(np.float32)).reshape(40, 64)
        np.testing.assert_array_equal(found["numbers"], wanted)
        exact = found["x"].astype(np.float64) @ wanted.T.astype(np.float64)
        assert np.abs(found["found"] - exact).max() < 0.01 * np.abs(exact).max()


def gguf_file(raw: bytes) -> bytes:
    """A GGUF file with one tensor "w" of 40 rows of 64, of type 99, without any key."""
    header = b"GGUF" + np.array([3], "<u4").tobytes() + np.array([1, 0], "<u8").tobytes()
    tensor = np.array([1], "<u8").tobytes() + b"w" + np.array([2], "<u4").tobytes()
    tensor += np.array([64, 40], "<u8").tobytes() + np.array([99], "<u4").tobytes() + bytes(8)
    return (header + tensor).ljust(96, b"\0") + raw
