"""Relocatable ELF objects become one flat image that runs at any address.

In: objects as LLVM emits them (`codegen.llvm`), for x86-64 or aarch64. Out: a CodeImage, code first
and constants after, every relocation applied. All of them are relative, so nothing is left to do at
load but to copy the image to a multiple of 4096. What is absolute, undefined or writable is refused
with the name of the kernel it was found in. Objects are not trusted: every offset is checked.

    object 0  [ .text ][ .rodata ][ symbols ]          [ text 0 | text 1 | rodata 0 | rodata 1 ]
    object 1  [ .text ][ .rodata ][ symbols ]   ---->    entries: name -> offset in the image
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.errors import BadObject

X86_64 = 62
AARCH64 = 183
PAGE_NBYTES = 4096


def _record(fields: str) -> np.dtype[Any]:
    return np.dtype([(name, kind) for name, _, kind in (f.partition(":") for f in fields.split())])


_HEADER = _record(
    "ident:S16 type:<u2 machine:<u2 version:<u4 entry:<u8 phoff:<u8 shoff:<u8 flags:<u4 "
    "ehsize:<u2 phentsize:<u2 phnum:<u2 shentsize:<u2 shnum:<u2 shstrndx:<u2"
)
_SECTION = _record(
    "name:<u4 type:<u4 flags:<u8 addr:<u8 offset:<u8 size:<u8 "
    "link:<u4 info:<u4 align:<u8 entsize:<u8"
)
_SYMBOL = _record("name:<u4 info:u1 other:u1 section:<u2 value:<u8 size:<u8")
_RELOCATION = _record("offset:<u8 type:<u4 symbol:<u4 addend:<i8")
_BYTE: np.dtype[Any] = np.dtype("u1")

_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_PROGBITS, _SYMTAB, _RELA, _REL = 1, 2, 4, 9
_FUNCTION, _GLOBAL = 2, 1

#: By number, what each relocation we apply is called.
_X86_64_KINDS = {2: "PC32", 4: "PLT32"}
_ADR_PAGE, _PREL32, _CALLS = 275, 261, (282, 283)
#: aarch64: low twelve bits of an address, and the shift of the field they go to.
_LOW_BITS = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}


@dataclass(frozen=True)
class CodeImage:
    """Code and constants that run wherever they are copied to, at a multiple of 4096."""

    machine: int  # ELF number: 62 x86-64, 183 aarch64
    image: bytes
    entries: dict[str, int]  # function name -> byte offset


@dataclass(frozen=True)
class _Object:
    """One object's parts, all of them inside its bytes."""

    data: bytes
    machine: int
    sections: NDArray[Any]
    symbols: NDArray[Any]
    strings: bytes
    loaded: tuple[int, ...]  # sections that go into the image

    def name_of(self, symbol: int) -> str:
        return _text(self.strings, int(self.symbols[symbol]["name"]))

    def function_at(self, section: int, offset: int) -> str:
        """The function an offset of a section lies in, for messages."""
        for index in np.flatnonzero((self.symbols["info"] & 15) == _FUNCTION).tolist():
            symbol = self.symbols[index]
            start = int(symbol["value"])
            if symbol["section"] == section and start <= offset < start + int(symbol["size"]):
                return self.name_of(index)
        return "a constant"


def link_objects(objs: Sequence[bytes]) -> CodeImage:
    """One image of several objects, which know nothing of each other; raises BadObject."""
    parsed = [_parse(obj) for obj in objs]
    machines = {each.machine for each in parsed}
    _need(len(machines) == 1, f"objects for {len(machines)} kinds of machine; one is needed")
    places, nbytes = _place(parsed)
    image = np.zeros(nbytes, np.uint8)
    entries: dict[str, int] = {}
    for each, place in zip(parsed, places, strict=True):
        for section in each.loaded:
            header = each.sections[section]
            start, size = int(place[section]), int(header["size"])
            content = np.frombuffer(each.data, _BYTE, size, int(header["offset"]))
            image[start : start + size] = content
        address = _symbol_addresses(each, place)
        _relocate(image, each, place, address)
        for name, offset in _entries(each, address).items():
            _need(name not in entries, f"two functions are named {name}")
            entries[name] = offset
    return CodeImage(machines.pop(), image.tobytes(), entries)


