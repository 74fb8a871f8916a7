"""The loops that limits of a core are measured with, as a module of LLVM IR.

In: a target. Out: functions of addresses, a number of turns and a mask. A loop of arithmetic is a
register tile as products have it: rows that stay, columns that are loaded each turn, a sum for each
pair; no sum waits for another. A loop that reads goes on from the start again where the mask ends,
or takes turns between places so many bytes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from arenite.backends.cpu.bytes.tile import word_dot
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.backends.cpu.target import Target

#: Sums of a tile: enough for any core's latency times its units.
ROWS, COLUMNS = 3, 4
#: Operations of a turn for each lane of 32 bits.
OPERATIONS = {
    "float32": 2 * ROWS * COLUMNS,
    "float64": ROWS * COLUMNS,
    "int8": 8 * ROWS * COLUMNS,
}
#: Bytes that a turn of `read` reads, and the places that `read_strided` takes turns between.
READ_NBYTES = 256
PLACES = 8


def limits_module(target: Target) -> str:
    """`float32`, `float64`, `int8`: multiply-adds. `read`, `read_strided`: bytes."""
    lanes = target.vector_bits // 32
    dot = word_dot(target)
    made = {
        "float32": _tile(target, VType("f", 32, lanes), lambda x: [x], lambda x: [x], _fma),
        "float64": _tile(target, VType("f", 64, lanes // 2), lambda x: [x], lambda x: [x], _fma),
        "int8": _tile(target, VType("i", 32, lanes), dot.a, dot.b, dot.add),
        "read": _read(target, VType("i", 32, lanes), _sequential),
        "read_strided": _read(target, VType("i", 32, lanes), _strided),
    }
    return _module(made)


def _fma(total: Vec, a: Sequence[Vec], b: Sequence[Vec]) -> Vec:
    return fma(a[0], b[0], total)


def _tile(
    target: Target,
    t: VType,
    row: Callable[[Vec], Sequence[Vec]],
    column: Callable[[Vec], Sequence[Vec]],
    add: Callable[[Vec, Sequence[Vec], Sequence[Vec]], Vec],
) -> Builder:
    b = Builder(target)
    # Volatile: what is loaded may be anything, and another thing next time.
    rows = [row(_load(b, t, "%from")) for _ in range(ROWS)]

    def step(sums: list[Vec], _: Vec) -> list[Vec]:
        columns = [column(_load(b, t, "%from")) for _ in range(COLUMNS)]
        pairs = [(one, other) for one in rows for other in columns]
        return [add(total, *pair) for total, pair in zip(sums, pairs, strict=True)]

    _turns(b, [b.constant(k, t) for k in range(ROWS * COLUMNS)], step)
    return b


def _sequential(turn: Vec, mask: Vec) -> Vec:
    return turn * READ_NBYTES & mask


def _strided(turn: Vec, distance: Vec) -> Vec:
    shift = PLACES.bit_length() - 1
    return (turn & (PLACES - 1)) * distance + turn.shr(shift, signed=False) * READ_NBYTES


def _read(target: Target, t: VType, place: Callable[[Vec, Vec], Vec]) -> Builder:
    b = Builder(target)
    nbytes = t.bits * t.lanes // 8

    def step(sums: list[Vec], turn: Vec) -> list[Vec]:
        at = place(turn, Vec(b, "%mask", I64))
        start = b.emit_pointer(f"getelementptr i8, ptr %from, i64 {at.text}")
        return [total ^ b.load(t, b.offset(start, k * nbytes), 4) for k, total in enumerate(sums)]

    _turns(b, [b.constant(0, t)] * (READ_NBYTES // nbytes), step)
    return b


def _load(b: Builder, t: VType, pointer: str) -> Vec:
    return b.emit(f"load volatile {t}, ptr {pointer}, align 4", t)


def _turns(b: Builder, first: list[Vec], step: Callable[[list[Vec], Vec], list[Vec]]) -> None:
    """As many turns as are asked for; the sums are kept, so that none is left out."""
    front, head, done = b.block, b.new_block("turn"), b.new_block("done")
    front.end = f"br label %{head.name}"
    b.block = head
    turn, sums = Vec(b, b.new_name(), I64), [Vec(b, b.new_name(), one.type) for one in first]
    made = step(sums, turn)
    after = turn + 1
    again = after.ne(Vec(b, "%turns", I64))
    head.end = f"br i1 {again.text}, label %{head.name}, label %{done.name}"
    b.set_phi(head, turn.text, [(b.constant(0, I64), front), (after, head)])
    for total, start, last in zip(sums, first, made, strict=True):
        b.set_phi(head, total.text, [(start, front), (last, head)])
    b.block = done
    for one in made:
        b.emit_void(f"store volatile {one.type} {one.text}, ptr %into, align 4")
    done.end = "ret void"


def _module(functions: Mapping[str, Builder]) -> str:
    declared = sorted({line for b in functions.values() for line in b.declarations})
    defined = [
        f"define hidden void @{name}(ptr %from, ptr %into, i64 %turns, i64 %mask) "
        f"{FUNCTION_ATTRIBUTES} {{\n{b.body_text()}\n}}"
        for name, b in functions.items()
    ]
    return "\n".join([*declared, *defined, ""])
