"""codegen/kernels: what a fused Kernel does, as loops."""

from arenite.codegen.kernels.built import Built, Scratch
from arenite.codegen.kernels.choose import build

__all__ = ["Built", "Scratch", "build"]
