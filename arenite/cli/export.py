"""`arenite export`: a model becomes C that any compiler takes."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arenite.cli import language, onnx, output
from arenite.cli.completion import model_names
from arenite.cli.options import MODEL_HELP
from arenite.device.allocator import readable_nbytes
from arenite.errors import AreniteError, InvalidArgument, InvalidFile

if TYPE_CHECKING:
    from arenite.pipeline.export import Exported


def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE.py:NAME",
            help=f"{MODEL_HELP} Or a compiled function of a Python file, which is run.",
            autocompletion=model_names,
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Where files go.")],
    context: Annotated[
        int | None, typer.Option(min=1, metavar="TOKENS", help="Tokens of a text at the most.")
    ] = None,
    dim: onnx.Dims = None,
    input: onnx.StructureInputs = None,  # noqa: A002 - the option's name
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What files and functions are called.")
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="The arena is one static array; this is usual.")
    ] = False,
    caller_memory: Annotated[
        bool, typer.Option("--caller-memory", help="The caller hands the arena over.")
    ] = False,
    weights: Annotated[
        str, typer.Option(metavar="auto|array|file", help="An array of C, or a file to be read.")
    ] = "auto",
    openmp: Annotated[bool, typer.Option("--openmp", help="Threads share large kernels.")] = False,
    freestanding: Annotated[
        bool, typer.Option("--freestanding", help="Without the C library: its maths come along.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Write a model as C11: NAME.c, NAME.h and its weights, which need no Arenite.

    The C allocates nothing: everything lies in one arena of NAME_ARENA_BYTES bytes, where the plan
    has it. NAME_init, once; NAME_run(inputs, outputs, sizes) for each run; NAME_reset for a new
    text. They return 0, or an error of the header. Of a language model, a small main.c that writes
    the likeliest tokens comes with it.

    Sizes of an ONNX model that are open are 1, or what --dim says; one of a range comes with each
    run, and memory is for its bound. What can't be exported is refused with the reason: programs in
    segments, and such as call Python.
    """
    import arenite
    from arenite.model import Model

    if static and caller_memory:
        raise InvalidArgument("--static and --caller-memory were both given; the arena is one")
    program, called = _program(model)
    sizes: dict[str, str] = {}
    values: dict[str, Any] = {}
    if program is None:
        path = program = language.obtain(model, offline=False)
        if onnx.is_onnx(path):
            program = Model.open(path)
            sizes = onnx.sizes_of(program, dim)
            values = onnx.values_of(program, input, sizes)
    if (dim or input) and not isinstance(program, Model):
        asked = "--dim" if dim else "--input"
        raise InvalidArgument(f"{asked} is for ONNX models, and {model} is none")
    with output.writing(out), language.showing_steps(called) as on_progress:

        def told(done: int, total: int) -> None:
            if on_progress is not None:
                on_progress("writing kernels", done, total)

        exported = arenite.export(
            program,
            out,
            name=name or called,
            memory="caller" if caller_memory else "static",
            openmp=openmp,
            freestanding=freestanding,
            weights=weights,
            context=context,
            sizes=sizes,
            values=values,
            on_progress=told,
        )
    _report(exported, out, json)
    return output.EXIT_DONE


def _program(model: str) -> tuple[Any, str]:
    """What a Python file has under a name, if that is what was asked for; and what to call it."""
    file, _, wanted = model.rpartition(":")
    if not file.endswith(".py"):
        return None, Path(model.rpartition(":")[2]).stem.lower()
    if not Path(file).is_file():
        raise InvalidArgument(f"{model} was asked for, and there is no file {file}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))  # as Python does for a script
    try:
        program = runpy.run_path(file).get(wanted)
    except AreniteError:
        raise
    except (Exception, SystemExit) as error:
        lines = [one.lineno for one in extract_tb(error.__traceback__) if one.filename == file]
        place = f"{file}:{lines[-1]}" if lines else file
        raise InvalidFile(f"{place} ended with {type(error).__name__}: {error}") from error
    if program is None:
        raise InvalidArgument(f"{model} was asked for, and {file} defines no {wanted}")
    return program, wanted


def _report(exported: Exported, folder: Path, json: bool) -> None:
    if json:
        files = [
            {"path": str(file.path), "nbytes": file.nbytes, "about": file.about}
            for file in exported.files
        ]
        fields: dict[str, object] = {
            "name": exported.name,
            "folder": str(folder),
            "files": files,
            "arena_nbytes": exported.arena_nbytes,
            "weights_nbytes": exported.weights_nbytes,
        }
        output.print_json("export", fields)
        return
    rows = [(file.path.name, f"{file.nbytes:,}", file.about) for file in exported.files]
    output.print_table(("file", "bytes", "what it is"), rows, right=("bytes",), console=output.out)
    arena, weights = map(readable_nbytes, (exported.arena_nbytes, exported.weights_nbytes))
    output.out.print(f"\n{exported.name} runs in an arena of {arena}, beside weights of {weights}.")
