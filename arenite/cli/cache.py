"""`arenite cache info|clear`: what compiled code is kept on disk, and how to be rid of it."""

from __future__ import annotations

from typing import Annotated

import typer

from arenite.cli import manner
from arenite.cli.help import Command, Group
from arenite.device.allocator import readable_nbytes

app = typer.Typer(
    cls=Group,
    help="Compiled code kept on disk, so that a model starts without a compiler.",
    epilog=manner.EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("info", cls=Command, short_help="Say how much it has.", epilog=manner.EXIT_CODES)
def info(
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Say where the cache is, how many entries it has and how large it may grow.

    The folder is ARENITE_CACHE_DIR where that is set, else the user's cache folder.
    """
    from arenite.runtime import cache

    found = cache.default().info()
    if json:
        manner.print_json(
            "cache",
            {
                "folder": None if found.folder is None else str(found.folder),
                "entries": found.n_entries,
                "nbytes": found.nbytes,
                "cap_nbytes": found.cap_nbytes,
                "why_in_memory": found.why_in_memory,
            },
        )
        return manner.EXIT_DONE
    where = f"in memory only: {found.why_in_memory}" if found.folder is None else str(found.folder)
    manner.print_pairs(
        "cache",
        {
            "folder": where,
            "entries": f"{found.n_entries:,}",
            "size": readable_nbytes(found.nbytes),
            "at most": readable_nbytes(found.cap_nbytes),
        },
    )
    return manner.EXIT_DONE


@app.command("clear", cls=Command, short_help="Remove it all.", epilog=manner.EXIT_CODES)
def clear() -> int:
    """Remove every entry; models are compiled again when they are next used."""
    from arenite.runtime import cache

    store = cache.default()
    before = store.info()
    store.clear()
    print(f"{before.n_entries} entries removed, {readable_nbytes(before.nbytes)}")
    return manner.EXIT_DONE
