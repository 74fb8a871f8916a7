"""An allocator for each test."""

from __future__ import annotations

import pytest

from arenite.device import Allocator, CpuAllocator
from tests.backends.webgpu.runner import webgpu
from tests.device.allocators import HiddenAllocator


@pytest.fixture
def cpu() -> CpuAllocator:
    return CpuAllocator()


@pytest.fixture(params=["cpu", "webgpu"])
def memory(request: pytest.FixtureRequest) -> Allocator:
    """Every device: what is the same for all of them."""
    return CpuAllocator() if request.param == "cpu" else webgpu()


@pytest.fixture(params=["hidden", "webgpu"])
def hidden(request: pytest.FixtureRequest) -> Allocator:
    """A device whose memory the host cannot reach: one that is made up, and WebGPU's."""
    return HiddenAllocator() if request.param == "hidden" else webgpu()
