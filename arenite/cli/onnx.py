"""What commands about ONNX models share: opening one, its sizes, compiling it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from arenite.cli import language
from arenite.errors import InvalidArgument, NotSupported

if TYPE_CHECKING:
    from arenite.model import CompiledModel, Model

Dims: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=SIZE", help="A named size: batch=4, or a range, batch=1..8."
    ),
]
StructureInputs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="An input that decides the structure of an ONNX model: numbers, or FILE.npy.",
    ),
]
Memory: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="The most memory to use, 256MiB say; refused if too little."),
]
#: What does for language models what a command does for ONNX models; else they are run.
_FOR_LANGUAGE_MODELS = {
    "profile": "`arenite show --profile` shows where its time goes",
    "bench": "`arenite generate --json` says how fast it writes",
}
Offline: TypeAlias = Annotated[bool, typer.Option("--offline", help="Fetch nothing.")]


def is_onnx(path: Path) -> bool:
    """Whether a file is an ONNX model; other things may be."""
    from arenite.loading import kind_of

    return kind_of(path) == "onnx"


def opened(model: str, *, offline: bool, command: str) -> tuple[Model, str]:
    """A model, and what a person calls it; NotSupported for one that is made of or for text."""
    from arenite.model import Model

    path = language.obtain(model, offline)
    title = language.title(model, path)
    if not is_onnx(path):
        does = _FOR_LANGUAGE_MODELS.get(command, "`arenite chat`, `generate` and `embed` run it")
        raise NotSupported(
            f"{title} is a language model: `arenite {command}` is for ONNX models; {does}"
        )
    return Model.open(path), title


def sizes_of(model: Model, dims: Sequence[str] | None) -> dict[str, str]:
    """Sizes by the names that the model has for them, of texts such as batch=1..8."""
    sizes: dict[str, str] = {}
    for text in dims or ():
        name, is_there, size = text.rpartition("=")
        if not is_there or not name or not size:
            raise InvalidArgument(f"--dim {text}: write NAME=SIZE, batch=4 or batch=1..8 say")
        own = model.size_name(name)
        if own in sizes:
            raise InvalidArgument(f"--dim {name} was given twice")
        sizes[own] = size
    return sizes


def values_of(
    model: Model, inputs: Sequence[str] | None, sizes: Mapping[str, str]
) -> dict[str, Any]:
    """Inputs that decide structure, by name, of texts such as axes=[0, 1]."""
    import numpy as np

    from arenite.cli import arrays

    return arrays.given_arrays(model, inputs, sizes, np.random.default_rng(0))


def compiled(
    model: Model,
    title: str,
    *,
    memory: str | None,
    threads: int | None,
    sizes: dict[str, str],
    plan: str = "memory",
    device: str | None = None,
) -> tuple[CompiledModel, float]:
    """The program, and the seconds it took to have it; a terminal sees that it is being made."""
    from arenite.program.options import USUAL

    began = time.perf_counter()
    with language.showing_steps(title) as on_progress:
        given: dict[str, Any] = {**sizes, "device": device or USUAL.device}
        made = model.compile(
            memory=memory, threads=threads, plan=plan, on_progress=on_progress, **given
        )
    return made, time.perf_counter() - began
