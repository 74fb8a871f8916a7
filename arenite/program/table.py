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

from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.errors import InvalidTable
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    SEGMENT = 8  # leave native code; `a` says what for


class Flag(IntFlag):
    SHARED = 1  # LAUNCH: tiles are claimed by all; otherwise worker 0 runs it
    SIGNALS = 2  # another worker waits for this launch of worker 0
    PARALLEL = 4  # BLOCK: open to the team


class Ins(IntEnum):
    """What an instruction does with registers dst, a, b. Nothing traps: x / 0 is 0."""

    MOV = 0
    ADD = 1
    SUB = 2
    MUL = 3
    DIV = 4  # rounded down; 0 for a divisor of zero or below
    MIN = 5
    MAX = 6
    LOAD8 = 7  # the byte at address a + b, unsigned
    LOAD64 = 8
    STORE64 = 9  # to address a value b


ENTRY: np.dtype[Any] = np.dtype(
    {
        "names": (
            "op flags wait_count wait_start fn args tiles sync a b c target kernel cost_ns"
        ).split(),
        "formats": ["u1", "u1", "<u2", "<u4", "<u8", *["<u4"] * 9],
        "itemsize": 64,
    }
)
INSTRUCTION: np.dtype[Any] = np.dtype([(name, "<u4") for name in ("op", "dst", "a", "b")])


class LaunchTable(NamedTuple):
    """A table and what belongs to it. Arrays are 64-byte aligned and in C order."""

    entries: NDArray[Any]  # of ENTRY
    instructions: NDArray[Any]  # of INSTRUCTION
    waits: NDArray[np.uint32]  # sync words
    n_syncs: int
    n_registers: int


def relocated(table: LaunchTable, base: int, nbytes: int) -> LaunchTable:
    """The table with addresses for code of `nbytes` bytes at `base`."""
    entries = aligned_copy(table.entries)
    is_launch = entries["op"] == Op.LAUNCH
    outside = np.flatnonzero(is_launch & (entries["fn"] >= nbytes))
    if len(outside):
        tick = int(outside[0])
        raise InvalidTable(f"entry {tick}: fn {int(entries[tick]['fn'])} is not below {nbytes}")
    entries["fn"][is_launch] += np.uint64(base)
    return table._replace(entries=entries)


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
