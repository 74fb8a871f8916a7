"""PyTorch as the judge of DLPack: both ways, by address, dtype, flags and lifetime.

Not collected by pytest. Run it by hand where torch is installed:
    python tests/device/judge_torch_dlpack.py
(it also needs pytest). It prints one line a check and ends with exit code 1 where one fails.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from arenite import device
from arenite.device import Buffer, CpuAllocator
from arenite.errors import InvalidArgument

FLOATS = ["float16", "float32", "float64", "bfloat16"]
FLOATS += [f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")]
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NAMES = ["bool", *INTEGERS, *FLOATS, "complex64", "complex128"]

VALUES = [0.0, 1.0, 1.0, 0.0, 1.0, 2.0, 4.0, 8.0]  # exact in every dtype but bool and e8m0


def torch_dtype(name: str) -> Any:
    return getattr(torch, name)


def out_to_torch(name: str) -> None:
    """Torch sees the same bytes at the same address, as the same dtype, and can write them."""
    cpu = CpuAllocator()
    buffer = Buffer(cpu, name, (2, 4))
    expected = torch.tensor(VALUES).to(torch_dtype(name)).reshape(2, 4)
    buffer.copyin(expected.view(torch.uint8).numpy())
    tensor = torch.from_dlpack(buffer)
    assert tensor.dtype == torch_dtype(name), tensor.dtype
    assert tensor.data_ptr() == buffer.raw_ptr
    assert tuple(tensor.shape) == (2, 4)
    assert torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8))
    tensor.view(torch.uint8).fill_(1)
    assert buffer.copyout() == b"\1" * buffer.nbytes
    del buffer
    assert cpu.stats.n_live == 1
    del tensor
    assert cpu.stats.live_nbytes == 0


def in_from_torch(name: str) -> None:
    """The same the other way; torch's memory is let go when the last view has gone."""
    memory = torch.tensor(VALUES).to(torch_dtype(name)).view(torch.uint8).numpy().copy()
    before = sys.getrefcount(memory)
    tensor = torch.from_numpy(memory).view(torch_dtype(name)).reshape(2, 4)
    buffer = Buffer.from_dlpack(tensor)
    assert buffer.dtype.name == name
    assert buffer.raw_ptr == tensor.data_ptr() == memory.ctypes.data
    assert buffer.shape == (2, 4)
    assert buffer.copyout() == memory.tobytes()
    buffer.as_host_bytes_mut()[0] = 1
    assert tensor.view(torch.uint8).flatten()[0] == 1
    view = buffer.view(0, 1).as_array()
    del buffer, tensor
    assert sys.getrefcount(memory) > before
    assert view[0] == 1
    del view
    assert sys.getrefcount(memory) == before


def values_agree(name: str) -> None:
    """Torch and ml_dtypes read the same numbers from the same bytes."""
    tensor = torch.tensor([1.0, 2.0, 0.5, 4.0]).to(torch_dtype(name))
    array = Buffer.from_dlpack(tensor).as_array()
    assert array.astype(np.float32).tolist() == tensor.to(torch.float32).tolist()


def offset_views() -> None:
    """A view in the middle of a storage, aligned to its elements but to nothing more."""
    cpu = CpuAllocator()
    buffer = Buffer.allocate(cpu, "uint8", (64,))
    view = buffer.view(12, 16, "bfloat16", (4, 2))
    tensor = torch.from_dlpack(view)
    assert tensor.data_ptr() == buffer.raw_ptr + 12
    tensor.fill_(1.5)
    assert view.as_array().astype(np.float32).tolist() == [[1.5, 1.5]] * 4
    assert buffer.view(0, 12).copyout() + buffer.view(28, 36).copyout() == bytes(48)
    part = torch.arange(10)[3:7]
    assert Buffer.from_dlpack(part).copyout() == np.arange(3, 7).tobytes()


def read_only_memory() -> None:
    """Torch has no read-only tensors: it takes a versioned capsule all the same, without copying,
    and nothing may write to it. A file's bytes are read in place."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(np.arange(100, dtype=np.float32).tobytes())
        file.flush()
        disk = device.get(f"disk:{file.name}")
        buffer = Buffer.allocate(disk, "float32", (100,))
        tensor = torch.from_dlpack(buffer)
        assert tensor.data_ptr() == buffer.raw_ptr
        assert float(tensor.sum()) == 4950
        del buffer
        assert disk.stats.n_live == 1
        del tensor
        assert disk.stats.n_live == 0


def strided_and_copied() -> None:
    with pytest.raises(InvalidArgument, match="copy it first"):
        Buffer.from_dlpack(torch.zeros(4, 4).t())
    buffer = Buffer.from_array(np.ones(4, np.float32))
    copied = torch.from_dlpack(buffer, copy=True)
    assert copied.data_ptr() != buffer.raw_ptr
    assert float(copied.sum()) == 4


def legacy_capsules() -> None:
    """Both sides also speak the protocol from before DLPack 1.0."""
    cpu = CpuAllocator()
    buffer = Buffer.allocate(cpu, "float8_e5m2", (4,))
    tensor = torch.utils.dlpack.from_dlpack(buffer.__dlpack__())
    assert (tensor.dtype, tensor.data_ptr()) == (torch.float8_e5m2, buffer.raw_ptr)
    del buffer, tensor
    assert cpu.stats.n_live == 0


def no_leaks() -> None:
    cpu = CpuAllocator()
    for n in range(10_000):
        buffer = Buffer.allocate(cpu, "bfloat16", (n % 100,))
        Buffer.from_dlpack(torch.from_dlpack(buffer))
    del buffer
    gc.collect()
    assert cpu.stats.n_live == 0


def main() -> int:
    checks: list[tuple[str, Callable[[], None]]] = []
    for name in NAMES:
        checks.append((f"{name} out to torch", partial(out_to_torch, name)))
        checks.append((f"{name} in from torch", partial(in_from_torch, name)))
    for name in FLOATS:
        checks.append((f"{name} values agree", partial(values_agree, name)))
    checks += [
        ("views at an offset", offset_views),
        ("read-only memory", read_only_memory),
        ("strided and copied tensors", strided_and_copied),
        ("capsules from before 1.0", legacy_capsules),
        ("10,000 tensors leave nothing", no_leaks),
    ]
    n_failed = 0
    for title, check in checks:
        try:
            check()
        except Exception as error:
            n_failed += 1
            print(f"FAILED  {title}: {error!r}")
        else:
            print(f"ok      {title}")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
