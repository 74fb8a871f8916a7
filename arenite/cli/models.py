"""`arenite pull`, `arenite models`, `arenite rm`: model files, fetched once and kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from arenite.cli import output
from arenite.cli.options import AnyModelName, ModelName
from arenite.device.allocator import readable_nbytes

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress


def pull(
    model: AnyModelName = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Fetch nothing: check what is there.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Fetch a model, or check one that was fetched, and say where it is.

    Without MODEL it is the one that `arenite` uses where none is named. Every byte is checked; a
    file that is damaged is fetched again, a download that broke off goes on.
    """
    from arenite import fetch

    name = fetch.DEFAULT if model is None else model
    with showing() as on_progress:
        path = fetch.obtain(name, offline=offline, hash_all=True, on_progress=on_progress)
    if json:
        output.print_json("pull", {"model": name, "path": str(path)})
    else:
        output.put(str(path))
    return output.EXIT_DONE


def models(
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """List the models that have a short name and those that were fetched.

    The default is the one that a command uses where none is named.
    """
    from arenite import fetch

    known = fetch.models()
    if json:
        rows = [
            {
                "name": info.name,
                "nbytes": info.nbytes,
                "licence": info.licence,
                "about": info.about,
                "path": None if info.path is None else str(info.path),
                "is_default": info.name == fetch.DEFAULT,
            }
            for info in known
        ]
        output.print_json("models", {"models": rows})
        return output.EXIT_DONE
    titles = ("model", "size", "licence", "fetched", "what it is")
    cells = [
        (
            info.name,
            "?" if info.nbytes is None else readable_nbytes(info.nbytes),
            info.licence,
            "no" if info.path is None else "yes",
            f"default: {info.about}" if info.name == fetch.DEFAULT else info.about,
        )
        for info in known
    ]
    output.print_table(titles, cells, right=("size",))
    return output.EXIT_DONE


def rm(model: ModelName) -> int:
    """Remove a fetched model."""
    from arenite import fetch

    output.put(f"{model} removed, {readable_nbytes(fetch.remove(model))}")
    return output.EXIT_DONE


@contextmanager
def showing() -> Iterator[OnProgress | None]:
    """A progress bar on a terminal; nothing elsewhere."""
    if not output.err.is_terminal:
        yield None
        return
    from rich.progress import DownloadColumn, TransferSpeedColumn
    from rich.table import Column

    from arenite.cli.progress import bar

    known = (
        DownloadColumn(table_column=Column(no_wrap=True)),
        TransferSpeedColumn(table_column=Column(no_wrap=True)),
    )
    with bar() as progress:
        what = progress.columns
        task = progress.add_task("", total=None, visible=False)
        shown = ""

        def on_progress(step: str, done: int, total: int | None) -> None:
            nonlocal shown
            if step != shown:
                progress.reset(task, description=step, visible=True)
            progress.update(task, completed=done, total=total)
            if step != shown:
                # Where nobody knows how much there is to do, no amount is shown.
                progress.columns = (*what, *known) if total or done else what
                shown = step

        yield on_progress