def _parse(obj: bytes) -> _Object:
    header = _take(obj, _HEADER, 0, 1, "the header")[0]
    _need(bytes(obj[:7]) == b"\x7fELF\x02\x01\x01", "not a little-endian ELF64 file")
    _need(header["type"] == 1, "not a relocatable object")
    machine = int(header["machine"])
    _need(machine in (X86_64, AARCH64), f"an object for machine {machine}")
    _need(header["shentsize"] == _SECTION.itemsize, "section headers of another size")
    sections = _take(obj, _SECTION, int(header["shoff"]), int(header["shnum"]), "section headers")
    tables = np.flatnonzero(sections["type"] == _SYMTAB).tolist()
    _need(len(tables) == 1, f"{len(tables)} symbol tables; one is needed")
    symbols = _section_items(obj, sections, tables[0], _SYMBOL, "symbols")
    link = int(sections[tables[0]]["link"])
    _need(link < len(sections), "the symbols' names are in no section")
    strings = _section_items(obj, sections, link, _BYTE, "names of symbols").tobytes()
    loaded = tuple(
        index
        for index in np.flatnonzero(sections["flags"] & _ALLOC).tolist()
        if int(sections[index]["size"])
    )
    parsed = _Object(obj, machine, sections, symbols, strings, loaded)
    for index in loaded:
        _check_loaded(parsed, index)
    _check_defined(parsed)
    return parsed


def _check_loaded(parsed: _Object, index: int) -> None:
    section = parsed.sections[index]
    if int(section["flags"]) & _WRITE:
        inside = np.flatnonzero(parsed.symbols["section"] == index).tolist()
        names = [name for name in map(parsed.name_of, inside) if name]
        raise BadObject(f"a writable section, with {', '.join(names) or 'no names'}")
    _need(section["type"] == _PROGBITS, f"a section of type {int(section['type']):#x}")
    align = int(section["align"])
    _need(align <= PAGE_NBYTES and align & (align - 1) == 0, f"a section aligned to {align}")
    _take(parsed.data, _BYTE, int(section["offset"]), int(section["size"]), "a section")


def _check_defined(parsed: _Object) -> None:
    undefined = np.flatnonzero(parsed.symbols["section"] == 0)[1:].tolist()
    if not undefined:
        return
    users: dict[int, str] = {}
    for _, target, relocations in _relocations(parsed):
        for relocation in relocations[np.isin(relocations["symbol"], undefined)]:
            user = parsed.function_at(target, int(relocation["offset"]))
            users.setdefault(int(relocation["symbol"]), user)
    wanted = [f"{parsed.name_of(i)} (from {users.get(i, 'nowhere')})" for i in undefined]
    raise BadObject(f"code needs symbols from outside: {', '.join(wanted)}")


