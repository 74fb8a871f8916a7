"""Arena: one buffer bound to one plan, every value of the arena's regions by its offset.

Host access is by value or by byte range and always within bounds: a value never reaches into its
neighbour, a range never leaves the arena. Each value keeps its own width.

Where the plan has a shadow and the device float16 in its kernels, there is a second buffer of half
the size: what `write_f32` writes is there in half precision too, at half the offset.

    arena    0       64              128             bytes; element k of a value is at
             [ a f32 ][ b f32         ]                 offset + 4 k
    shadow   [ a ][ b    ]                              offset / 2 + 2 k
             0   32      64
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from arenite import device as devices
from arenite.device import Allocator, Buffer, BufferOptions
from arenite.device.allocator import as_integer
from arenite.device.host import bytes_of
from arenite.dtype import FLOAT16, UINT8, DType
from arenite.errors import (
    InvalidArgument,
    InvalidView,
    NotCpuAccessible,
    NotSupported,
    SizeMismatch,
    TypeMismatch,
)
from arenite.memory.columns import SlotColumns
from arenite.memory.plan import MemoryPlan, Slot
from arenite.memory.values import ARENA_REGIONS, REGIONS, ValueId, align_up

if TYPE_CHECKING:
    from numpy.typing import NDArray


Float32Array = np.ndarray[Any, np.dtype[np.float32]]


class Arena:
    """The memory of one compiled model: planned bytes, then an optional scratch tail.

    `buffer` has the bytes, `f16_buffer` the shadow, or is None.
    """

    def __init__(self, buffer: Buffer, plan: MemoryPlan, scratch_nbytes: int = 0) -> None:
        scratch_nbytes = _scratch(scratch_nbytes)
        self._scratch_at = align_up(plan.peak_nbytes, 64) if scratch_nbytes else plan.peak_nbytes
        if buffer.nbytes != self._scratch_at + scratch_nbytes:
            raise SizeMismatch(
                f"the plan needs {self._scratch_at + scratch_nbytes} bytes, scratch included, and "
                f"the buffer has {buffer.nbytes}"
            )
        buffer.ensure_allocated()
        alignment = _alignment(plan)
        if buffer.nbytes and _address(buffer) % alignment:
            raise InvalidArgument(
                f"the buffer begins at address {_address(buffer):#x}, and the plan has values that "
                f"are aligned to {alignment} bytes. Arena.from_plan allocates a buffer that fits; "
                f"BufferOptions(alignment={alignment}) asks for one"
            )
        self.buffer = buffer
        self.f16_buffer = _shadow(buffer, plan)
        self.plan = plan
        self.scratch_nbytes = scratch_nbytes
        #: Of values whose actual length is not the one they were planned with.
        self._actual: dict[ValueId, int] = {}

    @classmethod
    def from_plan(
        cls,
        device: Allocator | str,
        plan: MemoryPlan,
        scratch_nbytes: int = 0,
        *,
        zeroed: bool = False,
    ) -> Arena:
        """Allocate the plan's bytes, and `scratch_nbytes` behind them, on a device; all of them
        zero if that is asked for."""
        scratch_nbytes = _scratch(scratch_nbytes)
        allocator = devices.get(device) if isinstance(device, str) else device
        total = plan.peak_nbytes
        if scratch_nbytes:
            total = align_up(total, 64) + scratch_nbytes
        options = BufferOptions(alignment=max(64, _alignment(plan)), zeroed=zeroed)
        return cls(Buffer.allocate(allocator, UINT8, (total,), options), plan, scratch_nbytes)

    @property
    def nbytes(self) -> int:
        """All bytes of the arena, the scratch tail included."""
        return self.buffer.nbytes

    size = nbytes

    @property
    def offsets(self) -> dict[ValueId, int]:
        """Where each value begins."""
        return {one: self.plan.slots[one].offset for one in self.plan.slots if self.has(one)}

    @property
    def lens(self) -> dict[ValueId, int]:
        """The actual bytes of each value."""
        return {one: self.len_of(one) for one in self.plan.slots if self.has(one)}

    def has(self, value_id: ValueId) -> bool:
        """Whether the value lies in the arena; those in mapped or caller memory don't."""
        slot = self.plan.slots.get(value_id)
        return slot is not None and slot.region in ARENA_REGIONS

    def offset(self, value_id: ValueId) -> int:
        """Where a value begins in the arena."""
        return self._slot(value_id).offset

    def len_of(self, value_id: ValueId) -> int:
        """The actual bytes of the value."""
        slot = self._slot(value_id)
        return self._actual.get(value_id, slot.nbytes)

    def capacity_of(self, value_id: ValueId) -> int:
        """The padded bytes of its slot."""
        return self._slot(value_id).capacity

    def set_actual_len(self, value_id: ValueId, nbytes: int) -> None:
        """Say how many bytes of its slot the value truly has."""
        capacity = self._slot(value_id).capacity
        nbytes = as_integer(f"the actual length of value {value_id!r}", nbytes)
        if not 0 <= nbytes <= capacity:
            raise SizeMismatch(f"value {value_id!r} has {capacity} bytes; {nbytes} do not fit")
        self._actual[value_id] = nbytes

    def view(
        self, value_id: ValueId, dtype: DType = UINT8, shape: tuple[int, ...] | None = None
    ) -> Buffer:
        """The value's actual bytes as a buffer that shares the arena's storage."""
        return self.buffer.view(self.offset(value_id), self.len_of(value_id), dtype, shape)

    def f16_offset(self, value_id: ValueId) -> int:
        """Where a value of 32-bit floats begins in the shadow: at half of its offset."""
        offset = self.offset(value_id)
        if offset % 4:
            raise InvalidView(
                f"value {value_id!r} begins at byte {offset} of the arena: 32-bit floats, and "
                "their shadow, begin at multiples of 4"
            )
        return offset // 2

    def f16_view(self, value_id: ValueId, shape: tuple[int, ...] | None = None) -> Buffer:
        """The shadow of a value as float16, for products with half-precision weights."""
        if self.f16_buffer is None:
            why = "the plan has none (MemoryPlan.with_shadow)"
            if self.plan.shadow_nbytes:
                why = f"{self.buffer.device} has no float16 in its kernels"
            raise NotSupported(f"this arena has no half-precision shadow: {why}")
        offset, nbytes = self.f16_offset(value_id), self._floats_nbytes(value_id)
        return self.f16_buffer.view(offset, nbytes // 2, FLOAT16, shape)

    @property
    def scratch(self) -> Buffer:
        """The scratch tail as a buffer; of no bytes when none was asked for."""
        return self.buffer.view(self._scratch_at, self.scratch_nbytes)

    def write_f32(self, value_id: ValueId, data: Any) -> None:
        """Write 32-bit floats that fill the value's actual bytes exactly; with a shadow, there in
        half precision as well. What runs on the device afterwards sees both."""
        array = np.ascontiguousarray(data, dtype=np.float32)
        if array.nbytes != self.len_of(value_id):
            raise SizeMismatch(
                f"value {value_id!r} has {self.len_of(value_id)} bytes and the data "
                f"{array.nbytes}; set_actual_len says how many it truly has"
            )
        self.view(value_id).copyin(array)
        if self.f16_buffer is not None:
            with np.errstate(over="ignore"):  # what is too large is infinite there
                self.f16_view(value_id).copyin(array.astype(np.float16))

    def read_f32(self, value_id: ValueId) -> Float32Array:
        """The value's actual bytes as a new flat array of 32-bit floats."""
        self._floats_nbytes(value_id)
        return np.frombuffer(self.view(value_id).copyout(), dtype=np.float32).copy()

    def _floats_nbytes(self, value_id: ValueId) -> int:
        nbytes = self.len_of(value_id)
        if nbytes % 4:
            raise TypeMismatch(f"value {value_id!r} has {nbytes} bytes: no whole 32-bit floats")
        return nbytes

    def read_bytes_range(self, offset: int, nbytes: int) -> bytes:
        """A copy of [offset, offset + nbytes) of the arena."""
        return self._range(offset, nbytes).copyout()

    def write_bytes_range(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write raw bytes from `offset` on."""
        content = bytes_of(data)
        self._range(offset, content.nbytes).copyin(content)

    def _range(self, offset: int, nbytes: int) -> Buffer:
        offset, nbytes = as_integer("offset", offset), as_integer("nbytes", nbytes)
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise InvalidView(
                f"bytes [{offset}, {offset + nbytes}) leave the arena of {self.nbytes} bytes"
            )
        return self.buffer.view(offset, nbytes)

    def _slot(self, value_id: ValueId) -> Slot:
        slot = self.plan.slots.get(value_id)
        if slot is None or slot.region not in ARENA_REGIONS:
            raise InvalidArgument(f"the arena has no value {value_id!r}")
        return slot

    def __repr__(self) -> str:
        where = self.buffer.allocator.name
        n_values = int(_is_inside(self.plan).sum())
        shadow = "" if self.f16_buffer is None else ", with a half-precision shadow"
        return f"<Arena of {self.nbytes} bytes on {where}: {n_values} values{shadow}>"


def _alignment(plan: MemoryPlan) -> int:
    """What the address of the arena must be a multiple of."""
    inside = SlotColumns.of(plan.slots).alignment[_is_inside(plan)]
    return int(inside.max()) if len(inside) else 1


def _shadow(buffer: Buffer, plan: MemoryPlan) -> Buffer | None:
    """The half-precision shadow that a plan asks for, where the device can read one."""
    if not plan.shadow_nbytes or not buffer.allocator.has_float16:
        return None
    shape = (plan.shadow_nbytes,)
    return Buffer.allocate(buffer.allocator, UINT8, shape, BufferOptions(zeroed=True))


def _is_inside(plan: MemoryPlan) -> NDArray[np.bool_]:
    """Which of the plan's values lie in the arena."""
    regions = [REGIONS.index(name) for name in ARENA_REGIONS]
    return np.isin(SlotColumns.of(plan.slots).region, regions)


def _address(buffer: Buffer) -> int:
    """Where a buffer begins; in memory without a flat address, within its storage."""
    try:
        return buffer.raw_ptr
    except NotCpuAccessible:
        return buffer.offset


def _scratch(nbytes: int) -> int:
    if as_integer("scratch_nbytes", nbytes) < 0:
        raise InvalidArgument(f"a scratch tail of {nbytes} bytes makes no sense")
    return as_integer("scratch_nbytes", nbytes)
