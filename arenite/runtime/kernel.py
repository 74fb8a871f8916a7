"""CachedKernel: a compiled kernel with what is needed to launch it again, and to read it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from arenite.ir.dim import Dim
from arenite.ir.node import Origin


@dataclass(frozen=True, slots=True)
class Program:
    """Compiled code that can be launched: where it begins in the code of its model."""

    entry_point: str
    offset: int


@dataclass(frozen=True, slots=True)
class ModuleText:
    """The LLVM IR of a module, packed: kept for those who want to read it."""

    packed: bytes

    @classmethod
    def of(cls, text: str) -> ModuleText:
        return cls(zlib.compress(text.encode(), 6))

    @property
    def text(self) -> str:
        return zlib.decompress(self.packed).decode() if self.packed else ""


@dataclass(frozen=True, slots=True)
class CachedKernel:
    """Launch sizes are symbolic and evaluated for each launch; offsets are launch arguments."""

    program: Program
    device: str
    code: str  # the loops, in a C-like form
    entry_point: str
    var_names: tuple[str, ...]  # positional: sizes behind the arrays in the window
    globals: tuple[int, ...]  # values in the order of the kernel's array arguments
    outs: tuple[int, ...]
    ins: tuple[int, ...]
    host_parallel_safe: bool
    global_size: tuple[Dim, Dim, Dim]
    local_size: tuple[Dim, Dim, Dim] | None
    module: ModuleText = field(default=ModuleText(b""), repr=False)
    reads_nbytes: Dim = 0
    writes_nbytes: Dim = 0
    operations: Dim = 0
    border: str = ""
    origins: tuple[Origin, ...] = ()

    @property
    def llvm(self) -> str:
        """The LLVM IR of the module the kernel is in."""
        return self.module.text

    @property
    def asm(self) -> str:
        """What truly runs; made when asked for, by the compiler."""
        from arenite.codegen import llvm, target

        return llvm.assembly(self.llvm, target.host())
