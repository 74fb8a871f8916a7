"""The launch table: entries, instructions and waits, as the native driver reads them.

In: NumPy arrays of the dtypes below. Out: a LaunchTable. Entries are control (worker 0 alone walks
them) and blocks of launches (the team works on them together); instructions are three-address
arithmetic on the one file of i64 registers; waits are indices of sync words. At first an entry's
`fn` is an offset in the code; `relocated` makes it an address.

    tick 0  EVAL   r10 = load64(r8 + r0)
    tick 1  BLOCK 2 PARALLEL                 the next 2 entries are one block
    tick 2    LAUNCH stft SHARED     -> s0   tiles are claimed by whoever comes
    tick 3    LAUNCH enc  SHARED  s0 ->      begins when s0 is complete
    tick 4  END
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.errors import InvalidTable

#: "No register", "no sync word".
NONE = 0xFFFFFFFF


class Op(IntEnum):
    """What an entry does; a, b, c and target mean what is said here."""

    END = 0  # the run is complete
    BLOCK = 1  # the next `a` entries form a block; `tiles`: how many of them are SHARED
    LAUNCH = 2  # call a kernel
    EVAL = 3  # run `b` instructions from `a` on
    IF = 4  # register `a` zero: go to `target`
    JUMP = 5  # go to `target`
    LOOP = 6  # counter `a` = 0; to `target`, behind NEXT, unless 0 < register `b` and condition `c`
    NEXT = 7  # counter `a` += 1; to `target`, behind LOOP, if below register `b` and condition `c`
    SEGMENT = 8  # leave native code, unless register `c` is zero; `a` segment, `b` reason


class Flag(IntFlag):
    SHARED = 1  # LAUNCH: tiles are claimed by all; otherwise worker 0 runs it
    SIGNALS = 2  # another worker waits for this launch of worker 0
    PARALLEL = 4  # BLOCK: open to the team
    FN_REGISTER = 8  # `fn` is the register that holds the address
    FN_RUNTIME = 16  # in files: `fn` is the number of a kernel of the runtime image


class Reason(IntEnum):
    """Why a segment ends."""

    HOST_OP = 0
    UNBOUNDED = 1
    GROW = 2
    STRUCTURE = 3


class Ins(IntEnum):
    """What an instruction does with registers dst, a, b. Nothing traps: x / 0 is 0."""

    MOV = 0
    ADD = 1
    SUB = 2
    MUL = 3
    DIV = 4  # rounded down; 0 for a divisor of zero or below
    CEILDIV = 5
    MOD = 6  # what DIV leaves
    MIN = 7
    MAX = 8
    LT = 9
    LE = 10
    EQ = 11
    NE = 12
    AND = 13  # of truths: 1 where both are not zero
    OR = 14
    NOT = 15
    SELECT = 16  # dst = b where a is not zero
    LOAD8 = 17  # the byte at address a + b, unsigned
    LOAD32 = 18  # signed
    LOAD64 = 19
    STORE64 = 20  # to address a value b
    CHECK = 21  # a is zero: error with the code in b, for site dst


class RuntimeKernel(IntEnum):
    """Kernels of the runtime image, for FN_RUNTIME."""

    COPY = 0  # window: target, source, bytes, bytes a tile


ENTRY: np.dtype[Any] = np.dtype(
    {
        "names": (
            "op flags wait_count wait_start fn args tiles guard sync a b c target "
            "kernel origin cost_ns zero"
        ).split(),
        "formats": ["u1", "u1", "<u2", "<u4", "<u8", *["<u4"] * 12],
        "itemsize": 64,
    }
)
INSTRUCTION: np.dtype[Any] = np.dtype([(name, "<u4") for name in ("op", "dst", "a", "b")])


@dataclass(frozen=True, eq=False)
class LaunchTable:
    """A table and what belongs to it. Arrays are 64-byte aligned and in C order."""

    entries: NDArray[Any]  # of ENTRY
    instructions: NDArray[Any]  # of INSTRUCTION
    waits: NDArray[np.uint32]  # sync words
    n_syncs: int
    n_registers: int
    code_registers: NDArray[np.uint32]  # registers that hold offsets in the code, to be relocated


def relocated(
    table: LaunchTable, base: int, nbytes: int, runtime_kernels: Sequence[int] = ()
) -> LaunchTable:
    """The table with addresses for code of `nbytes` bytes at `base`."""
    entries = aligned_copy(table.entries)
    launches = entries["op"] == Op.LAUNCH
    flags = entries["flags"]
    of_runtime = launches & ((flags & Flag.FN_RUNTIME) != 0)
    own = launches & ((flags & (Flag.FN_RUNTIME | Flag.FN_REGISTER)) == 0)
    for chosen, limit in ((own, nbytes), (of_runtime, len(runtime_kernels))):
        outside = np.flatnonzero(chosen & (entries["fn"] >= limit))
        if len(outside):
            tick = int(outside[0])
            number = int(entries[tick]["fn"])
            raise InvalidTable(f"entry {tick}: fn {number} is not below {limit}")
    entries["fn"][own] += np.uint64(base)
    if of_runtime.any():
        addresses = np.array(runtime_kernels, np.uint64)
        entries["fn"][of_runtime] = addresses[entries["fn"][of_runtime].astype(np.int64)]
        entries["flags"][of_runtime] &= np.uint8(0xFF ^ Flag.FN_RUNTIME)
    return replace(table, entries=entries)


def aligned_empty(n: int, dtype: np.dtype[Any] | str | type) -> NDArray[Any]:
    """`n` zeroed elements on a 64-byte line."""
    item = np.dtype(dtype)
    memory = np.zeros(n * item.itemsize + 64, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    return memory[start : start + n * item.itemsize].view(item)


def aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    made = aligned_empty(len(array), array.dtype)
    made[...] = array
    return made
