"""The DISK device: regions of a file as read-only memory."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from arenite import device
from arenite.device import Buffer, BufferOptions, DiskAllocator
from arenite.device.buffer import copies_of
from arenite.dtype import float32
from arenite.errors import FileChanged, InvalidArgument, InvalidFile, InvalidView, ReadOnly

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "weights.bin"
    file.write_bytes(CONTENT)
    return file


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


# Reading


def test_the_whole_file_is_a_buffer(path: Path) -> None:
    disk = DiskAllocator(path)
    file = disk.file()
    assert (file.nbytes, file.dtype.name, file.is_allocated) == (len(CONTENT), "uint8", True)
    assert disk.nbytes == len(CONTENT)
    assert file.copyout() == CONTENT
    assert file.device == f"disk:{path}"


@pytest.mark.parametrize("offset", [0, 1, 3, 64, 4097])
def test_typed_views_start_at_any_offset(path: Path, offset: int) -> None:
    view = DiskAllocator(path).file().view(offset, 400, "float32", (10, 10))
    array = view.as_array()
    assert array.flags.aligned == (offset % 4 == 0)
    np.testing.assert_array_equal(
        array.view(np.uint32),
        np.frombuffer(CONTENT, np.uint32, 100, offset).reshape(10, 10)
        if offset % 4 == 0
        else np.frombuffer(CONTENT[offset : offset + 400], np.uint32).reshape(10, 10),
    )


def test_a_lazy_region_of_the_file(path: Path) -> None:
    disk = device.get(f"disk:{path}")
    region = Buffer(disk, "uint8", (4,), BufferOptions(file_offset=254))
    assert disk.stats.n_live == 0
    region.ensure_allocated()
    assert region.copyout() == b"\xfe\xff\x00\x01"
    assert (disk.stats.n_live, disk.stats.live_nbytes) == (1, 4)


def test_the_file_is_read_and_not_copied(path: Path) -> None:
    disk = DiskAllocator(path)
    one, two = disk.file(), disk.file()
    assert one.raw_ptr == two.raw_ptr
    assert one.storage_id != two.storage_id


def test_copies_to_the_cpu(path: Path) -> None:
    file = DiskAllocator(path).file()
    copy = Buffer(device.get("cpu"), "uint8", (100,))
    copy.copy_from(file.view(7, 100))
    assert copy.copyout() == CONTENT[7:107]
    target = bytearray(100)
    file.view(7, 100).copyout(target)
    assert target == CONTENT[7:107]


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 10241), (10240, 1), (10**9, 1), (10239, 2)])
def test_a_region_past_the_end_is_refused_before_it_is_read(
    path: Path, offset: int, nbytes: int
) -> None:
    disk = DiskAllocator(path)
    with pytest.raises(InvalidView, match=rf"10240 bytes; {nbytes} .*{offset} .*{offset + nbytes}"):
        Buffer(disk, "uint8", (nbytes,), BufferOptions(file_offset=offset))
    with pytest.raises(InvalidView):
        disk.allocate(nbytes, BufferOptions(file_offset=offset))


def test_an_empty_region_at_the_very_end(path: Path) -> None:
    options = BufferOptions(file_offset=len(CONTENT))
    assert Buffer.allocate(DiskAllocator(path), "uint8", (0,), options).copyout() == b""


def test_a_negative_size_is_nonsense(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="-1"):
        DiskAllocator(path).allocate(-1, BufferOptions())


# Writing


def test_every_way_to_write_raises(path: Path) -> None:
    disk = DiskAllocator(path)
    buffer = disk.file().view(0, 8, float32)
    ones = Buffer.from_array(np.ones(2, np.float32))
    with pytest.raises(ReadOnly, match=r"weights\.bin"):
        buffer.copyin(bytes(8))
    with pytest.raises(ReadOnly):
        buffer.as_array_mut()
    with pytest.raises(ReadOnly):
        buffer.as_host_bytes_mut()
    with pytest.raises(ReadOnly):
        buffer.copy_from(ones)
    with pytest.raises(ReadOnly):
        Buffer(disk, "uint8", (8,), BufferOptions(zeroed=True))
    with pytest.raises(ReadOnly):
        disk.copyin(disk.allocate(1, BufferOptions()), 0, memoryview(b"x"))
    assert path.read_bytes() == CONTENT


def test_protocols_give_read_only_memory(path: Path) -> None:
    file = DiskAllocator(path).file()
    array = np.asarray(file)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    assert not np.from_dlpack(file).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        file.__dlpack__()


# Opening


def test_what_is_no_regular_file_is_refused_without_opening_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.delattr(os, "open")
    for bad in (fifo, tmp_path, Path("/dev/zero")):
        with pytest.raises(InvalidFile, match=str(bad)):
            device.get(f"disk:{bad}")


def test_a_file_that_becomes_a_fifo_meanwhile_does_not_block(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.stat(path)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(os, "stat", lambda _: before)
    with pytest.raises(InvalidFile, match="no regular file"):
        DiskAllocator(path)


def test_an_empty_a_missing_and_an_unnameable_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidFile, match="empty is empty"):
        DiskAllocator(tmp_path / "empty")
    with pytest.raises(InvalidFile, match="missing cannot be opened: No such file"):
        DiskAllocator(tmp_path / "missing")
    with pytest.raises(InvalidFile, match="null"):
        DiskAllocator("a\0b")


def test_a_relative_path_means_the_directory_it_was_opened_in(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    disk = DiskAllocator(path.name)
    monkeypatch.chdir("/")
    disk.check()
    assert disk.path == str(path)


# Change


def test_an_unchanged_file_passes_the_check(path: Path) -> None:
    disk = DiskAllocator(path)
    disk.file().copyout()
    disk.check()


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def rewrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")


def cut(path: Path) -> None:
    os.truncate(path, 100)


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (grow, "nbytes was 10240 and is 10244"),
        (touch, "mtime_ns was"),
        (rewrite, "mtime_ns was"),
        (cut, "nbytes was 10240 and is 100"),
    ],
)
def test_a_file_that_was_written_to_is_an_error_wherever_it_is_read(
    path: Path, change: Callable[[Path], None], said: str
) -> None:
    disk = DiskAllocator(path)
    file = disk.file()
    view = file.view(8192, 400, "float32", (100,))
    change(path)
    copy = Buffer(device.get("cpu"), "float32", (100,))
    reads: list[Callable[[], object]] = [
        *(disk.check, file.copyout, view.copyout, view.as_array, view.as_slice, view.as_host_bytes),
        lambda: view.copyout(bytearray(400)),
        lambda: view.read_parts([(0, 1), (396, 4)]),
        lambda: copy.copy_from(view),
        lambda: np.asarray(view),
        lambda: np.from_dlpack(view),
    ]
    for read in reads:
        with pytest.raises(FileChanged, match=rf"weights\.bin changed.*{said}.*open it again"):
            read()
    assert DiskAllocator(path).file().copyout() == path.read_bytes()


def test_parts_are_read_from_where_they_lie(path: Path) -> None:
    content = path.read_bytes()
    of_file = DiskAllocator(path).file()
    of_memory = Buffer.from_array(np.frombuffer(content, np.uint8))
    spans = [(0, 3), (8192, 400), (100, 0), (7, 1)]
    for buffer in (of_file, of_memory):
        assert buffer.read_parts(spans) == [content[at : at + n] for at, n in spans]
        view = buffer.view(4096, 100)
        assert view.read_parts([(90, 10), (1, 2)]) == [content[4186:4196], content[4097:4099]]
        for span in ((90, 11), (-1, 1), (0, -1)):
            with pytest.raises(InvalidView, match="leave the 100 bytes"):
                view.read_parts([(0, 1), span])


def test_many_buffers_are_copied_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = path.read_bytes()
    disk = DiskAllocator(path)
    file, memory = disk.file(), Buffer.from_array(np.frombuffer(content, np.uint8))
    places = [(0, 3), (8192, 400), (4, 0), (10236, 4), (0, 3)]
    buffers = [one.view(*place) for place in places for one in (file, memory)]
    n_checks = 0

    def counted(check: Callable[[], None] = disk.check) -> None:
        nonlocal n_checks
        n_checks += 1
        check()

    monkeypatch.setattr(disk, "check", counted)
    expected = [content[at : at + n] for at, n in places for _ in range(2)]
    assert copies_of(buffers) == expected
    assert copies_of([]) == []
    assert n_checks == 1
    cut(path)
    with pytest.raises(FileChanged):
        copies_of(buffers)


def replaced(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(b"other")
    other.replace(path)


@pytest.mark.parametrize("change", [replaced, Path.unlink])
def test_a_file_whose_name_goes_to_another_or_nowhere_is_still_the_file(
    path: Path, change: Callable[[Path], None]
) -> None:
    disk = DiskAllocator(path)
    file = disk.file()
    change(path)
    disk.check()
    assert file.copyout() == CONTENT
    assert bytes(file.as_host_bytes()) == CONTENT
    copy = Buffer(device.get("cpu"), "uint8", (len(CONTENT),))
    copy.copy_from(file)
    assert copy.copyout() == CONTENT


def test_a_file_that_ends_while_it_is_copied_is_an_error_and_no_signal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def cutting(descriptor: int, targets: list[memoryview], at: int) -> int:
        n = preadv(descriptor, [targets[0][:1000]], at)
        cut(path)
        return n

    file = DiskAllocator(path).file()
    monkeypatch.setattr(os, "preadv", cutting)
    with pytest.raises(FileChanged, match="nbytes was 10240 and is 100"):
        file.copyout(bytearray(len(CONTENT)))


def test_descriptors_go_with_the_allocator(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    files = [DiskAllocator(path) for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) > before
    del files
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


# Lifetime


def test_the_file_is_unmapped_when_the_last_array_goes(path: Path) -> None:
    disk = DiskAllocator(path)
    array = disk.file().view(5, 400, "float32").as_array()
    view = memoryview(disk.file().as_host_bytes()[3:10])
    assert disk.stats.n_live == 2
    del disk
    assert is_mapped(path)
    assert array.view(np.uint8).tobytes() == CONTENT[5:405]
    del array
    assert is_mapped(path)
    assert bytes(view) == CONTENT[3:10]
    del view
    assert not is_mapped(path)


def test_opening_and_dropping_leaves_no_descriptor(path: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        DiskAllocator(path).file().view(0, 4).as_array()
    assert len(os.listdir("/proc/self/fd")) == before
