"""What the namespace can do, for libraries that ask: the array API's inspection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arenite.dtype import DType
from arenite.tensor.base import need_cpu
from arenite.tensor.data_types import complex128, float64, int64, kinds_of


class NamespaceInfo:
    """Capabilities, devices and dtypes of the namespace."""

    def capabilities(self) -> dict[str, Any]:
        """What a program may rely on; a mask may index, and shapes may depend on data."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """Where tensors are made."""
        return "cpu"

    def devices(self) -> list[str]:
        """Where tensors may be; programs are compiled for other devices, too."""
        return ["cpu"]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The dtypes of what is made without one, by kind."""
        need_cpu(device)
        return {
            "real floating": float64,
            "complex floating": complex128,
            "integral": int64,
            "indexing": int64,
        }

    def dtypes(
        self, *, device: str | None = None, kind: str | Sequence[str] | None = None
    ) -> dict[str, DType]:
        """The dtypes of the standard by name: of a kind, of several, or all."""
        need_cpu(device)
        return kinds_of(kind)
