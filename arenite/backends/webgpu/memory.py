"""Where the values of a program lie on the device: regions, each one buffer.

arena      packed, state and work values, as the plan has them; inputs and outputs lie on the host,
           and are copied by launches of their own
weights    constants, read-only

Each is as many buffers as it takes, since a binding has a limit (`arena_cuts.py`); so is a constant
that is longer by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.arena_cuts import Stretch, stretches
from arenite.backends.webgpu.device_memory import ALIGNMENT, rounded
from arenite.backends.webgpu.upload import Upload, uploading
from arenite.device import Buffer, BufferOptions
from arenite.device.webgpu import WORD_NBYTES, GpuMemory, WebGpuAllocator
from arenite.dtype import uint8
from arenite.errors import DoesNotFit, NotCompiled
from arenite.ir.data import BufferSource, ConstantData
from arenite.ir.interface import GraphInterface
from arenite.memory import ValueId
from arenite.program.compiled import Compiled

Array = NDArray[Any]

#: Bytes of which a region has whole ones where an array goes on in the next.
_PIECE = 256


@dataclass(frozen=True, slots=True)
class Region:
    """A buffer of the device, bound as a whole."""

    name: str
    buffer: Buffer = field(compare=False)
    gpu: Any = field(compare=False)  # wgpu's handle
    read_only: bool = False
    #: Those in which an array goes on that begins here and is longer than can be bound at once.
    rest: tuple[Region, ...] = field(default=(), compare=False)

    @property
    def every(self) -> tuple[Region, ...]:
        """It, and those in which it goes on."""
        return (self, *self.rest)

    @classmethod
    def of(cls, name: str, buffer: Buffer, read_only: bool = False) -> Region:
        """That of the whole storage of a buffer."""
        raw = buffer.raw
        assert isinstance(raw, GpuMemory)
        return cls(name, buffer, raw.buffer, read_only)


class Regions:
    """The regions of one program, and where in them its values are."""

    def __init__(
        self, device: WebGpuAllocator, compiled: Compiled, constants: Mapping[int, Constant]
    ) -> None:
        self._device = device
        self._largest = min(device.limits.binding_nbytes, device.limits.buffer_nbytes)
        self._plan = compiled.plan
        self._stretches = stretches(compiled.plan, self._largest)
        self._begins = [one.begin for one in self._stretches]
        #: As many buffers as it takes to bind what launches may write.
        self.arena = [self._arena_region(k, one) for k, one in enumerate(self._stretches)]
        self.weight_at: dict[int, tuple[Region, int]] = {}
        used = {int(number) for launch in compiled.launches for number in launch.arrays}
        self.weights = self._placed_weights(
            "weights", {n: one for n, one in constants.items() if n in used}
        )
        #: Of weights that are packed when the program is loaded, and not read again.
        self.sources = self._placed_weights(
            "sources", {n: one for n, one in constants.items() if n not in used}
        )

    def _check(self, name: str, nbytes: int) -> None:
        """DoesNotFit for what can't be bound at once."""
        largest = self._largest
        if nbytes > largest:
            raise DoesNotFit(
                f"the {name} of this program takes {nbytes} bytes; {self._device.name} "
                f"({self._device.adapter_name}) binds {largest} at once",
                capacity=largest,
                lower_bound=nbytes,
                smallest_known=nbytes,
                peak_tick=0,
                live=(),
            )

    def _arena_region(self, number: int, stretch: Stretch) -> Region:
        self._check("largest value", stretch.nbytes)
        options = BufferOptions(alignment=ALIGNMENT, zeroed=True)
        memory = Buffer.allocate(self._device, uint8, (stretch.nbytes,), options)
        return Region.of(f"arena{number}", memory)

    def _region(self, name: str, nbytes: int, read_only: bool = False) -> Region:
        self._check(name, nbytes)
        shape = (max(WORD_NBYTES, rounded(nbytes)),)
        return Region.of(name, Buffer.allocate(self._device, uint8, shape), read_only)

    def _placed_weights(self, name: str, constants: Mapping[int, Constant]) -> list[Region]:
        """Constants in as few buffers as their sizes let them, one after another; those that can't
        be bound at once in buffers of their own."""
        parts: list[dict[int, int]] = [{}]
        ends = [0]
        regions: list[Region] = []
        for number, constant in constants.items():
            nbytes = rounded(constant.nbytes)
            if nbytes > self._largest:
                first, *rest = self._pieces(name, len(regions), nbytes)
                regions += [first, *rest]
                self.weight_at[number] = replace(first, rest=tuple(rest)), 0
                continue
            if ends[-1] and ends[-1] + nbytes > self._largest:
                parts.append({})
                ends.append(0)
            parts[-1][number] = ends[-1]
            ends[-1] += nbytes
        for part, end in zip(parts, ends, strict=True):
            if part:
                region = self._region(f"{name}{len(regions)}", end, read_only=True)
                regions.append(region)
                self.weight_at |= {number: (region, at) for number, at in part.items()}
        return regions

    def _pieces(self, name: str, number: int, nbytes: int) -> Iterator[Region]:
        """As many regions as one array takes, all but the last as long as can be."""
        length = self._largest // _PIECE * _PIECE
        for k, begin in enumerate(range(0, nbytes, length)):
            size = min(length, nbytes - begin)
            yield self._region(f"{name}{number + k}", size, read_only=True)

    def give_back_sources(self) -> None:
        """Let go of the memory of what is packed: work that was submitted keeps it until it is
        done."""
        gone = {region.name for region in self.sources}
        self.weight_at = {
            number: place for number, place in self.weight_at.items() if place[0].name not in gone
        }
        self.sources = []

    def uploading(self, constants: Mapping[int, Constant]) -> AbstractContextManager[bool]:
        """Copy the constants to their places: small ones now, large ones, if there are any,
        meanwhile."""
        large = []
        for number, (region, at) in self.weight_at.items():
            constant, begin = constants[number], 0
            for one in region.every:
                nbytes = min(constant.nbytes - begin, one.buffer.nbytes - at)
                storage = constant.storage
                if storage is not None and Upload.is_for(storage):
                    large.append(Upload(storage.view(begin, nbytes), one.gpu, at))
                elif nbytes:
                    constant.copy_to(one.buffer.view(at, nbytes), begin)
                begin += nbytes
        return uploading(self._device, large)

    def contents(self) -> NDArray[np.uint8]:
        """All bytes of the arena, which launches may write, one buffer after another."""
        parts = [np.frombuffer(region.buffer.copyout(), np.uint8) for region in self.arena]
        return np.concatenate(parts)

    def position(self, arena_offset: int) -> int:
        """Where among these a value begins that is planned at an offset."""
        k, at = self._part(arena_offset)
        return sum(one.nbytes for one in self._stretches[:k]) + at

    def view(self, name: ValueId) -> Buffer:
        """The bytes of a value in the arena."""
        slot = self._plan.slots[name]
        k, at = self._part(slot.offset)
        return self.arena[k].buffer.view(at, slot.nbytes)

    def _part(self, arena_offset: int) -> tuple[int, int]:
        """Which buffer a value lies in, and the byte that it begins at there."""
        k = bisect_right(self._begins, arena_offset) - 1
        return k, arena_offset - self._begins[k]

    def place(self, number: int, arena_offset: int) -> tuple[Region, int]:
        """The region of a value and the word in it that it begins at."""
        if number in self.weight_at:
            region, at = self.weight_at[number]
        else:
            k, at = self._part(arena_offset)
            region = self.arena[k]
        if at % WORD_NBYTES:
            raise NotCompiled(
                f"value {number} begins at byte {at} of the {region.name}, inside a word"
            )
        return region, at // WORD_NBYTES


