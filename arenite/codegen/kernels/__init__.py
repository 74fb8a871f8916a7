"""codegen/kernels: what a fused Kernel does, as loops."""

from arenite.codegen.kernels.build import Built
from arenite.codegen.kernels.contraction import build

__all__ = ["Built", "build"]
