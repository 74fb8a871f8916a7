"""CachedKernel: a compiled kernel with what is needed to launch it again, and to read it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from arenite.dtype import DType
from arenite.errors import NotSupported
from arenite.ir import Dim, Origin, Var
from arenite.program.launch import Launch


@dataclass(frozen=True, slots=True)
class Program:
    """Compiled code that can be launched: a function in the code of its model."""

    entry_point: str
    offset: int
    image: bytes = field(default=b"", repr=False, compare=False)


class KernelArray(NamedTuple):
    """An array argument: what a kernel does with it, its dtype, and how many bytes it has."""

    role: str  # "in", "out", "inout"
    dtype: DType
    nbytes: Dim


@dataclass(frozen=True, slots=True)
class ModuleText:
    """What a compiler or driver is given, packed: kept for those who want to read it."""

    packed: bytes

    @classmethod
    def of(cls, text: str) -> ModuleText:
        # The next level takes more than twice the time, for a tenth of the bytes.
        return cls(zlib.compress(text.encode(), 4))

    @property
    def text(self) -> str:
        return zlib.decompress(self.packed).decode() if self.packed else ""


@dataclass(frozen=True, slots=True, repr=False)
class CachedKernel:
    """Prints as its loops. Launch sizes are symbolic and evaluated for each launch; offsets are
    launch arguments, so a kernel survives another plan.

    Called with buffers or arrays, in the order of `globals`, and values of its variables by name,
    it is launched by itself: `kernel(x, out, n=5)`.
    """

    launch: Launch
    program: Program
    device: str
    code: str  # the loops, in a C-like form
    outs: tuple[int, ...]
    ins: tuple[int, ...]  # all that is read: also results and scratch that are read back
    arrays: tuple[KernelArray, ...]  # what it is given, in the order of `globals`
    global_size: tuple[Dim, Dim, Dim]
    local_size: tuple[Dim, Dim, Dim] | None
    host_parallel_safe: bool  # whether launches of it may run side by side in one process
    module: ModuleText = field(default=ModuleText(b""), repr=False)
    reads_nbytes: Dim = 0
    writes_nbytes: Dim = 0
    arithmetic: Mapping[str, Dim] = field(default_factory=dict)  # operations, by what in
    border: str = ""
    origins: tuple[Origin, ...] = ()

    @property
    def entry_point(self) -> str:
        """What it is called."""
        return self.launch.name

    @property
    def with_origins(self) -> str:
        """Its name, and the lines it comes from, for errors."""
        lines = ", ".join(map(str, self.origins[:3]))
        return f"{self.entry_point}, which comes from {lines}" if lines else self.entry_point

    @property
    def globals(self) -> tuple[int, ...]:
        """Values in the order of the kernel's array arguments."""
        return tuple(map(int, self.launch.arrays))

    @property
    def var_names(self) -> tuple[str, ...]:
        """Positional: sizes behind the arrays."""
        return tuple(var.name for var in self.launch.sizes if isinstance(var, Var))

    def __call__(self, *buffers: Any, **sizes: int) -> None:
        """Launch it once, on its device, and wait for it; refuses what does not fit."""
        from arenite.program.backend import backend_of
        from arenite.program.kernel_call import checked_arguments

        given = checked_arguments(self, buffers, sizes)
        backend_of(self.device).launch(self, given, sizes)

    def __str__(self) -> str:
        return self.code

    def __repr__(self) -> str:
        """A line: what it is called, moves and computes, and where it comes from."""
        origin = f", {self.origins[0]}" if self.origins else ""
        return (
            f"<kernel {self.entry_point}: reads {self.reads_nbytes} bytes, writes "
            f"{self.writes_nbytes}, {self.operations} operations{origin}>"
        )

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.code)}</pre>"

    @property
    def operations(self) -> Dim:
        """Arithmetic of all kinds, for one launch."""
        return sum(self.arithmetic.values(), start=0)

    @property
    def source(self) -> str:
        """What the compiler of its device is given: LLVM IR, C or WGSL."""
        return self.module.text

    @property
    def llvm(self) -> str:
        """The LLVM IR of the module the kernel is in; NotSupported on devices that have none."""
        from arenite.program.backend import backend_of

        if not backend_of(self.device).uses_llvm:
            raise NotSupported(
                f"kernel {self.entry_point} of device {self.device!r} is not compiled by LLVM; "
                "`source` has what its compiler is given"
            )
        return self.source

    @property
    def asm(self) -> str:
        """What truly runs; made when asked for, by the compiler."""
        from arenite.program.backend import backend_of

        return backend_of(self.device).assembly(self)


class Kernels(tuple[CachedKernel, ...]):
    """All kernels of a program, which print as a table; `named_reads` are the arguments, weights
    and states that one reads."""

    named_reads: Callable[[CachedKernel], tuple[str, ...]]

    def __new__(
        cls,
        kernels: Iterable[CachedKernel],
        named_reads: Callable[[CachedKernel], tuple[str, ...]] = lambda kernel: (),
    ) -> Self:
        made = super().__new__(cls, kernels)
        made.named_reads = named_reads
        return made

    def _rows(self) -> list[list[str]]:
        from arenite.memory.tables import name_list

        head = ["kernel", "reads", "writes", "operations", "tiles", "ends here because"]
        return [[*head, "reads of", "origin"]] + [
            [
                kernel.entry_point,
                *map(str, (kernel.reads_nbytes, kernel.writes_nbytes, kernel.operations)),
                str(kernel.global_size[0]),
                kernel.border,
                name_list(self.named_reads(kernel)),
                ", ".join(map(str, kernel.origins[:1])),
            ]
            for kernel in self
        ]

    def __str__(self) -> str:
        from arenite.memory.tables import aligned

        return aligned(self._rows(), {1, 2, 3, 4})

    def __repr__(self) -> str:
        return f"<{len(self)} kernels: {', '.join(kernel.entry_point for kernel in self)}>"

    def _repr_html_(self) -> str:
        from arenite.memory.html import html_table

        rows = self._rows()
        for row, kernel in zip(rows[1:], self, strict=True):
            row[1:3] = map(_readable, (kernel.reads_nbytes, kernel.writes_nbytes))
            row[3:5] = (_grouped(kernel.operations), _grouped(kernel.global_size[0]))
        return html_table(rows, range(1, 5))


def _readable(nbytes: Dim) -> str:
    from arenite.device.allocator import readable_nbytes

    return readable_nbytes(nbytes) if isinstance(nbytes, int) else f"{nbytes} bytes"


def _grouped(number: Dim) -> str:
    return f"{number:,}" if isinstance(number, int) else str(number)