@dataclass(frozen=True, slots=True)
class Constant:
    """An array that a program brings along, where it lies."""

    source: Array | Buffer | BufferSource | ConstantData

    def array(self) -> Array:
        """Its elements."""
        if isinstance(self.source, BufferSource | ConstantData):
            return self.source.held()
        assert isinstance(self.source, np.ndarray)
        return self.source

    @property
    def nbytes(self) -> int:
        storage = self.storage
        return self.array().nbytes if storage is None else storage.nbytes

    @property
    def storage(self) -> Buffer | None:
        """The bytes it lies in, if it is not one of the host's arrays."""
        found = self.source.storage if isinstance(self.source, BufferSource) else None
        return found if isinstance(found, Buffer) else None

    def copy_to(self, target: Buffer, begin: int) -> None:
        """Its bytes from one on, as many as there is room for. A file is read part by part, past
        its mapping, which may be cut short under us."""
        storage = self.storage
        if storage is None:
            content = np.ascontiguousarray(self.array()).reshape(-1).view(np.uint8)
            target.copyin(content[begin : begin + target.nbytes])
        else:
            target.copy_from(storage.view(begin, target.nbytes))


def constants_of(interface: GraphInterface, compiled: Compiled) -> dict[int, Constant]:
    """The constants of a program by number of their value, the graph's own or the program's."""
    sources = {n: int(compiled.frame.sources[n]) for n in compiled.frame.numbers("constant")}
    own, given = compiled.constants, interface.constants
    return {n: Constant(own[-1 - k] if k < 0 else given[k]) for n, k in sources.items()}
