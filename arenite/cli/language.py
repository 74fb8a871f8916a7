"""What commands about language models share: fetching, planning and loading one."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from arenite.cli import models, output
from arenite.cli.options import EmbeddingLoading, Loading, Planning
from arenite.device.allocator import readable_nbytes
from arenite.errors import AreniteError, InvalidArgument, NotSupported, printable
from arenite.memory.values import RESIDENT_REGIONS

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.generate import LanguageModel, Settings
    from arenite.memory import MemoryPlan

#: What a command needs a model for.
Wanted: TypeAlias = Literal["text", "embeddings"]

_log = logging.getLogger("arenite.cli")


def load(
    path: Path, name: str, loading: Loading | EmbeddingLoading, *, wanted: Wanted
) -> LanguageModel:
    """Plan and compile; a terminal sees what is going on. A model of the other kind is refused
    before that."""
    import arenite

    with showing_steps(name) as on_progress:
        _check_kind(path, name, wanted)
        options = loading.given("offline")
        loaded: LanguageModel = arenite.load(path, on_progress=on_progress, **options)
    return loaded


def title(model: str | None, path: Path) -> str:
    """What a person calls a model: the name it was asked for by, or that of its file or folder.
    What a file calls itself inside may be anything."""
    from arenite import fetch

    name = fetch.DEFAULT if model is None else model
    if not os.path.exists(name) or Path(name) != path:
        return name
    return str(path) if path.is_dir() else path.name


def _check_kind(path: Path, name: str, wanted: Wanted) -> None:
    from arenite.frontends.language import LanguageFile
    from arenite.loading import kind_of

    if kind_of(path) == "onnx":
        what = "writes no text" if wanted == "text" else "makes no vectors of texts"
        raise NotSupported(f"{name} is an ONNX model and {what}; `arenite run` runs it")
    try:
        is_embedding = LanguageFile.open(path).is_embedding
    except AreniteError:
        return  # said in full by who loads it
    if is_embedding and wanted == "text":
        raise NotSupported(
            f"{name} is a model for embeddings and writes no text; `arenite embed` makes a vector "
            "of each text"
        )
    if not is_embedding and wanted == "embeddings":
        raise NotSupported(
            f"{name} writes text; embeddings need a model that was made for them (BERT), "
            "all-minilm for one. `arenite chat` talks with this one"
        )


def settings(model: str | None, planning: Planning, **more: int | None) -> Settings:
    """What `load` would load a model with, `more` where it is given; no weight is read."""
    from arenite.frontends.language import LanguageFile
    from arenite.generate import Settings

    path = obtain(model, planning.offline)
    options = planning.given("offline")
    options |= {name: value for name, value in more.items() if value is not None}
    with showing_steps(title(model, path)):
        began = time.monotonic()
        file = LanguageFile.open(path)
        _log.info(
            "opened %s: %s, %d tensors of %s, in %.2f s",
            *(path, file.description.architecture, len(file.tensors)),
            *(readable_nbytes(file.nbytes), time.monotonic() - began),
        )
        return Settings(file, **options)


def check_prompt(model: LanguageModel, n_tokens: int) -> None:
    """InvalidArgument where a prompt is longer than the context."""
    if n_tokens <= model.context:
        return
    most = model.file.description.context
    longer = f"shorten it, or give --context {n_tokens} or more" if n_tokens < most else ""
    raise InvalidArgument(
        f"the prompt has {n_tokens} tokens and the context holds {model.context}; "
        + (longer or f"shorten it: the model was made for up to {most}")
    )


def obtain(model: str | None, offline: bool) -> Path:
    """The file of a model, or of the one that is used where none is named."""
    from arenite import fetch

    name = fetch.DEFAULT if model is None else model
    with models.showing() as on_progress:
        return fetch.obtain(name, offline=offline, on_progress=on_progress)


def plan_line(plan: MemoryPlan) -> str:
    """A plan in one line: the whole and its parts."""
    parts = [
        f"{region.name} {readable_nbytes(region.nbytes)}"
        for region in plan.regions.values()
        if region.nbytes and region.name in RESIDENT_REGIONS
    ]
    return f"memory {readable_nbytes(plan.total_nbytes)}: {', '.join(parts)}"


@contextmanager
def showing_steps(name: str) -> Iterator[OnProgress | None]:
    """The step that is being done, on a terminal; nothing elsewhere."""
    if not output.err.is_terminal:
        yield None
        return
    name = printable(name)
    with output.working(f"opening {name}") as show:

        def on_progress(step: str, done: int, total: int | None) -> None:
            share = f" {done}/{total}" if total else ""
            show(f"{printable(step)}{share}, {name}")

        yield on_progress
