"""GGUF files that lie: each gives one clear error, in bounded time and memory."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.dtype.blocks import dequantised
from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.gguf import GgufFile, MetadataArray
from arenite.frontends.gguf.metadata import text_ends
from tests.frontends.gguf_files import Layout, Tensor, array, text, write_model

U32, U64, FLAG, TEXT, ARRAY = 4, 10, 7, 8, 9
HUGE = 2**63


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def key(kind: int, payload: bytes, name: str | bytes = "k") -> Layout:
    return Layout([(name, kind, payload)])


def aligned_to(value: int) -> Layout:
    return Layout([("general.alignment", U32, u32(value))], [Tensor()])


def nested(depth: int) -> bytes:
    inner = array(U32, 0, b"")
    for _ in range(depth - 1):
        inner = array(ARRAY, 1, inner)
    return inner


LIES: dict[str, tuple[Layout, str]] = {
    "another magic": (Layout(magic=b"GGML"), r"no GGUF file: it starts with b'GGML'"),
    "version 1": (Layout(version=1), "byte 4: GGUF version 1; 2 and 3 are read"),
    "version 4": (Layout(version=4), "GGUF version 4"),
    "version 0": (Layout(version=0), "GGUF version 0"),
    "2^63 tensors": (Layout(n_tensors=HUGE), f"byte 8: {HUGE} tensors are announced"),
    "2^64-1 keys": (Layout(n_keys=2**64 - 1), "byte 16: .* keys are announced"),
    "one key too many": (
        Layout(n_keys=1, data=b""),
        "1 keys are announced, .* and 8 bytes are left",
    ),
    "more keys than any file has": (
        Layout(n_keys=100_000, data=bytes(2_000_000)),
        "100000 keys are announced; at most 65536 are read",
    ),
    "more tensors than any file has": (
        Layout(n_tensors=300_000, data=bytes(8_000_000)),
        "300000 tensors are announced; at most 65536",
    ),
    "a long key": (key(TEXT, text(""), b"x" * 65_536), "name of key 0 has 65536 bytes"),
    "an empty key": (key(TEXT, text(""), ""), "name of key 0 is '', which can't be a name"),
    "a key with a zero byte": (key(TEXT, text(""), "a\0b"), r"'a\\x00b', which can't be a name"),
    "a key that is no text": (key(TEXT, text(""), b"\xff\xfe"), "byte 32: .* is not UTF-8"),
    "the same key twice": (
        Layout([("k", U32, u32(1)), ("k", U32, u32(2))]),
        "key 'k' is there twice",
    ),
    "an unknown kind": (key(13, b""), "byte 33: key 'k' is of an unknown kind, 13"),
    "text past the end": (
        key(TEXT, struct.pack("<Q", 10**6)),
        "key 'k' needs 1000000 bytes and .* are left",
    ),
    "text of 2^64-1 bytes": (key(TEXT, struct.pack("<Q", 2**64 - 1)), "needs 18446744073709551615"),
    "text that is no text": (key(TEXT, text(b"ab\xc3")), "is not UTF-8: .* after 2 bytes"),
    "a flag of 7": (key(FLAG, b"\x07"), "flag of value 7"),
    "an array of 2^63 numbers": (key(ARRAY, array(U64, HUGE, b"")), "elements of key 'k' are anno"),
    "an array of 2^61 u64, whose product overflows": (
        key(ARRAY, array(U64, 2**61, b"")),
        "2305843009213693952 elements of key 'k'",
    ),
    "an array of 2^63 strings": (key(ARRAY, array(TEXT, HUGE, b"")), "at least 8 bytes each"),
    "an array of unknown things": (
        key(ARRAY, array(99, 1, b"")),
        "elements of an unknown kind, 99",
    ),
    "a string of an array past the end": (
        key(ARRAY, array(TEXT, 2, text("a") + struct.pack("<Q", 10**9))),
        "element 1 of key 'k' goes past the end",
    ),
    "a string array cut short": (
        Layout([("k", ARRAY, array(TEXT, 2, text("abcdefgh")))], data=b"", alignment=1),
        "element 1 of key 'k' goes past the end",
    ),
    "arrays five deep": (key(ARRAY, nested(5)), "deeper than 4"),
    "arrays ten thousand deep": (key(ARRAY, nested(10_000)), "deeper than 4"),
    "alignment 0": (aligned_to(0), "'general.alignment' is 0; it must be a power of two"),
    "alignment 24": (aligned_to(24), "'general.alignment' is 24"),
    "alignment in words": (
        Layout([("general.alignment", TEXT, text("32"))]),
        "should be an integer; it is '32'",
    ),
    "an alignment beyond the file": (aligned_to(2**31), "cut short or damaged"),
    "five axes": (Layout([], [Tensor("t", (1,) * 5)]), "tensor 't' has 5 axes"),
    "2^31 axes": (Layout([], [Tensor("t", (), n_axes=2**31)]), "2147483648 axes"),
    "sizes whose product overflows": (
        Layout([], [Tensor("t", (2**32, 2**32))]),
        r"tensor 't' of shape \(4294967296, 4294967296\) is too large",
    ),
    "sizes whose product wraps to 4": (
        Layout([], [Tensor("t", (2**62 + 1, 4))]),
        "is too large for any memory",
    ),
    "an overflowing shape of no elements": (
        Layout([], [Tensor("t", (0, 2**63, 2**63))]),
        "is too large for any memory",
    ),
    "a tensor past the end": (
        Layout([], [Tensor("t", (17,))]),
        "tensor 't' of 68 bytes at 64 would end at 132 in a file of 128 bytes",
    ),
    "a tensor that begins past the end": (Layout([], [Tensor("t", offset=2**40)]), "would end at"),
    "an offset of 2^64-32": (Layout([], [Tensor("t", offset=2**64 - 32)]), "would end at"),
    "an offset between two": (Layout([], [Tensor("t", offset=8)]), "not aligned to 32"),
    "tensors that overlap": (
        Layout([], [Tensor("a", (16,)), Tensor("b", offset=32)]),
        "'a' and 'b' overlap: the first ends at 160",
    ),
    "tensors in one place": (Layout([], [Tensor("a"), Tensor("b")]), "'a' and 'b' overlap"),
    "the same tensor twice": (
        Layout([], [Tensor("t"), Tensor("t", offset=32)]),
        "tensor 't' is there twice",
    ),
    "a tensor without a name": (Layout([], [Tensor("")]), "name of tensor 0 is ''"),
    "a tensor name that is no text": (Layout([], [Tensor(b"\x80")]), "tensor 0 is not UTF-8"),
    "an unknown type": (Layout([], [Tensor("t", kind=5)]), "'t' is of an unknown type, number 5"),
    "rows of half a block": (
        Layout([], [Tensor("t", (48, 2), kind=2)]),
        r"'t' of shape \(2, 48\) has rows that are no whole q4_0 blocks of 32",
    ),
    "a scalar block": (Layout([], [Tensor("t", (), kind=2)]), "no whole q4_0 blocks"),
    "a split of no shards": (
        Layout([("split.count", 2, b"\0\0")]),
        "says it is shard 1 of 0",
    ),
    "a split named after another folder": (
        Layout([("split.count", TEXT, text("../other"))]),
        "'split.count' should be an integer; it is '../other'",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_told_apart(tmp_path: Path, lie: str) -> None:
    layout, reason = LIES[lie]
    path = layout.write(tmp_path / "lie.gguf")
    with pytest.raises(InvalidFile, match=rf"lie\.gguf.*{reason}") as caught:
        GgufFile.open(path)
    assert len(str(caught.value)) < len(str(path)) + 400


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_honest_layout_is_read(tmp_path: Path, order: str) -> None:
    layout = Layout([("k", U32, struct.pack(order + "I", 5))], [Tensor()], order=order)
    file = GgufFile.open(layout.write(tmp_path / "honest.gguf"))
    assert (file.metadata.integer("k"), file.tensors["t"].shape) == (5, (4,))


def test_a_type_that_is_known_and_not_read_is_named(tmp_path: Path) -> None:
    path = Layout([], [Tensor("blk.0.ffn", (256,), kind=16)]).write(tmp_path / "m.gguf")
    with pytest.raises(NotSupported, match=r"m\.gguf: tensor 'blk\.0\.ffn' is of type IQ2_XXS"):
        GgufFile.open(path)


def test_what_is_decoded_later_is_checked_later(tmp_path: Path) -> None:
    layout = Layout(
        [
            ("t", ARRAY, array(TEXT, 2, text("a") + text(b"\xff"))),
            ("f", ARRAY, array(7, 2, b"\1\2")),
        ]
    )
    metadata = GgufFile.open(layout.write(tmp_path / "late.gguf")).metadata
    with pytest.raises(InvalidFile, match=r"late\.gguf, .*element 1 of key 't' is not UTF-8"):
        metadata.texts("t")
    with pytest.raises(InvalidFile, match=r"late\.gguf, .*key 'f' holds a flag that is neither"):
        metadata.numbers("f")


@pytest.mark.parametrize("content", [b"", b"G", b"GGUF", b"GGUF\3\0\0", b"GGUF\3\0\0\0"])
def test_stumps_are_no_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "stump.gguf"
    path.write_bytes(content)
    with pytest.raises(InvalidFile, match=r"stump\.gguf"):
        GgufFile.open(path)


def test_an_announced_vocabulary_takes_no_memory_before_it_is_checked(tmp_path: Path) -> None:
    path = key(ARRAY, array(TEXT, 2**40, b"")).write(tmp_path / "m.gguf")
    tracemalloc.start()
    with pytest.raises(InvalidFile, match="1099511627776"):
        GgufFile.open(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_file_of_empty_strings_is_walked_within_a_limit(tmp_path: Path) -> None:
    count = 2**24 + 1
    layout = Layout([("k", ARRAY, array(TEXT, count, b""))], data=b"")
    path = layout.write(tmp_path / "m.gguf")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 8 * count)  # sparse: zeros
    with pytest.raises(InvalidFile, match="16777217 elements of key 'k' are announced; at most"):
        GgufFile.open(path)


def test_the_limit_is_one_for_all_arrays_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arenite.frontends.gguf.metadata.MAX_WALKED", 10)
    strings = array(TEXT, 6, text("") * 6)
    GgufFile.open(key(ARRAY, strings).write(tmp_path / "one.gguf"))
    path = Layout([("a", ARRAY, strings), ("b", ARRAY, strings)]).write(tmp_path / "two.gguf")
    with pytest.raises(InvalidFile, match="6 elements of key 'b' are announced; at most 4"):
        GgufFile.open(path)


# Damage


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_model(path, ["F32", "Q4_0"])
    return path.read_bytes()


def refusal_of(path: Path) -> str | None:
    """Read everything there is; what the file was refused with, if it was."""
    try:
        file = GgufFile.open(path)
        for name in file.metadata:
            value = file.metadata[name]
            if isinstance(value, MetadataArray):
                value.tolist()
    except (InvalidFile, NotSupported) as error:
        return str(error)
    for tensor in file.tensors.values():
        raw = tensor.buffer().as_host_bytes()
        if tensor.dtype.is_block:
            dequantised(raw, tensor.dtype, tensor.shape)
    return None


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path, small: bytes) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(small)
    end = max(t.offset + t.nbytes for t in GgufFile.open(path).tensors.values())
    for nbytes in range(end):
        path.unlink()
        path.write_bytes(small[:nbytes])
        with pytest.raises(InvalidFile, match=r"cut\.gguf"):
            GgufFile.open(path)


@given(data=st.data())
def test_flipped_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, small: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(small)
    header_nbytes = len(small) - 3 * 2 * 256 * 5
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, header_nbytes))
        damaged[at] = data.draw(
            st.one_of(st.sampled_from([0, 1, 127, 128, 255]), st.integers(0, 255))
        )
    path = tmp_path_factory.mktemp("damaged") / "damaged.gguf"
    path.write_bytes(damaged)
    refusal = refusal_of(path)
    assert refusal is None or "damaged.gguf" in refusal


@given(content=st.binary(max_size=300))
def test_nonsense_after_the_magic_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("nonsense") / "nonsense.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + content)
    refusal = refusal_of(path)
    assert refusal is None or "nonsense.gguf" in refusal


def test_every_single_bit_of_the_header_may_flip(tmp_path: Path, small: bytes) -> None:
    path = tmp_path / "bit.gguf"
    n_refused = 0
    for at in range(1500):
        for bit in (at % 8, 7):
            path.unlink(missing_ok=True)
            damaged = bytearray(small)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            n_refused += refusal_of(path) is not None
    assert n_refused > 500


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=12),
            st.integers(0, 600).map(bytes),  # zeros, which look like the rest of a length
            st.integers(250, 600).map(lambda n: b"x" * n),
        )
    ),
    st.sampled_from([1, 7, 400]),
    st.integers(0, 40),
    st.sampled_from("<>"),
)
def test_strings_end_where_their_lengths_say(
    some: list[bytes], n_times: int, n_missing: int, order: str
) -> None:
    """Found many at once or one by one, whole or cut short: as a walk over the lengths has it."""
    before, texts = b"something", n_times * some
    data = before + b"".join(struct.pack(f"{order}Q", len(one)) + one for one in texts)
    data = data[: len(data) - n_missing] if n_missing < len(data) - len(before) else data
    expected, position = [], len(before)
    for one in texts:
        position += 8 + len(one)
        expected.append(position)
    within = [end for end in expected if end <= len(data)]
    found = text_ends(memoryview(data), len(before), len(texts), order)  # type: ignore[arg-type]
    assert found.tolist() == within
