"""`arenite pack`: place the values of a CSV problem in as few bytes as possible."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, cast

import typer

from arenite import memory
from arenite.cli import output
from arenite.device.allocator import readable_nbytes
from arenite.errors import DoesNotFit
from arenite.memory import MemoryPlan, Progress, csv_problems


def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Rows of id,lower,upper,size.")],
    capacity: Annotated[
        int | None, typer.Option(min=0, metavar="BYTES", help="The most bytes the plan may take.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Search this long instead of a fixed effort."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Write the rows with an offset column.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the plan: time across, bytes up.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page to look into the plan, tick by tick."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Place values with lifetimes in as few bytes as possible.

    Each row of FILE.csv is a value that lives over the half-open ticks [lower, upper) and needs
    `size` bytes; values that live at the same time get bytes of their own. Without --time-limit
    the effort is fixed and the result the same on any machine. Ctrl-C ends the search and keeps
    the best placement so far.

    Exits with 0 when the plan is within the capacity (or none was given) and with 1 when it is
    not; --out, --svg and --html are written either way.
    """
    values = csv_problems.read_csv(file)
    refusal: DoesNotFit | None = None
    with _searching(time_limit) as on_progress:
        effort = memory.DEFAULT_EFFORT if time_limit is None else None
        try:
            plan = memory.plan(values, capacity, effort=effort, on_progress=on_progress)
        except DoesNotFit as error:
            refusal, plan = error, cast(MemoryPlan, error.plan)
    if out is not None:
        csv_problems.write_csv(file, plan, out)
    if svg is not None:
        output.write_file(svg, plan.to_svg())
    if html is not None:
        output.write_file(html, plan.to_html(file.name))
    _report(file, plan, json)
    if refusal is not None:
        raise refusal
    return output.EXIT_DONE


def _report(file: Path, plan: MemoryPlan, json: bool) -> None:
    fits = plan.capacity is None or plan.peak_nbytes <= plan.capacity
    if json:
        output.print_json(
            "pack",
            {
                "file": str(file),
                "values": len(plan.slots),
                "peak_nbytes": plan.peak_nbytes,
                "lower_bound": plan.lower_bound,
                "ratio": plan.ratio,
                "capacity": plan.capacity,
                "fits": fits,
                "peak_tick": plan.peak_tick,
                "method": plan.method,
                "work": plan.work,
                "seconds": plan.seconds,
            },
        )
        return
    rows = {
        "values": f"{len(plan.slots):,}",
        "peak": f"{plan.peak_nbytes:,} bytes",
        "lower bound": f"{plan.lower_bound:,} bytes",
        "ratio": f"{plan.ratio:.4f}",
    }
    if plan.capacity is not None:
        rows["capacity"] = f"{plan.capacity:,} bytes, {'fits' if fits else 'does not fit'}"
    rows |= {
        "fullest at tick": f"{plan.peak_tick:,}",
        "found by": plan.method,
        "time": f"{plan.seconds:.2f} s",
    }
    output.print_pairs(str(file), rows)


@contextmanager
def _searching(time_limit: float | None) -> Iterator[Callable[[Progress], bool]]:
    """Show the search on a terminal; end it on Ctrl-C or when its time is up."""
    began = time.monotonic()
    interrupted = False

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        with output.working("placing") as show:

            def on_progress(now: Progress) -> bool:
                seconds = time.monotonic() - began
                ratio = now.peak_nbytes / now.lower_bound if now.lower_bound else 1.0
                limit = f" of {time_limit:g}" if time_limit is not None else ""
                show(
                    f"placing: {readable_nbytes(now.peak_nbytes)}, {ratio:.4f} of the lower bound, "
                    f"{seconds:.0f}{limit} s (Ctrl-C keeps the best so far)"
                )
                return not interrupted and (time_limit is None or seconds < time_limit)

            yield on_progress
    finally:
        signal.signal(signal.SIGINT, previous)
