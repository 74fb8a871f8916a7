"""The arena of the founding page on WebGPU, sentence by sentence: one buffer, offsets, lengths, and
the half-precision shadow; its price in the plan."""

from __future__ import annotations

import numpy as np
import pytest

from arenite import memory
from arenite.device import CpuAllocator
from arenite.device.webgpu import WebGpuAllocator
from arenite.dtype import BY_NAME
from arenite.errors import DoesNotFit, InvalidPlan, InvalidView, NotSupported, SizeMismatch
from arenite.ir import graph_input, make
from arenite.memory import Arena, Lifetime, MemoryPlan, Value
from arenite.memory.saved import plan_from_bytes, plan_to_bytes
from tests.backends.webgpu.runner import compiled, webgpu

F32, F16 = BY_NAME["float32"], BY_NAME["float16"]


def plan() -> MemoryPlan:
    """x [2, 8] by w [8, 4] is y [2, 4]; all in float32."""
    values = [("x", 64), ("w", 128), ("y", 32)]
    return memory.plan([Value(name, nbytes, Lifetime(0, 2)) for name, nbytes in values])


@pytest.fixture
def gpu() -> WebGpuAllocator:
    found = webgpu()
    if not found.has_float16:
        pytest.skip(f"{found.adapter_name} has no shader-f16")
    return found


@pytest.fixture
def arena(gpu: WebGpuAllocator) -> Arena:
    return Arena.from_plan(gpu, plan().with_shadow())


def test_the_price_of_the_shadow_is_in_the_plan_and_a_plan_may_leave_it_out() -> None:
    without, shadowed = plan(), plan().with_shadow()
    assert without.shadow_nbytes == 0
    assert shadowed.shadow_nbytes == without.peak_nbytes // 2 == 128
    assert shadowed.total_nbytes == without.total_nbytes + 128
    assert sum(shadowed.nbytes_by_device.values()) == shadowed.total_nbytes
    assert "shadow" in shadowed.table()
    assert "shadow" not in without.table()
    assert MemoryPlan.from_json(shadowed.to_json()) == shadowed
    assert plan_from_bytes(memoryview(plan_to_bytes(shadowed))).shadow_nbytes == 128
    with pytest.raises(InvalidPlan, match="not half"):
        shadowed._replace(shadow_nbytes=100).verify()


def test_a_shadow_that_does_not_fit_is_refused() -> None:
    tight = memory.plan([Value("x", 256, Lifetime(0, 1))], capacity=300)
    with pytest.raises(DoesNotFit, match="256 bytes and its half-precision shadow 128 more") as why:
        tight.with_shadow()
    assert (why.value.capacity, why.value.smallest_known) == (300, 384)


def test_one_buffer_fits_every_offset_and_length(arena: Arena) -> None:
    assert arena.size == arena.nbytes == arena.buffer.nbytes == arena.plan.peak_nbytes == 256
    assert arena.offsets == {name: arena.offset(name) for name in "xwy"}
    assert arena.lens == {"x": 64, "w": 128, "y": 32}
    assert all(arena.has(name) for name in "xwy")
    assert not arena.has("z")
    ends = [arena.offset(name) + arena.capacity_of(name) for name in "xwy"]
    assert max(ends) == arena.size


def test_the_actual_length_stands_beside_the_padded_one(arena: Arena) -> None:
    assert (arena.len_of("y"), arena.capacity_of("y")) == (32, 64)
    arena.set_actual_len("y", 20)
    assert (arena.len_of("y"), arena.capacity_of("y"), arena.lens["y"]) == (20, 64, 20)
    arena.write_f32("y", np.arange(5))
    assert arena.read_f32("y").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(SizeMismatch, match="20 bytes and the data 24"):
        arena.write_f32("y", np.zeros(6))


