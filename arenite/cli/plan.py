"""`arenite plan`: what a model needs, before anything of it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arenite.cli import language, manner
from arenite.cli.models import MODEL_HELP
from arenite.device.allocator import readable_nbytes
from arenite.memory.tables import printable

if TYPE_CHECKING:
    from arenite.generate import Settings
    from arenite.memory import MemoryPlan, Slot

#: What the regions of a plan are to a user, in the order they are shown.
REGIONS = {
    "packed": "weights, laid out for the kernels",
    "mapped": "weights, read in place from the file",
    "state": "keys and values of the context",
    "work": "activations and scratch",
    "io": "inputs and outputs",
}
LARGEST = 12


def plan(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = None,
    context: language.Context = None,
    memory: language.Memory = None,
    kv: language.Kv = None,
    block: Annotated[
        int | None, typer.Option(min=1, metavar="TOKENS", help="Tokens of a prompt read at once.")
    ] = None,
    offline: language.Offline = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the plan: time across, bytes up.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Say what a model needs: weights, keys and values, work, in all. No weight is read.

    With --memory and without --context it finds the longest context that fits; where even the
    shortest does not fit, it says what is needed and exits with 1.
    """
    settings = language.settings(
        model, offline=offline, context=context, memory=memory, kv=kv, block=block
    )
    with language.showing_steps(printable(Path(settings.file.path).name)) as on_progress:
        if on_progress is not None:
            on_progress("planning", 0, None)
        made = settings.plan
    if svg is not None:
        svg.write_text(made.to_svg(), encoding="utf-8")
    if json:
        manner.print_json("plan", _fields(settings, made))
    else:
        _print_tables(settings, made)
    return manner.EXIT_DONE


def _sizes(made: MemoryPlan) -> Mapping[str, int]:
    """Bytes of each region."""
    return {name: made.regions[name].nbytes for name in REGIONS if name in made.regions}


def _fields(settings: Settings, made: MemoryPlan) -> dict[str, object]:
    return {
        "file": settings.file.path,
        "architecture": settings.file.description.architecture,
        "context": settings.context,
        "block": settings.block,
        "kv": str(settings.kv),
        "memory": settings.memory,
        "total_nbytes": made.total_nbytes,
        "regions": _sizes(made),
        "file_nbytes": settings.file.nbytes,
        "largest": [
            {"name": str(slot.id), "region": slot.region, "nbytes": slot.nbytes}
            for slot in _largest(made)
        ],
    }


def _largest(made: MemoryPlan) -> list[Slot]:
    """What fills the memory when it is fullest."""
    return [slot for slot in made.live_at(made.peak_tick) if slot.region in REGIONS][:LARGEST]


def _print_tables(settings: Settings, made: MemoryPlan) -> None:
    from rich.table import Table
    from rich.text import Text

    d = settings.file.description
    manner.print_pairs(
        d.name,
        {
            "architecture": f"{d.architecture}, {d.n_layers} layers of {d.width}",
            "context": f"{settings.context} of {d.context} tokens, kept as {settings.kv}",
            "block": f"{settings.block} tokens read at once",
        },
    )
    table = Table(box=None, header_style="bold")
    table.add_column("what")
    for title in ("bytes", "size"):
        table.add_column(title, justify="right")
    for name, nbytes in _sizes(made).items():
        table.add_row(REGIONS[name], f"{nbytes:,}", readable_nbytes(nbytes))
    total = made.total_nbytes
    table.add_row("in all", f"{total:,}", readable_nbytes(total), style="bold")
    if settings.memory is not None:
        left = settings.memory - total
        table.add_row("left of the budget", f"{left:,}", readable_nbytes(left))
    manner.out.print()
    manner.out.print(table)
    largest = Table(box=None, header_style="bold")
    for title in ("largest", "region"):
        largest.add_column(title)
    largest.add_column("size", justify="right")
    for slot in _largest(made):
        cells = (printable(slot.id), slot.region, readable_nbytes(slot.nbytes))
        largest.add_row(*map(Text, cells))
    manner.out.print()
    manner.out.print(largest)
