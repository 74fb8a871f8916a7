"""What several files of tests here want to be so."""

from __future__ import annotations

import pytest

from arenite.backends.cpu.gemm import plain as plain_product
from arenite.codegen.kernels import concat, loops, sort, special
from arenite.program import launch


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even small kernels are cut into tiles and dealt out. Programs made so are never cached."""
    monkeypatch.setattr(launch, "SHARED_FROM_NS", 0)
    monkeypatch.setattr(loops, "TILE_POINTS", 16)
    monkeypatch.setattr(loops, "CHUNK", 64)
    monkeypatch.setattr(concat, "TILE_POINTS", 64)
    monkeypatch.setattr(plain_product, "TILE_POINTS", 1024)
    for module in (special, sort):
        monkeypatch.setattr(module, "TILE_POINTS", 16)
