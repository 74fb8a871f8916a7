"""`arenite cache info|clear`: what compiled code is kept on disk, and how to be rid of it."""

from __future__ import annotations

from typing import Annotated

import typer

from arenite.cli import output
from arenite.cli.help import Command, Group
from arenite.device.allocator import readable_nbytes

app = typer.Typer(
    cls=Group,
    help="Compiled code kept on disk, so that a model starts without a compiler.",
    epilog=output.EXIT_CODES,
    rich_markup_mode=None,
)


@app.command("info", cls=Command, short_help="Say how much it has.", epilog=output.EXIT_CODES)
def info(
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Say where the cache is, how many entries it has and how large it may grow.

    Beside programs are the kernels they are made of: a new program with some of them compiles the
    others only. The folder is ARENITE_CACHE_DIR where that is set, else the user's cache folder.
    """
    from arenite.program import cache
    from arenite.program.cache import CacheInfo

    found = cache.default().info()
    store = cache.kernels()
    kernels = CacheInfo(None, 0, 0, 0) if store is None else store.info()
    if json:
        output.print_json(
            "cache",
            {
                "folder": None if found.folder is None else str(found.folder),
                "entries": found.n_entries,
                "nbytes": found.nbytes,
                "cap_nbytes": found.cap_nbytes,
                "why_in_memory": found.why_in_memory,
                "kernels": kernels.n_entries,
                "kernels_nbytes": kernels.nbytes,
                "kernels_cap_nbytes": kernels.cap_nbytes,
            },
        )
        return output.EXIT_DONE
    where = f"in memory only: {found.why_in_memory}" if found.folder is None else str(found.folder)
    output.print_pairs(
        "cache",
        {
            "folder": where,
            "entries": f"{found.n_entries:,}",
            "size": readable_nbytes(found.nbytes),
            "at most": readable_nbytes(found.cap_nbytes),
            "kernels": f"{kernels.n_entries:,}, {readable_nbytes(kernels.nbytes)} of at most "
            f"{readable_nbytes(kernels.cap_nbytes)}",
        },
    )
    return output.EXIT_DONE


@app.command("clear", cls=Command, short_help="Remove it all.", epilog=output.EXIT_CODES)
def clear() -> int:
    """Remove every entry and kernel; models are compiled again when they are next used."""
    from arenite.program import cache

    stores = [store for store in (cache.default(), cache.kernels()) if store is not None]
    nbytes = sum(store.info().nbytes for store in stores)
    n_entries, *n_kernels = (store.clear() for store in stores)
    beside = "".join(f" and {n} kernels" for n in n_kernels)
    print(f"{n_entries} entries{beside} removed, {readable_nbytes(nbytes)}")
    return output.EXIT_DONE
