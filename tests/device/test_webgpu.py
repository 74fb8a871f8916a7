"""The WebGPU device: memory, copies of any bytes, running out, being lost; names and their reasons.

Skipped where wgpu or an adapter is missing; what is said there is tried all the same.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from arenite import device
from arenite.device import Buffer, BufferOptions, CpuAllocator
from arenite.device import webgpu as module
from arenite.device.webgpu import WebGpuAllocator
from arenite.device.webgpu_adapters import adapters_for
from arenite.dtype import BY_NAME, uint8
from arenite.errors import (
    DeviceUnavailable,
    InvalidArgument,
    InvalidView,
    NotCpuAccessible,
    OutOfMemory,
    RunFailed,
)
from tests.backends.webgpu.runner import webgpu
from tests.device.allocators import filled

PLAIN = BufferOptions()


def in_process(body: str) -> str:
    """What a process of its own prints that has opened the device as `gpu`."""
    webgpu()
    head = (
        "from arenite import device\n"
        "from arenite.device import BufferOptions\n"
        "from arenite.errors import *\n"
        "gpu, PLAIN = device.get('webgpu'), BufferOptions()\n"
    )
    code = head + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def gpu() -> WebGpuAllocator:
    return webgpu()


@pytest.fixture
def another(gpu: WebGpuAllocator) -> Iterator[WebGpuAllocator]:
    """A device of its own on the same adapter, to be broken."""
    yield WebGpuAllocator("webgpu", adapters_for("webgpu")[0])
    gc.collect()


def test_memory_is_zero_at_first_and_holds_what_is_copied_in(gpu: WebGpuAllocator) -> None:
    raw = gpu.allocate(13, BufferOptions(zeroed=True))
    assert gpu.read(raw, 0, 13) == bytes(13)
    assert not raw.cpu_accessible
    assert raw.address is None
    gpu.copyin(raw, 0, memoryview(b"thirteen byte"))
    assert gpu.read(raw, 0, 13) == b"thirteen byte"
    gpu.free(raw)


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 1), (1, 2), (3, 2), (4, 4), (5, 8), (12, 1)])
def test_copies_of_any_bytes_leave_their_neighbours(
    gpu: WebGpuAllocator, offset: int, nbytes: int
) -> None:
    raw = gpu.allocate(13, PLAIN)
    wanted = bytearray(range(13))
    gpu.copyin(raw, 0, memoryview(bytes(wanted)))
    gpu.copyin(raw, offset, memoryview(b"\xff" * nbytes))
    wanted[offset : offset + nbytes] = b"\xff" * nbytes
    assert gpu.read(raw, 0, 13) == bytes(wanted)
    assert gpu.read(raw, offset, nbytes) == b"\xff" * nbytes


def test_large_copies_go_in_parts(gpu: WebGpuAllocator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STAGING_NBYTES", 64)
    data = np.random.default_rng(0).integers(0, 256, 1003, np.uint8).tobytes()
    buffer = filled(gpu, b"." + data)
    buffer.view(1, 1003).copyin(data)
    assert buffer.copyout() == b"." + data


def test_copies_stay_within_the_memory(gpu: WebGpuAllocator) -> None:
    raw = gpu.allocate(8, PLAIN)
    for offset, nbytes in [(1, 8), (-1, 2), (9, 0)]:
        with pytest.raises(InvalidView, match=f"{offset}..{offset + nbytes} are not within the 8"):
            gpu.copyin(raw, offset, memoryview(bytes(nbytes)))
        with pytest.raises(InvalidView):
            gpu.copyout(raw, offset, memoryview(bytearray(nbytes)))
    with pytest.raises(NotCpuAccessible, match="no memory of webgpu"):
        gpu.copyin(CpuAllocator().allocate(8, PLAIN), 0, memoryview(b"12"))


def test_buffers_copy_to_and_from_every_device(gpu: WebGpuAllocator) -> None:
    there, back = filled(gpu, b"0123456789"), filled(CpuAllocator(), bytes(6))
    back.copy_from(there.view(3, 6))
    assert back.copyout() == b"345678"
    there.view(0, 8).copy_from(there.view(2, 8))  # one storage, bytes that overlap
    assert there.copyout() == b"2345678989"
    with pytest.raises(NotCpuAccessible):
        there.as_array()


@pytest.mark.parametrize(("target", "source", "nbytes"), [(0, 0, 64), (8, 4, 32), (4, 60, 4)])
def test_bytes_of_one_device_are_copied_there(
    gpu: WebGpuAllocator,
    target: int,
    source: int,
    nbytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytes(range(64))
    one, other = filled(gpu, data), filled(gpu, bytes(64))

    def refused(*_: Any) -> None:
        raise AssertionError("the host is not needed")

    with monkeypatch.context() as patched:
        patched.setattr(gpu, "copyout", refused)
        other.view(target, nbytes).copy_from(one.view(source, nbytes))
    wanted = bytearray(64)
    wanted[target : target + nbytes] = data[source : source + nbytes]
    assert other.copyout() == bytes(wanted)


def test_parts_of_words_and_one_buffer_onto_itself_are_copied_all_the_same(
    gpu: WebGpuAllocator,
) -> None:
    one, other = filled(gpu, bytes(range(64))), filled(gpu, bytes(64))
    other.view(1, 5).copy_from(one.view(3, 5))
    assert other.copyout() == bytes([0, 3, 4, 5, 6, 7]) + bytes(58)
    one.view(8, 16).copy_from(one.view(0, 16))
    assert one.copyout()[:24] == bytes([*range(8), *range(16)])


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_dtype_can_be_stored(gpu: WebGpuAllocator, name: str) -> None:
    dtype = BY_NAME[name]
    shape = (3, dtype.block_length * 8)
    data = np.random.default_rng(1).integers(0, 256, dtype.nbytes(shape), np.uint8)
    buffer = Buffer(gpu, dtype, shape)
    buffer.copyin(data)
    assert buffer.copyout() == data.tobytes()


def test_freeing_twice_counts_once(gpu: WebGpuAllocator) -> None:
    before = gpu.stats
    first, second = gpu.allocate(8, PLAIN), gpu.allocate(8, PLAIN)
    gpu.free(first)
    gpu.free(first)
    gpu.free(CpuAllocator().allocate(8, PLAIN))  # not ours
    assert gpu.stats.n_live == before.n_live + 1
    gpu.free(second)
    assert gpu.stats.n_live == before.n_live
    assert gpu.trim() == 0


def test_statistics_count_what_is_live(gpu: WebGpuAllocator) -> None:
    gc.collect()
    before = gpu.stats
    buffer = Buffer.allocate(gpu, uint8, (10,))
    assert gpu.stats.n_live == before.n_live + 1
    assert gpu.stats.live_nbytes == before.live_nbytes + 12  # whole words
    del buffer
    assert gpu.stats.n_live == before.n_live


def test_nonsense_requests_are_invalid_arguments(gpu: WebGpuAllocator) -> None:
    with pytest.raises(InvalidArgument, match="-5 bytes"):
        gpu.allocate(-5, PLAIN)
    with pytest.raises(InvalidArgument, match="integer"):
        gpu.allocate(1.5, PLAIN)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="disk"):
        gpu.allocate(1, BufferOptions(file_offset=1))


@pytest.mark.parametrize("nbytes", [2**40, 2**63, 2**70])
def test_what_is_too_large_is_out_of_memory_and_the_device_goes_on(
    gpu: WebGpuAllocator, nbytes: int
) -> None:
    with pytest.raises(OutOfMemory, match=f"request of {nbytes}.*largest buffer"):
        gpu.allocate(nbytes, PLAIN)
    assert filled(gpu, b"on").copyout() == b"on"


def test_memory_that_the_driver_does_not_give_is_out_of_memory(
    another: WebGpuAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wgpu

    def fails(**_: Any) -> None:
        raise wgpu.GPUOutOfMemoryError("not enough memory left")

    monkeypatch.setattr(another.device, "create_buffer", fails)
    with pytest.raises(OutOfMemory, match=r"did not give 100 bytes.*not enough memory left"):
        another.allocate(100, PLAIN)


def test_a_byte_more_than_the_largest_buffer_is_out_of_memory(gpu: WebGpuAllocator) -> None:
    before = gpu.stats
    nbytes = gpu.limits.buffer_nbytes + 1
    with pytest.raises(OutOfMemory, match=f"request of {nbytes}.*largest buffer has {nbytes - 1}"):
        gpu.allocate(nbytes, PLAIN)
    assert (gpu.stats.n_live, gpu.stats.live_nbytes) == (before.n_live, before.live_nbytes)
    assert filled(gpu, b"on").copyout() == b"on"


def test_memory_that_truly_runs_out_is_out_of_memory_and_the_device_goes_on(
    gpu: WebGpuAllocator,
) -> None:
    """In a process that may have little more than it has when the device is open."""
    if not gpu.is_cpu:
        pytest.skip(
            f"the memory of {gpu.adapter_name} is not the process's, which alone can be limited; "
            "and to fill that of a GPU is to take it from all others"
        )
    done = in_process(
        """
        import resource
        raw = gpu.allocate(2**20, PLAIN)
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + 2**28
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        try:
            gpu.allocate(2**30, PLAIN)
        except OutOfMemory as error:
            print(error)
        gpu.copyin(raw, 0, memoryview(b"goes on"))
        print(gpu.read(raw, 0, 7), gpu.stats.n_live)
        """
    )
    assert "did not give 1073741824 bytes" in done
    assert "b'goes on' 1" in done


def test_a_child_of_a_fork_is_told_and_its_parent_goes_on() -> None:
    done = in_process(
        """
        import os
        raw = gpu.allocate(8, PLAIN)
        child = os.fork()
        if not child:
            try:
                gpu.read(raw, 0, 8)
            except DeviceUnavailable as error:
                print(error, flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        gpu.copyin(raw, 0, memoryview(b"and here"))
        print(gpu.read(raw, 0, 8))
        """
    )
    assert "opened before this process was forked" in done
    assert "b'and here'" in done


def test_threads_copy_at_the_same_time(gpu: WebGpuAllocator) -> None:
    failures: list[object] = []

    def work(number: int) -> None:
        for k in range(8):
            data = bytes([number * 8 + k]) * (1000 + number)
            if filled(gpu, data).copyout() != data:
                failures.append((number, k))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_device_that_is_lost_says_so_and_another_is_opened(gpu: WebGpuAllocator) -> None:
    opened = dict(module._opened)
    try:
        module._opened.clear()
        first = device.get("webgpu")
        assert isinstance(first, WebGpuAllocator)
        raw = first.allocate(8, PLAIN)
        first.device.destroy()
        with pytest.raises(DeviceUnavailable, match=r"was lost.*opens it anew"):
            first.copyin(raw, 0, memoryview(b"12345678"))
        with pytest.raises(DeviceUnavailable, match="was lost"):
            first.allocate(8, PLAIN)
        with pytest.raises(DeviceUnavailable, match="was lost"):
            first.synchronize()
        second = device.get("webgpu")
        assert second is not first
        assert filled(second, b"new").copyout() == b"new"
    finally:
        module._opened.clear()
        module._opened.update(opened)


def test_what_wgpu_refuses_is_one_error_that_says_what_was_done(gpu: WebGpuAllocator) -> None:
    refused = pytest.raises(RunFailed, match=r"could not try it: .*greater than the maximum")
    with refused, gpu.failures("try it"):
        gpu.device.create_buffer(size=2**50, usage=8)
    gpu.synchronize()


def test_a_forked_child_is_told_that_drivers_do_not_survive_it(gpu: WebGpuAllocator) -> None:
    gpu._process, process = -1, gpu._process
    try:
        with pytest.raises(DeviceUnavailable, match="forked"):
            gpu.allocate(1, PLAIN)
    finally:
        gpu._process = process


def test_devices_are_found_by_number_and_by_name(gpu: WebGpuAllocator) -> None:
    assert device.get("webgpu") is device.get("WebGPU:0") is gpu
    part = gpu.adapter_name[:5]
    assert device.get(f"webgpu:{part}") is device.get("webgpu") is gpu  # one adapter, one device
    for name in ("webgpu:99", "webgpu:" + "9" * 5000, "webgpu:no such thing"):
        with pytest.raises(DeviceUnavailable, match=f"{name}.*webgpu:0"):
            device.get(name)


def test_without_wgpu_it_is_said_what_to_install() -> None:
    code = (
        "import sys; sys.modules['wgpu'] = None\n"
        "from arenite import device\n"
        "try: device.get('webgpu')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "DeviceUnavailable 'webgpu' needs wgpu" in done.stdout
    assert "arenite[webgpu]" in done.stdout


def test_without_an_adapter_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    wgpu = pytest.importorskip("wgpu", reason="pip install 'arenite[webgpu]'", exc_type=ImportError)
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", list)
    with pytest.raises(DeviceUnavailable, match=r"no adapter.*mesa-vulkan-drivers"):
        adapters_for("webgpu")


def test_importing_the_device_room_does_not_import_wgpu() -> None:
    code = "import sys, arenite.device, arenite.device.webgpu; print('wgpu' in sys.modules)"
    environment = {**os.environ}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "False"


def test_opening_a_device_says_nothing_and_leaves_the_environment() -> None:
    code = (
        "import os, subprocess, sys\n"
        "from arenite import device\n"
        "from arenite.errors import DeviceUnavailable\n"
        "before = dict(os.environ)\n"
        "try: device.get('webgpu')\n"
        "except DeviceUnavailable: pass\n"
        "assert dict(os.environ) == before\n"
        "sys.exit(subprocess.run(['printenv', 'XDG_RUNTIME_DIR']).returncode)"
    )
    bare = {name: text for name, text in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_a_type_is_parsed_without_naming_all_others(gpu: WebGpuAllocator) -> None:
    """A few lines instead of a thousand, and the same type, where nobody has made tables ahead."""
    code = """
import pycparser
from arenite import device
device.get("webgpu")
from wgpu.backends.wgpu_native import ffi
lines, parse = [], pycparser.CParser.parse
def counted(self, text, *others, **options):
    lines.append(len(text.splitlines()))
    return parse(self, text, *others, **options)
pycparser.CParser.parse = counted
n_declared = len(ffi._parser._declarations)
found = ffi.typeof("WGPURenderPassDescriptor *[7]")
assert len(lines) == 1 and lines[0] < 30, lines
assert found.item.item is ffi.typeof("WGPURenderPassDescriptor")
assert len(ffi._parser._declarations) == n_declared
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