def test_floats_are_in_the_shadow_in_half_precision_at_half_the_offset(arena: Arena) -> None:
    assert arena.f16_buffer is not None
    assert arena.f16_buffer.nbytes == arena.size // 2
    assert "half-precision shadow" in repr(arena)
    data = np.random.default_rng(0).standard_normal(32).astype(np.float32) * 1000
    data[:4] = [1e6, -1e6, 1e-8, np.inf]  # beyond float16, below it
    arena.write_f32("w", data)
    offset = arena.offset("w")
    assert arena.f16_offset("w") == offset // 2
    with np.errstate(over="ignore"):
        half = data.astype(np.float16)
    whole = arena.f16_buffer.copyout()
    assert whole[offset // 2 : offset // 2 + 64] == half.tobytes()
    assert not any(whole[: offset // 2] + whole[offset // 2 + 64 :])  # nothing else is touched
    assert arena.f16_view("w", (8, 4)).shape == (8, 4)
    assert arena.read_f32("w").tobytes() == data.tobytes()  # all of their digits are still there


def test_every_write_of_floats_is_in_the_shadow(arena: Arena) -> None:
    for number in (1, 2):
        arena.write_f32("y", np.full(8, number))
        assert np.frombuffer(arena.f16_view("y").copyout(), np.float16).tolist() == [number] * 8


def test_bytes_of_packed_weights_are_written_and_read_by_range(arena: Arena) -> None:
    packed = bytes(range(37))
    arena.write_bytes_range(arena.offset("w") + 3, packed)  # inside of words, too
    assert arena.read_bytes_range(arena.offset("w") + 3, 37) == packed
    assert arena.read_bytes_range(arena.offset("w"), 3) == bytes(3)
    assert not any(arena.f16_view("w").copyout())  # bytes are no floats
    with pytest.raises(InvalidView, match=r"\[250, 260\) leave the arena of 256"):
        arena.write_bytes_range(250, bytes(10))


def test_products_read_half_precision_weights_from_the_shadow(arena: Arena) -> None:
    """Two buffers are bound: the arena for x and y, the shadow for w."""
    x, w = graph_input("x", 0, (2, 8), F32), graph_input("w", 1, (8, 4), F16)
    wide = make("reshape", make("cast", w, dtype=F32), shape=(1, 8, 4))
    rows = make("expand", make("reshape", x, shape=(2, 8, 1)), shape=(2, 8, 4))
    products = make("mul", rows, make("expand", wide, shape=(2, 8, 4)))
    [kernel] = [k for k in compiled([make("sum", products, axes=(1,))]).kernels if k.ins[1:]]
    rng = np.random.default_rng(1)
    given, weights = (rng.standard_normal(s).astype(np.float32) for s in ((2, 8), (8, 4)))
    arena.write_f32("x", given)
    arena.write_f32("w", weights)
    shadow = arena.f16_view("w", (8, 4))
    kernel(arena.view("x", F32, (2, 8)), shadow, arena.view("y", F32, (2, 4)))
    exact = given.astype(np.float64) @ weights.astype(np.float16).astype(np.float64)
    found = arena.read_f32("y").reshape(2, 4)
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6)
    assert np.abs(found - given @ weights).max() > 1e-5  # float32 weights would be nearer
    assert shadow.nbytes * 2 == arena.len_of("w")


def test_a_plan_without_a_shadow_and_a_device_without_float16_have_none(
    gpu: WebGpuAllocator,
) -> None:
    plain = Arena.from_plan(gpu, plan())
    assert plain.f16_buffer is None
    with pytest.raises(NotSupported, match="the plan has none"):
        plain.f16_view("x")
    on_cpu = Arena.from_plan(CpuAllocator(), plan().with_shadow())
    assert on_cpu.f16_buffer is None
    on_cpu.write_f32("x", np.ones(16))
    with pytest.raises(NotSupported, match="cpu has no float16"):
        on_cpu.f16_view("x")


def test_a_value_inside_of_a_float_has_no_shadow(gpu: WebGpuAllocator) -> None:
    odd = memory.plan([Value(k, 6, Lifetime(0, 1), alignment=1) for k in range(2)])
    arena = Arena.from_plan(gpu, odd.with_shadow())
    [name] = [one for one, offset in arena.offsets.items() if offset % 4]
    with pytest.raises(InvalidView, match=r"begins at byte 6 of the arena.*multiples of 4"):
        arena.f16_view(name)
