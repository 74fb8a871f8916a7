"""What `arenite chat` and `arenite generate` share: their options, and loading the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arenite.cli import manner, models
from arenite.device.allocator import readable_nbytes
from arenite.memory.tables import printable
from arenite.memory.values import RESIDENT_REGIONS

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.generate import LanguageModel, Settings
    from arenite.memory import MemoryPlan

# How the model is loaded.
Context = Annotated[
    int | None,
    typer.Option(min=1, metavar="TOKENS", help="Tokens of a text at the most."),
]
Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="The most memory to use, 1GiB say; refused if too little."),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to work with.")]
Kv = Annotated[str | None, typer.Option(metavar="DTYPE", help="What keys and values are kept as.")]
Offline = Annotated[bool, typer.Option("--offline", help="Fetch nothing.")]

# How tokens are chosen. Nothing given is what `Sampling` has; a test compares the figures.
Temperature = Annotated[
    float | None,
    typer.Option(show_default="0.8", help="How freely to choose; 0: always the likeliest."),
]
TopK = Annotated[
    int | None, typer.Option(show_default="40", help="Only so many likeliest tokens; 0: all.")
]
TopP = Annotated[
    float | None,
    typer.Option(show_default="0.95", help="Only the likeliest, up to this probability together."),
]
MinP = Annotated[
    float | None,
    typer.Option(show_default="0.05", help="Only those so likely relative to the likeliest."),
]
RepetitionPenalty = Annotated[
    float | None, typer.Option(show_default="1.0", help="What a token pays that came before.")
]
PenaltyWindow = Annotated[
    int | None,
    typer.Option(show_default="64", help="Tokens that count as before; -1: all of them."),
]
Seed = Annotated[int | None, typer.Option(help="The same seed gives the same text.")]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End before this text.")]
MaxTokens = Annotated[int | None, typer.Option(help="Make no more tokens than this.")]


def load(
    model: str | None,
    *,
    offline: bool,
    context: int | None,
    memory: str | None,
    threads: int | None,
    kv: str | None,
) -> LanguageModel:
    """Fetch what is not there, plan, compile; a terminal sees what is going on."""
    import arenite

    path = obtain(model, offline)
    options = given(context=context, memory=memory, threads=threads, kv=kv)
    with showing_steps(printable(path.name)) as on_progress:
        loaded: LanguageModel = arenite.load(path, on_progress=on_progress, **options)
    return loaded


def settings(
    model: str | None,
    *,
    offline: bool,
    context: int | None,
    memory: str | None,
    kv: str | None,
    block: int | None,
) -> Settings:
    """What `load` would load a model with; no weight is read."""
    from arenite.frontends.language import LanguageFile
    from arenite.generate import Settings

    path = obtain(model, offline)
    options = given(context=context, memory=memory, kv=kv, block=block)
    with showing_steps(printable(path.name)):
        return Settings(LanguageFile.open(path), **options)


def obtain(model: str | None, offline: bool) -> Path:
    """The file of a model, or of the one that is used where none is named."""
    from arenite import fetch

    name = fetch.DEFAULT if model is None else model
    with models.showing() as on_progress:
        return fetch.obtain(name, offline=offline, on_progress=on_progress)


def given(**options: Any) -> dict[str, Any]:
    """The options that were named on the command line."""
    return {name: value for name, value in options.items() if value is not None}


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
    if not manner.err.is_terminal:
        yield None
        return
    from rich.text import Text

    with manner.err.status(Text(f"opening {name}")) as status:

        def on_progress(step: str, done: int, total: int | None) -> None:
            share = f" {done} of {total}" if total else ""
            status.update(Text(f"{printable(step)} {name}{share}"))

        yield on_progress
