"""One set of compiled kernels for all tests here."""

from __future__ import annotations

from pathlib import Path

import pytest

from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.compiling.pool import compile_modules
from arenite.backends.cpu.target import X86_64
from tests.runtime.kernels import kernel_module


@pytest.fixture(scope="session")
def kernels(cache_folder: Path) -> dict[str, int]:
    """Addresses of the kernels of `kernel_module`, by name."""
    image = link_objects(compile_modules([kernel_module()], X86_64))
    code = load_code(image.image, permanent=True)
    return {name: code.address(offset) for name, offset in image.entries.items()}
