"""`arenite.export`: a compiled function or a model becomes files of C that need no Arenite."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arenite.errors import InvalidArgument, NotSupported
from arenite.loading import kind_of, obtained
from arenite.model import Model
from arenite.pipeline.export import Exported, ExportedFile, export_graph

if TYPE_CHECKING:
    from arenite.backends.c.layout import Memory
    from arenite.ir.graph import Graph
    from arenite.model.sizes import GivenSize
    from arenite.program.backend import OnCompiled

#: Tokens that an exported language model reads at once.
BLOCK = 32


def export(
    program: Any,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    memory: Memory = "static",
    openmp: bool = False,
    freestanding: bool = False,
    weights: str = "auto",
    context: int | None = None,
    sizes: Mapping[str, GivenSize] | None = None,
    values: Mapping[str, Any] | None = None,
    on_progress: OnCompiled | None = None,
) -> Exported:
    """Write a program as C11 into a folder: NAME.c, NAME.h and its weights.

    `program` is what `arenite.compile` or `arenite.load` gave, or the name or path of a model. Of a
    language model `context` is how many tokens a text may have, and a small main that writes the
    likeliest tokens comes with it. Of an ONNX model `sizes` are those of its inputs by name, as
    `Model.plan` takes them: numbers, or ranges such as "1..8", which every run chooses from; what
    is not given is 1; `values` are inputs that decide structure, which the C has not. The C
    allocates nothing: its arena is one static array, or with memory="caller" memory of the caller,
    NAME_ARENA_BYTES of it. Nothing but the C library's maths is needed, and with `freestanding` not
    even that. `openmp` shares the tiles of a kernel among threads. `weights` are an "array" of C, a
    "file" that the caller reads, or what suits their size. NotCompiled, with the reason, for
    programs in segments and such as call Python.

        arenite.export(arenite.compile(f, arenite.spec((4, 4))), "out", name="f")
    """
    options: dict[str, Any] = {
        "memory": memory,
        "openmp": openmp,
        "freestanding": freestanding,
        "weights": weights,
        "on_progress": on_progress,
    }
    if isinstance(program, str | os.PathLike):
        path = program if os.path.exists(program) else obtained(program, None)
        if kind_of(path) == "language":
            _refuse(sizes=sizes, values=values)
            return _export_language_file(path, folder, name, context, options)
        program = Model.open(path)
    if isinstance(program, Model):
        _refuse(context=context)
        called = name or re.sub(r"\.onnx$", "", Path(program.path).name)
        graph = program.graph(values=values, **dict(sizes or {}))
        return export_graph(graph, folder, name=called, **options)
    _refuse(sizes=sizes, values=values)
    settings = getattr(program, "settings", None)
    if settings is not None:
        graph, name = settings.graph, name or program.name
        made = export_graph(graph, folder, name=name or "model", **options)
        return made if settings.file.is_embedding else _with_main(made, Path(folder), memory)
    _refuse(context=context)
    return export_graph(_graph_of(program), folder, name=name or "program", **options)


def _refuse(**given: Any) -> None:
    """InvalidArgument for an option that this kind of program has not."""
    for option, value in given.items():
        if value:
            kind = (
                "language models"
                if option == "context"
                else "ONNX models that are not compiled yet"
            )
            raise InvalidArgument(f"{option} is for {kind}; this program is none")


def _graph_of(program: Any) -> Graph:
    executable = getattr(program, "executable", program)
    graph = getattr(executable, "graph", None)
    if graph is None:
        raise NotSupported(
            f"{program!r} can't be exported; give what arenite.compile or arenite.load returned, "
            "or the name or path of a model"
        )
    found: Graph = graph
    return found


def _export_language_file(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    name: str | None,
    context: int | None,
    options: dict[str, Any],
) -> Exported:
    from arenite.frontends.language import LanguageFile
    from arenite.generate.model import Settings

    file = LanguageFile.open(path)
    settings = Settings(file, context=context, block=min(BLOCK, context or BLOCK))
    called = name or re.sub(r"\.(gguf|safetensors)$", "", Path(path).name)
    made = export_graph(settings.graph, folder, name=called.lower(), **options)
    return made if file.is_embedding else _with_main(made, Path(folder), options["memory"])


def _with_main(made: Exported, folder: Path, memory: Memory) -> Exported:
    """With main.c beside it, which writes the likeliest tokens behind those it is given."""
    from arenite.backends.c.example import greedy_main

    is_array = any(file.path.name.endswith("_weights.c") for file in made.files)
    path = folder / "main.c"
    path.write_text(greedy_main(made.name, memory, "array" if is_array else "file"))
    about = "an example: tokens in, the likeliest tokens out"
    files = (*made.files, ExportedFile(path, path.stat().st_size, about))
    return Exported(made.name, files, made.plan, made.weights_nbytes)