def _place(parsed: Sequence[_Object]) -> tuple[list[NDArray[np.int64]], int]:
    """The offset of each loaded section in the image, -1 for others; and the image's length."""
    places = [np.full(len(each.sections), -1, np.int64) for each in parsed]
    end = 0
    for executable in (True, False):
        for each, place in zip(parsed, places, strict=True):
            for index in each.loaded:
                section = each.sections[index]
                if bool(int(section["flags"]) & _EXECUTE) is executable:
                    align = max(int(section["align"]), 64)
                    place[index] = -(-end // align) * align
                    end = int(place[index]) + int(section["size"])
    _need(end < 2**31, f"an image of {end} bytes; relative addresses reach 2 GiB")
    return places, end


def _symbol_addresses(parsed: _Object, place: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets of all symbols in the image, -1 for those in no loaded section."""
    section = parsed.symbols["section"].astype(np.int64)
    in_file = section < len(place)
    start = np.where(in_file, place[np.where(in_file, section, 0)], -1)
    size = parsed.sections["size"][np.where(in_file, section, 0)]
    inside = (start >= 0) & (parsed.symbols["value"] <= size)
    offset = np.where(inside, parsed.symbols["value"], 0).astype(np.int64)
    return np.where(inside, start + offset, -1)


def _relocations(parsed: _Object) -> list[tuple[int, int, NDArray[Any]]]:
    """(section of relocations, section they change, relocations), for loaded sections."""
    found = []
    for index in np.flatnonzero(np.isin(parsed.sections["type"], (_RELA, _REL))).tolist():
        target = int(parsed.sections[index]["info"])
        _need(target < len(parsed.sections), "relocations of a section that is not there")
        if target not in parsed.loaded:
            continue
        _need(parsed.sections[index]["type"] == _RELA, "relocations without addends")
        items = _section_items(parsed.data, parsed.sections, index, _RELOCATION, "relocations")
        _need(bool((items["symbol"] < len(parsed.symbols)).all()), "a relocation of no symbol")
        room = max(int(parsed.sections[target]["size"]) - 4, -1)
        _need(
            room >= 0 and bool((items["offset"] <= room).all()) if len(items) else True,
            "a relocation outside its section",
        )
        found.append((index, target, items))
    return found


def _relocate(
    image: NDArray[np.uint8],
    parsed: _Object,
    place: NDArray[np.int64],
    address: NDArray[np.int64],
) -> None:
    for _, target, items in _relocations(parsed):
        for kind in np.unique(items["type"]).tolist():
            some = items[items["type"] == kind]

            def where(worst: NDArray[np.bool_], some: NDArray[Any] = some) -> str:
                first = int(some["offset"][int(np.argmax(worst))])
                return f"in {parsed.function_at(target, first)}"  # noqa: B023

            symbol = address[some["symbol"]]
            absent = symbol < 0
            if absent.any():
                raise BadObject(f"code refers to what is not loaded, {where(absent)}")
            far = np.abs(some["addend"]) > 2**31
            if far.any():
                raise BadObject(f"a relocation reaches too far, {where(far)}")
            value = symbol + some["addend"]
            at = place[target] + some["offset"].astype(np.int64)
            word = image[at[:, None] + np.arange(4)].view("<u4")[:, 0].astype(np.int64)
            patch = _patched_x86_64 if parsed.machine == X86_64 else _patched_aarch64
            patched = patch(kind, value, at, word)
            if patched is None:
                raise BadObject(f"relocation kind {kind} {where(np.ones(len(some), bool))}")
            result, fits = patched
            if not fits.all():
                raise BadObject(f"a relocation reaches too far, {where(~fits)}")
            image[at[:, None] + np.arange(4)] = (
                (result & 0xFFFFFFFF).astype("<u4").view(np.uint8).reshape(-1, 4)
            )


_Patched = tuple[NDArray[np.int64], NDArray[np.bool_]]


def _patched_x86_64(
    kind: int, value: NDArray[np.int64], at: NDArray[np.int64], word: NDArray[np.int64]
) -> _Patched | None:
    if kind not in _X86_64_KINDS:
        return None
    distance = value - at
    return distance, np.abs(distance) < 2**31


def _patched_aarch64(
    kind: int, value: NDArray[np.int64], at: NDArray[np.int64], word: NDArray[np.int64]
) -> _Patched | None:
    if kind == _ADR_PAGE:
        pages = (value >> 12) - (at >> 12)
        field = ((pages & 3) << 29) | (((pages >> 2) & 0x7FFFF) << 5)
        return (word & 0x9F00001F) | field, np.abs(pages) < 2**20
    if kind in _LOW_BITS:
        shift = _LOW_BITS[kind]
        low = value & 0xFFF
        field = (low >> shift) << 10
        return (word & ~(0xFFF << 10)) | field, low & ((1 << shift) - 1) == 0
    distance = value - at
    if kind in _CALLS:
        fits = (np.abs(distance) < 2**27) & (distance & 3 == 0)
        return (word & ~0x3FFFFFF) | ((distance >> 2) & 0x3FFFFFF), fits
    if kind == _PREL32:
        return distance, np.abs(distance) < 2**31
    return None


def _entries(parsed: _Object, address: NDArray[np.int64]) -> dict[str, int]:
    info = parsed.symbols["info"]
    chosen = ((info & 15) == _FUNCTION) & ((info >> 4) == _GLOBAL) & (address >= 0)
    return {parsed.name_of(i): int(address[i]) for i in np.flatnonzero(chosen).tolist()}


def _section_items(
    obj: bytes, sections: NDArray[Any], index: int, item: np.dtype[Any], what: str
) -> NDArray[Any]:
    section = sections[index]
    n = int(section["size"]) // item.itemsize
    return _take(obj, item, int(section["offset"]), n, what)


def _take(obj: bytes, item: np.dtype[Any], offset: int, n: int, what: str) -> NDArray[Any]:
    inside = offset + n * item.itemsize <= len(obj)
    _need(inside, f"{what} lie outside the file's {len(obj)} bytes")
    return np.frombuffer(obj, item, n, offset)


def _text(strings: bytes, start: int) -> str:
    end = strings.find(b"\0", start)
    _need(start < len(strings) and end >= 0, "a name outside the names")
    try:
        return strings[start:end].decode()
    except UnicodeDecodeError:
        raise BadObject("a name that is not UTF-8") from None


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise BadObject(f"an object can't be linked: {what}")
