"""Built: what is made of a kernel, and the memory it needs beside its values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.values import index_expr
from arenite.dtype import DType
from arenite.ir import Dim, nbytes_of, variables


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory that a kernel writes and reads again while it runs, and nobody else ever sees."""

    dtype: DType
    count: Dim  # elements

    @property
    def nbytes(self) -> Dim:
        return nbytes_of((self.count,), self.dtype)


Scratches: TypeAlias = tuple[Scratch, ...]


@dataclass(frozen=True, slots=True)
class Built:
    """Loops to lower, and how many tiles they are cut into.

    The arrays of the loops are the kernel's inputs, its outputs and `scratch`, in this order.
    `choices` name the ways in which it could be cut, the usual one first; `numbers` are those that
    its loops are given as sizes, by name.
    """

    loops: ir.LoopKernel
    tiles: Dim
    scratch: Scratches = ()
    choices: tuple[str, ...] = ()
    numbers: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        arrays: Iterable[ir.ArrayArg],
        dims: Iterable[Dim],
        tiles: Dim,
        body: ir.Block,
        scratch: Scratches = (),
    ) -> Built:
        """`body` for each `tile`, over arrays, then scratch, and the variables of some sizes."""
        own = [ir.ArrayArg(f"scratch{k}", s.dtype, "inout") for k, s in enumerate(scratch)]
        sizes = sorted({var.symbol for dim in dims for var in variables(dim)})
        loops = ir.LoopKernel(name, (*arrays, *own), tuple(sizes), index_expr(tiles), "tile", body)
        return cls(loops, tiles, scratch)
