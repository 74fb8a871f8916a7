"""Buffer: views, and copies between devices."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite.device import Allocator, Buffer, CpuAllocator
from arenite.device.buffer import STAGING_NBYTES
from arenite.dtype import BY_NAME, float32, uint8
from arenite.errors import InvalidArgument, InvalidView, NotCpuAccessible
from tests.device.allocators import HiddenAllocator, filled

# Views


@pytest.mark.parametrize(
    ("offset", "nbytes"), [(-1, 2), (0, -1), (0, 9), (8, 1), (9, 0), (2**70, 1)]
)
def test_a_view_stays_within_its_parent(memory: Allocator, offset: int, nbytes: int) -> None:
    buffer = Buffer(memory, uint8, (100,)).view(10, 8)
    with pytest.raises(InvalidView, match=f"{nbytes} bytes at offset {offset} leaves the 8 bytes"):
        buffer.view(offset, nbytes)


def test_a_shape_fills_its_view(memory: Allocator) -> None:
    buffer = Buffer(memory, uint8, (72,))
    with pytest.raises(InvalidView, match="takes 20 bytes; the view has 24"):
        buffer.view(0, 24, float32, (5,))
    with pytest.raises(InvalidView, match="7 bytes are no whole number of float32 elements"):
        buffer.view(0, 7, float32)
    with pytest.raises(InvalidView, match="19 bytes are no whole number of q4_0 blocks"):
        buffer.view(0, 19, "q4_0")
    with pytest.raises(InvalidView, match="float6"):
        buffer.view(0, 2, "float6_e2m3fn")
    with pytest.raises(InvalidArgument, match="negative"):
        buffer.view(0, 24, float32, (-2, -3))
    assert buffer.view(0, 2, "int4", (3,)).shape == (3,)
    assert buffer.view(0, 2, "int4").shape == (4,)
    assert buffer.view(18, 36, "q4_0").shape == (64,)
    assert buffer.view(0, 4, float32, ()).shape == ()


def test_offsets_are_integers_of_any_kind(memory: Allocator) -> None:
    buffer = Buffer(memory, uint8, (8,))
    assert buffer.view(cast(int, np.int64(2)), cast(int, np.uint8(4))).offset == 2
    with pytest.raises(InvalidArgument, match="offset must be an integer"):
        buffer.view(cast(int, 1.0), 4)
    with pytest.raises(InvalidArgument, match="no dtype"):
        buffer.view(0, 4, "float31")


def test_an_offset_is_added_exactly_once() -> None:
    buffer = Buffer.from_array(np.arange(100, dtype=np.uint8))
    view = buffer.view(10, 80).view(20, 50).view(5, 4)
    assert view.offset == 35
    assert view.copyout() == bytes([35, 36, 37, 38])


@st.composite
def nested_spans(draw: st.DrawFn, nbytes: int) -> list[tuple[int, int]]:
    """Offset and length of views, each within the one before."""
    spans = []
    for _ in range(draw(st.integers(1, 5))):
        offset = draw(st.integers(0, nbytes))
        nbytes = draw(st.integers(0, nbytes - offset))
        spans.append((offset, nbytes))
    return spans


@given(
    spans=st.lists(nested_spans(200), min_size=1, max_size=6),
    name=st.sampled_from(["uint8", "int16", "float32", "complex128", "bfloat16", "bool"]),
)
def test_views_of_views_are_slices_of_slices(spans: list[list[tuple[int, int]]], name: str) -> None:
    model = bytearray(n % 2 for n in range(200))
    root = filled(CpuAllocator(), bytes(model))
    itemsize = BY_NAME[name].bits // 8
    for number, nested in enumerate(spans):
        view, expected = root, memoryview(model)
        for offset, nbytes in nested:
            view = view.view(offset, nbytes)
            expected = expected[offset : offset + nbytes]
        assert view.copyout() == expected
        whole = expected.nbytes // itemsize * itemsize
        typed = view.view(0, whole, name)
        np.testing.assert_array_equal(
            typed.as_array().view(np.uint8), np.frombuffer(expected[:whole], np.uint8)
        )
        data = bytes([number % 2]) * view.nbytes
        view.copyin(data)
        expected[:] = data
        assert root.copyout() == model


@given(source=nested_spans(60), offset=st.integers(0, 60))
def test_overlapping_views_copy_as_memmove_does(source: list[tuple[int, int]], offset: int) -> None:
    start, nbytes = source[0]
    offset = min(offset, 60 - nbytes)
    for allocator in (CpuAllocator(), HiddenAllocator()):
        model = bytearray(range(60))
        root = filled(allocator, bytes(model))
        root.view(offset, nbytes).copy_from(root.view(start, nbytes))
        model[offset : offset + nbytes] = model[start : start + nbytes]
        assert root.copyout() == model


# Devices out of reach


def test_memory_out_of_reach_has_no_host_view(hidden: Allocator) -> None:
    buffer = filled(hidden, bytes(4)).view(0, 4, float32)
    for access in (
        buffer.as_host_bytes,
        buffer.as_host_bytes_mut,
        buffer.as_array,
        buffer.as_array_mut,
        buffer.as_slice,
        buffer.item,
        buffer.__dlpack_device__,
        buffer.__dlpack__,
        lambda: buffer.raw_ptr,
        lambda: np.asarray(buffer),
    ):
        with pytest.raises(NotCpuAccessible):
            access()


def test_memory_out_of_reach_is_copied_in_and_out(hidden: Allocator) -> None:
    buffer = filled(hidden, bytes(range(16)))
    view = buffer.view(4, 8).view(2, 4)
    assert view.copyout() == bytes([6, 7, 8, 9])
    view.copyin(b"abcd")
    target = bytearray(16)
    buffer.copyout(target)
    assert target == bytes(range(6)) + b"abcd" + bytes(range(10, 16))


def test_any_device_copies_to_any_device(cpu: CpuAllocator, hidden: Allocator) -> None:
    data = bytes(range(100))

    def buffers() -> list[Buffer]:
        return [
            Buffer(cpu, uint8, (100,)),
            Buffer.from_array(np.zeros(100, np.uint8)),
            Buffer(hidden, uint8, (100,)),
            Buffer(HiddenAllocator(), uint8, (100,)),
        ]

    for source in buffers():
        source.copyin(data)
        for target in buffers():
            target.copyin(bytes(100))
            target.view(10, 80).copy_from(source.view(5, 80))
            assert target.copyout() == bytes(10) + data[5:85] + bytes(10)


def test_a_copy_between_devices_out_of_reach_is_staged_in_bounded_chunks() -> None:
    nbytes = 2 * STAGING_NBYTES + 123
    data = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
    one, two = HiddenAllocator(), HiddenAllocator()
    source, target = filled(one, data.tobytes()), Buffer(two, uint8, (nbytes,))
    one.largest_copy_nbytes = 0
    target.copy_from(source)
    assert one.largest_copy_nbytes == two.largest_copy_nbytes == STAGING_NBYTES
    assert target.copyout() == data.tobytes()


@pytest.mark.parametrize("shift", [-5, 5])
def test_a_staged_copy_onto_itself_is_right_in_both_directions(shift: int) -> None:
    nbytes = 2 * STAGING_NBYTES
    data = np.random.default_rng(2).integers(0, 256, nbytes + 10, np.uint8)
    root = filled(HiddenAllocator(), data.tobytes())
    root.view(5 + shift, nbytes).copy_from(root.view(5, nbytes))
    data[5 + shift : 5 + shift + nbytes] = data[5 : 5 + nbytes].copy()
    assert root.copyout() == data.tobytes()


def test_synchronize_reaches_the_device(cpu: CpuAllocator) -> None:
    hidden = HiddenAllocator()
    Buffer(hidden, uint8, (1,)).synchronize()
    assert hidden.n_synchronized == 1
    assert hidden.trim() == 0
    Buffer(cpu, uint8, (1,)).synchronize()
