"""One set of compiled kernels for all tests here."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.compiling.pool import compile_modules
from arenite.backends.cpu.driver import native
from arenite.backends.cpu.driver.layout import Team
from arenite.backends.cpu.driver.native import BoundTable
from arenite.backends.cpu.target import X86_64
from tests.runtime.kernels import address, kernel_module, n_away
from tests.runtime.table_builder import TableBuilder


@pytest.fixture(scope="session")
def kernels(cache_folder: Path) -> dict[str, int]:
    """Addresses of the kernels of `kernel_module`, by name."""
    image = link_objects(compile_modules([kernel_module()], X86_64))
    code = load_code(image.image, permanent=True)
    return {name: code.address(offset) for name, offset in image.entries.items()}


@pytest.fixture
def all_back(kernels: dict[str, int]) -> Iterator[Callable[[], None]]:
    """Waits until no worker rests or tries its CPU, whoever has that: for kernels that meet."""
    tried = ctypes.c_int64.from_address(native.team().address + Team.TRY_CLOCKS)
    before, tried.value = tried.value, 0
    x = np.zeros(64, np.int64)
    build = TableBuilder()
    with build.block(parallel=True):
        build.launch(kernels["increment"], [address(x)], build.constant(1), shared=True)
    model = BoundTable(*build.finish())

    def wait() -> None:
        deadline = time.monotonic() + 60
        while n_away():
            model.run(threads=native.team().n_threads)
            assert time.monotonic() < deadline

    yield wait
    tried.value = before
