"""An allocator for each test."""

from __future__ import annotations

import pytest

from arenite.device import CpuAllocator


@pytest.fixture
def cpu() -> CpuAllocator:
    return CpuAllocator()
