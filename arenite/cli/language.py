"""What commands about language models share: fetching, planning and loading one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arenite.cli import manner, models
from arenite.cli.options import Loading, Planning
from arenite.device.allocator import readable_nbytes
from arenite.memory.tables import printable
from arenite.memory.values import RESIDENT_REGIONS

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.generate import LanguageModel, Settings
    from arenite.memory import MemoryPlan


def load(model: str | None, loading: Loading) -> LanguageModel:
    """Fetch what is not there, plan, compile; a terminal sees what is going on."""
    import arenite

    path = obtain(model, loading.offline)
    options = loading.given("offline")
    with showing_steps(printable(path.name)) as on_progress:
        loaded: LanguageModel = arenite.load(path, on_progress=on_progress, **options)
    return loaded


def settings(model: str | None, planning: Planning, block: int | None = None) -> Settings:
    """What `load` would load a model with; no weight is read."""
    from arenite.frontends.language import LanguageFile
    from arenite.generate import Settings

    path = obtain(model, planning.offline)
    options = planning.given("offline") | ({} if block is None else {"block": block})
    with showing_steps(printable(path.name)):
        return Settings(LanguageFile.open(path), **options)


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
    if not manner.err.is_terminal:
        yield None
        return
    with manner.working(f"opening {name}") as show:

        def on_progress(step: str, done: int, total: int | None) -> None:
            share = f" {done}/{total}" if total else ""
            show(f"{printable(step)}{share}, {name}")

        yield on_progress
