"""Arena: one buffer, every value by its offset, no host access out of bounds."""

from __future__ import annotations

import numpy as np
import pytest

from arenite import device, memory
from arenite.device import Buffer
from arenite.dtype import float32, uint8
from arenite.errors import InvalidArgument, InvalidView, SizeMismatch, TypeMismatch
from arenite.memory import Arena, Lifetime, MemoryPlan, Value


def plan() -> MemoryPlan:
    return memory.plan(
        [
            Value("a", 10, Lifetime(0, 2)),
            Value("b", 64, Lifetime(1, 3)),
            Value("x", 8, Lifetime(0, 3), region="io"),
        ]
    )


def test_every_value_of_the_arena_has_its_offset_and_lengths() -> None:
    arena = Arena.from_plan("cpu", plan())
    assert arena.nbytes == 128
    assert arena.has("a")
    assert not arena.has("x")
    assert arena.offset("b") == plan().slots["b"].offset
    assert (arena.len_of("a"), arena.capacity_of("a")) == (10, 64)
    arena.set_actual_len("a", 16)
    assert (arena.len_of("a"), arena.capacity_of("a")) == (16, 64)
    assert "128 bytes on cpu: 2 values" in repr(arena)


def test_floats_written_to_a_value_are_read_back_and_touch_nothing_else() -> None:
    arena = Arena.from_plan(device.get("cpu"), plan())
    arena.write_bytes_range(0, bytes([7]) * 128)
    arena.set_actual_len("a", 16)
    arena.write_f32("a", [1, 2, 3, 4])
    assert arena.read_f32("a").tolist() == [1, 2, 3, 4]
    start = arena.offset("a")
    raw = arena.read_bytes_range(0, 128)
    assert raw[start : start + 16] == np.array([1, 2, 3, 4], np.float32).tobytes()
    assert set(raw[:start] + raw[start + 16 :]) == {7}


def test_a_view_shares_the_arenas_bytes() -> None:
    arena = Arena.from_plan("cpu", plan())
    view = arena.view("b", float32, (4, 4))
    view.as_array_mut()[:] = 5
    assert arena.read_f32("b").tolist() == [5] * 16
    assert view.storage_id == arena.buffer.storage_id


def test_what_was_read_stays_when_the_arena_changes() -> None:
    arena = Arena.from_plan("cpu", plan())
    arena.write_f32("b", np.ones(16))
    read = arena.read_f32("b")
    arena.write_f32("b", np.zeros(16))
    assert read.tolist() == [1] * 16
    read[0] = 9


def test_the_scratch_tail_lies_behind_the_values() -> None:
    arena = Arena.from_plan("cpu", plan(), scratch_nbytes=100)
    assert arena.nbytes == 228
    assert (arena.scratch.offset, arena.scratch.nbytes) == (128, 100)
    assert Arena.from_plan("cpu", plan()).scratch.nbytes == 0


def test_alignments_beyond_a_page_hold_for_addresses() -> None:
    wide = memory.plan([Value("a", 64, Lifetime(0, 1), alignment=2**14)])
    arena = Arena.from_plan("cpu", wide)
    assert (arena.buffer.raw_ptr + arena.offset("a")) % 2**14 == 0


def test_every_host_access_is_checked() -> None:
    arena = Arena.from_plan("cpu", plan())
    for offset, nbytes in [(-1, 4), (0, 129), (128, 1), (4, -1), (2**70, 1)]:
        with pytest.raises(InvalidView):
            arena.read_bytes_range(offset, nbytes)
    with pytest.raises(InvalidView, match=r"\[126, 130\) leave the arena of 128"):
        arena.write_bytes_range(126, b"1234")
    with pytest.raises(SizeMismatch, match="64 bytes and the data 60"):
        arena.write_f32("b", np.zeros(15))
    with pytest.raises(SizeMismatch, match="65 do not fit"):
        arena.set_actual_len("b", 65)
    with pytest.raises(SizeMismatch):
        arena.set_actual_len("b", -1)
    with pytest.raises(TypeMismatch, match="10 bytes: no whole"):
        arena.read_f32("a")
    for call in (arena.offset, arena.len_of, arena.capacity_of, arena.read_f32, arena.view):
        with pytest.raises(InvalidArgument, match="no value 'x'"):
            call("x")


def test_lengths_and_places_are_whole_numbers() -> None:
    arena = Arena.from_plan("cpu", plan())
    for call in (
        lambda: arena.set_actual_len("b", 3.5),  # type: ignore[arg-type]
        lambda: arena.set_actual_len("b", "3"),  # type: ignore[arg-type]
        lambda: arena.read_bytes_range(0.0, 4),  # type: ignore[arg-type]
        lambda: Arena.from_plan("cpu", plan(), scratch_nbytes=2.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgument, match="must be an integer"):
            call()
    for data in ("text", [1, 2]):
        with pytest.raises(TypeMismatch, match="bytes or an array are needed"):
            arena.write_bytes_range(0, data)  # type: ignore[arg-type]
    arena.set_actual_len("b", np.int64(8))  # type: ignore[arg-type]
    assert type(arena.len_of("b")) is int
    assert arena.read_f32("b").shape == (2,)


def test_a_buffer_that_begins_beside_the_alignment_of_a_value_is_refused() -> None:
    storage = Buffer.allocate(device.get("cpu"), uint8, (256,))
    for offset in (8, 32):
        with pytest.raises(InvalidArgument, match="values that are aligned to 64 bytes"):
            Arena(storage.view(offset, 128), plan())
    assert Arena(storage.view(64, 128), plan()).offset("b") % 64 == 0
    lazy = Buffer(device.get("cpu"), uint8, (128,))
    assert Arena(lazy, plan()).buffer.is_allocated
    loose = memory.plan([Value("a", 128, Lifetime(0, 1), alignment=8)])
    assert Arena(storage.view(8, 128), loose).nbytes == 128


def test_a_buffer_of_the_wrong_size_or_a_negative_tail_is_refused() -> None:
    small = Buffer.allocate(device.get("cpu"), uint8, (64,))
    with pytest.raises(SizeMismatch, match="needs 128 bytes"):
        Arena(small, plan())
    with pytest.raises(InvalidArgument, match="tail of -1"):
        Arena.from_plan("cpu", plan(), scratch_nbytes=-1)
