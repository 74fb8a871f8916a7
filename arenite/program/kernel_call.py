"""The arguments of one kernel that is launched by itself, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite import device
from arenite.device import Buffer
from arenite.errors import (
    BoundsError,
    InvalidArgument,
    NotCpuAccessible,
    ReadOnly,
    SizeMismatch,
    TypeMismatch,
)
from arenite.hazards import BufferRange, Role
from arenite.ir.dim import Var, evaluate
from arenite.program.backend import backend_of

if TYPE_CHECKING:
    from arenite.program.cached_kernel import CachedKernel


def checked_arguments(
    kernel: CachedKernel, given: Sequence[Any], sizes: Mapping[str, int]
) -> list[Buffer]:
    """Buffers for every array of a kernel, its scratch among them, which may be left out."""
    _check_sizes(kernel, sizes)
    n_all, n_outs = len(kernel.arrays), len(kernel.outs)
    n_scratch = len(kernel.launch.writes) - n_outs
    if len(given) not in (n_all, n_all - n_scratch):
        roles = ", ".join(array.role for array in kernel.arrays[: n_all - n_scratch])
        raise InvalidArgument(
            f"kernel {kernel.entry_point} takes {n_all - n_scratch} buffers ({roles}), "
            f"{len(given)} were given"
        )
    buffers: list[Buffer] = []
    for k, array in enumerate(kernel.arrays):
        nbytes = evaluate(array.nbytes, sizes)
        if k >= len(given):
            count = -(-nbytes * 8 // array.dtype.bits)
            memory = device.get(backend_of(kernel.device).memory)
            buffers.append(Buffer.allocate(memory, array.dtype, (count,)))
            continue
        buffer = Buffer.from_array(given[k]) if isinstance(given[k], np.ndarray) else given[k]
        place = f"argument {k} of kernel {kernel.entry_point}"
        if not isinstance(buffer, Buffer):
            raise InvalidArgument(f"{place} is a Buffer or an array, not {type(buffer).__name__}")
        if buffer.dtype != array.dtype:
            raise TypeMismatch(f"{place} has {array.dtype} elements, {buffer.dtype} were given")
        if buffer.nbytes < nbytes:
            raise SizeMismatch(f"{place} has {nbytes} bytes, {buffer.nbytes} were given")
        if array.role != "in" and buffer.is_read_only:
            raise ReadOnly(f"{place} is written to, and can't be")
        buffer.ensure_allocated()
        buffers.append(buffer)
    _check_overlaps(kernel, buffers)
    return buffers


def _check_sizes(kernel: CachedKernel, sizes: Mapping[str, int]) -> None:
    variables = {var.name: var for var in kernel.launch.sizes if isinstance(var, Var)}
    if variables.keys() != sizes.keys():
        raise InvalidArgument(
            f"kernel {kernel.entry_point} takes the sizes {list(variables)}, {list(sizes)} were "
            "given"
        )
    for name, var in variables.items():
        if type(sizes[name]) is not int or not var.low <= sizes[name] <= var.high:
            raise BoundsError(f"{name} is {sizes[name]!r}, outside of {var.low}..{var.high}")


def _check_overlaps(kernel: CachedKernel, buffers: Sequence[Buffer]) -> None:
    """What a kernel writes shares no byte with anything else it is given."""
    ranges = [
        _range(buffer, Role.READ if array.role == "in" else Role.WRITE)
        for buffer, array in zip(buffers, kernel.arrays, strict=True)
    ]
    for k, one in enumerate(ranges):
        for other in range(k):
            if one.conflicts_with(ranges[other]):
                raise InvalidArgument(
                    f"arguments {other} and {k} of kernel {kernel.entry_point} share bytes, and it "
                    "writes to one of them"
                )


def _range(buffer: Buffer, role: Role) -> BufferRange:
    """Arrays of others may share memory without a storage in common: by address, where there is
    one."""
    try:
        start = buffer.raw_ptr
    except NotCpuAccessible:
        return BufferRange.of(buffer, role)
    return BufferRange(0, start, start + buffer.nbytes, role)
