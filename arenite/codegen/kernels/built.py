"""Built: what is made of a kernel, and the memory it needs beside its values."""

from __future__ import annotations

from dataclasses import dataclass

from arenite.codegen import loop_ir as ir
from arenite.dtype import DType
from arenite.ir.dim import Dim
from arenite.ir.node import nbytes_of


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory that a kernel writes and reads again while it runs, and nobody else ever sees."""

    dtype: DType
    count: Dim  # elements

    @property
    def nbytes(self) -> Dim:
        return nbytes_of((self.count,), self.dtype)


@dataclass(frozen=True, slots=True)
class Built:
    """Loops to lower, and how many tiles they are cut into.

    The arrays of the loops are the kernel's inputs, its outputs and `scratch`, in this order.
    `choices` name the ways in which it could be cut, the usual one first.
    """

    loops: ir.LoopKernel
    tiles: Dim
    scratch: tuple[Scratch, ...] = ()
    choices: tuple[str, ...] = ()
