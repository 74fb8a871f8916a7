"""The file of a compiled model: named sections behind a checked header.

In: sections of bytes. Out: the same bytes as memoryviews of memory of our own, after
every check; or DamagedCache. Little-endian, offsets from the start of the file:

     0  magic "ARENITE" + format byte      8    directory, 24 bytes a section:
     8  file length                        8      kind (up to 8 ASCII bytes)  8
    16  section count                      8      offset                      8
    24  SHA-256 of all bytes after 64     32      byte length                 8
    56  zero                               8    sections, each 64-byte aligned

The checksum finds damage, not an attacker: who can write the folder can write code. Hence file and
folder must belong to the user, and nobody else may write them.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from arenite import saved_json
from arenite.digests import digest_of
from arenite.errors import DamagedCache, InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

Sections: TypeAlias = dict[str, memoryview]

MAGIC = b"ARENITE\x02"
ALIGNMENT = 64
#: The section in which an entry of the cache holds its key.
KEY_SECTION = "key"
MAX_SECTIONS = 1024

_HEADER = struct.Struct("<8sQQ32s8s")
_ENTRY = struct.Struct("<8sQQ")
_ZERO = bytes(8)


def model_bytes(sections: Mapping[str, bytes]) -> bytes:
    """The whole file of these sections."""
    if len(sections) > MAX_SECTIONS:
        raise InvalidArgument(f"{len(sections)} sections; a model file has at most {MAX_SECTIONS}")
    end = _HEADER.size + _ENTRY.size * len(sections)
    directory = bytearray()
    body = bytearray()
    first = -(-end // ALIGNMENT) * ALIGNMENT
    for name, content in sections.items():
        body += bytes(-len(body) % ALIGNMENT)
        directory += _ENTRY.pack(_kind(name), first + len(body), len(content))
        body += content
    rest = bytes(directory) + bytes(first - end) + bytes(body)
    digest = digest_of(rest)
    nbytes = _HEADER.size + len(rest)
    return _HEADER.pack(MAGIC, nbytes, len(sections), digest, _ZERO) + rest


def parse_model(data: memoryview) -> Sections:
    """The sections of a whole file; raises DamagedCache."""
    if len(data) < _HEADER.size:
        raise DamagedCache(f"{len(data)} bytes are no model file")
    _check_head(data, len(data))
    _, nbytes, n_sections, digest, _ = _HEADER.unpack_from(data)
    if digest_of(data[_HEADER.size :]) != digest:
        raise DamagedCache("the checksum does not match")
    if n_sections > MAX_SECTIONS or _HEADER.size + n_sections * _ENTRY.size > nbytes:
        raise DamagedCache(f"a directory of {n_sections} sections does not fit")
    first = _HEADER.size + n_sections * _ENTRY.size
    sections: dict[str, memoryview] = {}
    for index in range(n_sections):
        kind, offset, length = _ENTRY.unpack_from(data, _HEADER.size + index * _ENTRY.size)
        try:
            name = kind.rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise DamagedCache(f"section {index} has the name {kind!r}") from None
        if not name or name in sections:
            raise DamagedCache(f"section {index} has the name {name!r}, none or a second time")
        if length > nbytes or not first <= offset <= nbytes - length or offset % ALIGNMENT:
            raise DamagedCache(f"section {name}: {length} bytes at {offset} are not in the file")
        sections[name] = data[offset : offset + length]
    return sections


def _check_head(head: memoryview | bytes, n_found: int) -> None:
    """DamagedCache unless these bytes begin a file of this format that is as long as was found."""
    magic, nbytes, _, _, zero = _HEADER.unpack_from(head)
    if magic != MAGIC or zero != _ZERO:
        raise DamagedCache(f"not a model file of this format: it begins with {magic!r}")
    if nbytes != n_found:
        raise DamagedCache(f"{n_found} bytes; the header says {nbytes}")


def write_atomically(path: str | Path, content: bytes, is_synced: bool = True) -> None:
    """Write all of a file or nothing, as other processes see it; `is_synced`: also after a crash of
    the system, which takes milliseconds."""
    import tempfile

    folder = os.path.dirname(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def read_model_file(path: str | Path, max_nbytes: int | None = None) -> Sections:
    """The sections of a file; raises DamagedCache, also for a file that others could write, and for
    one of more than `max_nbytes`. No more is read, or asked of memory, than the header accounts
    for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise DamagedCache(f"{path} can't be opened: {error.strerror}") from None
    try:
        data = _content(descriptor, max_nbytes)
        return parse_model(memoryview(data).toreadonly())
    except (DamagedCache, OSError) as error:
        raise DamagedCache(f"{path}: {error}") from None
    finally:
        os.close(descriptor)


def _content(descriptor: int, max_nbytes: int | None) -> bytearray:
    """All bytes of an open file, if its kind, its owner and its header allow for them."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise DamagedCache("it is no regular file")
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DamagedCache("it belongs to another user, or others may write it")
    if max_nbytes is not None and status.st_size > max_nbytes:
        raise DamagedCache(f"{status.st_size} bytes are more than there may be, {max_nbytes}")
    head = os.pread(descriptor, _HEADER.size, 0)
    if len(head) < _HEADER.size:
        raise DamagedCache(f"{len(head)} bytes are no model file")
    _check_head(head, status.st_size)
    data = bytearray(status.st_size)
    view, filled = memoryview(data), 0
    while filled < len(data):  # the system reads no more than 2 GiB at once
        n_read = os.preadv(descriptor, [view[filled:]], filled)
        if n_read == 0:
            raise DamagedCache("it was cut short while it was read")
        filled += n_read
    return data


def entry_bytes(key: str, sections: Mapping[str, bytes]) -> bytes:
    """The file of an entry, which says what it is."""
    if KEY_SECTION in sections:
        raise InvalidArgument(f"the section {KEY_SECTION!r} of an entry is for its key")
    return model_bytes({KEY_SECTION: key.encode(), **sections})


def parsed_entry(key: str, content: bytes) -> Sections:
    """The sections of an entry in memory; DamagedCache."""
    return of_key(key, parse_model(memoryview(content)))


def of_key(key: str, sections: Sections) -> Sections:
    """The sections of an entry, without its key; DamagedCache where that is another."""
    held = bytes(sections.pop(KEY_SECTION, b""))
    if held != key.encode():
        raise DamagedCache(
            f"the entry of {held.decode(errors='replace') or 'no key'}, not of {key}"
        )
    return sections


def code_sections(image: bytes, entries: Mapping[str, int]) -> dict[str, bytes]:
    """Code and where its functions begin, as sections."""
    return {"code": image, "entries": saved_json.dumps(entries).encode()}


def parse_code(sections: Sections) -> tuple[memoryview, dict[str, int]]:
    """(code, function name -> offset) of a file's sections; raises DamagedCache."""
    try:
        code, entries = sections["code"], saved_json.loads(bytes(sections["entries"]))
        if any(type(at) is not int or not 0 <= at < len(code) for at in entries.values()):
            raise DamagedCache(f"an entry outside of {len(code)} bytes of code")
    except (AttributeError, KeyError, RecursionError, ValueError) as problem:
        raise DamagedCache(f"no code with its entries: {problem!r}") from None
    return code, entries


def _kind(name: str) -> bytes:
    kind = name.encode()
    if not (name.isascii() and name.isprintable() and 1 <= len(kind) <= 8):
        raise InvalidArgument(f"{name!r} can't name a section: 1 to 8 ASCII characters")
    return kind.ljust(8, b"\0")
