"""Vector loads and stores: contiguous, reversed, strided by a few elements, repeated, gathered.

In: an address (of the first lane, or of every lane), the mask of active lanes or None for all.
Lanes that are not active are not touched. Where a target has no masked or gathering instruction,
LLVM writes it out lane by lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Literal
from zlib import crc32

from arenite.backends.cpu.lowering.convert import from_memory, memory_type, to_memory
from arenite.backends.cpu.lowering.vector import Builder, Vec, VType, constant_text
from arenite.dtype import DType

#: Up to this stride, loading all elements in between and picking is faster than gathering.
MAX_PICKED_STRIDE = 4

#: The mask of all lanes, of any number.
_ALL = "splat (i1 true)"


@dataclass(frozen=True, slots=True)
class Access:
    """`pointer` is one address, of the first lane, or for a gather a vector of addresses."""

    kind: Literal["broadcast", "strided", "repeated", "gather"]
    pointer: str
    lanes: int
    stride: int = 1  # in elements, between lanes; of what is repeated, how often an element comes


def load_vector(b: Builder, access: Access, dtype: DType, mask: Vec | None) -> Vec:
    """A value for every lane; lanes that are not active hold zero."""
    t = memory_type(dtype, access.lanes)
    if access.kind == "strided" and abs(access.stride) == 1:
        value = _load_contiguous(b, access, t, mask)
    elif access.kind == "repeated":
        value = _load_repeated(b, access, t, mask)
    elif (
        access.kind == "strided"
        and 1 < access.stride <= MAX_PICKED_STRIDE
        and (mask is None or b.has_masks)
    ):
        value = _load_picked(b, access, t, mask)
    else:
        value = _gather(b, _addresses(b, access, t), t, mask)
    return from_memory(value, dtype)


def store_vector(b: Builder, access: Access, value: Vec, dtype: DType, mask: Vec | None) -> None:
    """Writes the active lanes."""
    value = to_memory(value, dtype)
    t = value.type
    if access.kind == "strided" and abs(access.stride) == 1:
        pointer = access.pointer
        if access.stride == -1:
            value, mask, pointer = _reversed(b, value, mask, pointer)
        store_contiguous(b, pointer, value, mask)
        return
    addresses = _addresses(b, access, t)
    name = f"llvm.masked.scatter.{t.mangled}.v{t.lanes}p0"
    b.declarations.add(f"declare void @{name}({t}, <{t.lanes} x ptr>, {t.mask})")
    active = _ALL if mask is None else mask.text
    pointers = f"<{t.lanes} x ptr> align {t.bits // 8} {addresses}"
    b.emit_void(f"call void @{name}({t} {value.text}, {pointers}, {t.mask} {active})")


def load_contiguous(b: Builder, pointer: str, t: VType, mask: Vec | None) -> Vec:
    """Elements from one address on, as they lie in memory."""
    if mask is None:
        return b.load(t, pointer, 1)
    name = f"llvm.masked.load.{t.mangled}.p0"
    b.declarations.add(f"declare {t} @{name}(ptr, {t.mask}, {t})")
    operands = f"ptr align 1 {pointer}, {t.mask} {mask.text}, {t} zeroinitializer"
    return b.emit(f"call {t} @{name}({operands})", t)


def store_contiguous(b: Builder, pointer: str, value: Vec, mask: Vec | None) -> None:
    t = value.type
    if mask is None:
        b.store(value, pointer, 1)
        return
    name = f"llvm.masked.store.{t.mangled}.p0"
    b.declarations.add(f"declare void @{name}({t}, ptr, {t.mask})")
    b.emit_void(f"call void @{name}({t} {value.text}, ptr align 1 {pointer}, {t.mask} {mask.text})")


def table(values: tuple[int | float, ...], at: Vec, element: VType) -> Vec:
    """The constant that each lane asks for, from a table in the module."""
    b, t = at.builder, element._replace(lanes=at.type.lanes)
    parts = [constant_text(value, t.kind, t.bits, 1) for value in values]
    text = f"[{len(parts)} x {element}] [{', '.join(f'{element} {part}' for part in parts)}]"
    name = f"table_{crc32(text.encode()):08x}"
    b.globals[name] = f"@{name} = internal unnamed_addr constant {text}"
    where = b.emit_pointer(f"getelementptr {element}, ptr @{name}, {at.type} {at.text}")
    if t.lanes > 1:
        return _gather(b, where, t, None)
    return b.load(t, where, t.bits // 8)


def _load_contiguous(b: Builder, access: Access, t: VType, mask: Vec | None) -> Vec:
    if access.stride == 1:
        return load_contiguous(b, access.pointer, t, mask)
    backwards = list(reversed(range(t.lanes)))
    pointer = b.offset(access.pointer, -(t.lanes - 1) * t.bits // 8)
    flipped = None if mask is None else b.shuffle(mask, None, backwards)
    return b.shuffle(load_contiguous(b, pointer, t, flipped), None, backwards)


def _reversed(
    b: Builder, value: Vec, mask: Vec | None, pointer: str
) -> tuple[Vec, Vec | None, str]:
    t = value.type
    backwards = list(reversed(range(t.lanes)))
    flipped = None if mask is None else b.shuffle(mask, None, backwards)
    pointer = b.offset(pointer, -(t.lanes - 1) * t.bits // 8)
    return b.shuffle(value, None, backwards), flipped, pointer


def _load_repeated(b: Builder, access: Access, t: VType, mask: Vec | None) -> Vec:
    """The elements that are there, each as often as it comes."""
    times = access.stride
    count = t.lanes // times
    active = None
    if mask is not None:  # an element is there if any of those that show it is
        own = [b.shuffle(mask, None, list(range(k, t.lanes, times))) for k in range(times)]
        active = reduce(or_, own)
    part = load_contiguous(b, access.pointer, t._replace(lanes=count), active)
    return b.shuffle(part, None, [lane // times for lane in range(t.lanes)])


def _load_picked(b: Builder, access: Access, t: VType, mask: Vec | None) -> Vec:
    """Every stride-th element, out of vectors that end with the last one and not behind it.

    stride 2, 4 lanes:   elements 0 1 2 3 4 5 6      wanted 0 2 4 6
                         first    0 1 2 3
                         second         3 4 5 6
    """
    lanes, stride, nbytes = t.lanes, access.stride, t.bits // 8
    last = (lanes - 1) * stride
    starts = [*range(0, last - lanes + 1, lanes), last - lanes + 1]
    result: Vec | None = None
    for start in starts:
        active = None if mask is None else _spread_mask(mask, start, stride)
        part = load_contiguous(b, b.offset(access.pointer, start * nbytes), t, active)
        mine = [0 <= lane * stride - start < lanes for lane in range(lanes)]
        if result is None:
            picks = [lane * stride if own else 0 for lane, own in enumerate(mine)]
            result = b.shuffle(part, None, picks)
        else:
            picks = [
                lanes + lane * stride - start if own else lane for lane, own in enumerate(mine)
            ]
            result = b.shuffle(result, part, picks)
    assert result is not None
    return result


def _spread_mask(mask: Vec, start: int, stride: int) -> Vec:
    """The elements from `start` on that active lanes ask for, so far apart."""
    b, lanes = mask.builder, mask.type.lanes
    asked = [divmod(start + at, stride) for at in range(lanes)]
    nobody = b.constant(False, mask.type)
    return b.shuffle(mask, nobody, [lanes if between else lane for lane, between in asked])


def _addresses(b: Builder, access: Access, t: VType) -> str:
    """A vector with the address of every lane."""
    if access.kind == "gather":
        return access.pointer
    stride = access.stride if access.kind == "strided" else 0
    steps = ", ".join(f"i64 {lane * stride}" for lane in range(t.lanes))
    element = t.scalar
    line = f"getelementptr {element}, ptr {access.pointer}, <{t.lanes} x i64> <{steps}>"
    return b.emit_pointer(line)


def _gather(b: Builder, addresses: str, t: VType, mask: Vec | None) -> Vec:
    name = f"llvm.masked.gather.{t.mangled}.v{t.lanes}p0"
    b.declarations.add(f"declare {t} @{name}(<{t.lanes} x ptr>, {t.mask}, {t})")
    active = _ALL if mask is None else mask.text
    pointers = f"<{t.lanes} x ptr> align {t.bits // 8} {addresses}"
    return b.emit(
        f"call {t} @{name}({pointers}, {t.mask} {active}, {t} zeroinitializer)",
        t,
    )
