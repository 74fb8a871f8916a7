"""A Graph becomes files of C: a program, its header, its weights.

In: a graph and what it is to be called. Out: a folder with files, and a list of them. The files
need no Arenite; those of the same name are written anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.backends.c.c_types import identifier
from arenite.backends.c.header import header, weights_source
from arenite.backends.c.layout import Layout, Memory, SourceOptions
from arenite.backends.c.program import source
from arenite.errors import InvalidArgument
from arenite.ir.interface import GraphInterface
from arenite.memory.tables import aligned
from arenite.pipeline import compile_anew
from arenite.pipeline.program import refuse_cut
from arenite.program.options import Options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.ir.graph import Graph
    from arenite.memory import MemoryPlan
    from arenite.program.backend import OnCompiled

#: Weights of up to so many bytes are an array of C; larger ones a file that the caller reads.
ARRAY_NBYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ExportedFile:
    path: Path
    nbytes: int
    about: str


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written; prints as a table."""

    name: str
    files: tuple[ExportedFile, ...]
    plan: MemoryPlan
    weights_nbytes: int

    @property
    def arena_nbytes(self) -> int:
        """Bytes of the one block of memory that the program runs in."""
        return self.plan.peak_nbytes

    def __str__(self) -> str:
        rows = [[file.path.name, f"{file.nbytes:,}", file.about] for file in self.files]
        return aligned([["file", "bytes", "what it is"], *rows], {1})


def export_graph(
    graph: Graph,
    folder: str | os.PathLike[str],
    *,
    name: str = "program",
    memory: Memory = "static",
    openmp: bool = False,
    freestanding: bool = False,
    weights: str = "auto",
    on_progress: OnCompiled | None = None,
) -> Exported:
    """Write the program of a graph; `weights` are to be an "array", a "file", or what suits."""
    if memory not in ("static", "caller"):
        raise InvalidArgument(f"memory is 'static' or 'caller', not {memory!r}")
    if weights not in ("auto", "array", "file"):
        raise InvalidArgument(f"weights are 'auto', 'array' or 'file', not {weights!r}")
    refuse_cut(graph, "exported: C has one plan, made before anything runs")
    name = identifier(name)
    compiled = compile_anew(graph, Options(device="c"), on_progress)
    interface = GraphInterface.of(graph)
    options = SourceOptions(name, memory, "file", openmp, freestanding)
    layout = Layout(compiled, interface, options)
    if weights == "array" or (weights == "auto" and layout.weights_nbytes <= ARRAY_NBYTES):
        options = SourceOptions(name, memory, "array", openmp, freestanding)
        layout = Layout(compiled, interface, options)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    files = [
        _written(target / f"{name}.c", [source(layout)], "the program"),
        _written(target / f"{name}.h", [header(layout)], "what a caller includes"),
    ]
    if layout.offsets and options.weights == "array":
        raw = b"".join(_pieces(layout))
        path = target / f"{name}_weights.c"
        files.append(_written(path, weights_source(layout, raw), "its weights, as an array"))
    elif layout.offsets:
        path = target / f"{name}.weights"
        nbytes = 0
        with path.open("wb") as file:
            for piece in _pieces(layout):
                nbytes += file.write(piece)
        about = f"its weights, to be read to a multiple of {layout.macro}_ALIGNMENT"
        files.append(ExportedFile(path, nbytes, about))
    return Exported(name, tuple(files), compiled.plan, layout.weights_nbytes)


def _written(path: Path, pieces: Any, about: str) -> ExportedFile:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for piece in pieces:
            file.write(piece)
    return ExportedFile(path, path.stat().st_size, about)


def _pieces(layout: Layout) -> Iterator[bytes]:
    """The weights, each at its offset."""
    at = 0
    for number, offset in layout.offsets.items():
        raw = _constant(layout, number).tobytes()
        yield b"\0" * (offset - at)
        yield raw
        at = offset + len(raw)
    yield b"\0" * (layout.weights_nbytes - at)


def _constant(layout: Layout, number: int) -> NDArray[Any]:
    origin = layout.compiled.values[number].source
    if origin < 0:
        return layout.compiled.constants[-1 - origin]
    return np.asarray(layout.interface.constants[origin].held())
