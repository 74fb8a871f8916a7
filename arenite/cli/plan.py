"""`arenite plan`: what a model needs, before anything of it is loaded."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arenite.cli import language, onnx, output
from arenite.cli.options import AnyModelName, Planning, option, spread
from arenite.device.allocator import readable_nbytes
from arenite.errors import DoesNotFit, InvalidArgument

if TYPE_CHECKING:
    from rich.console import Console

    from arenite.generate import Settings
    from arenite.memory import MemoryPlan, Slot
    from arenite.memory.plan import Region

_log = logging.getLogger("arenite.cli")

#: What the regions of a plan are to a user, in the order they are shown.
REGIONS = {
    "packed": "weights, laid out for the kernels",
    "mapped": "weights, read in place from the file",
    "state": "keys and values of the context",
    "work": "activations and scratch",
    "io": "inputs and outputs",
    "device": "the device's own, beside all values",
}
LARGEST = 10
BAR_WIDTH = 10
LEAST_SHARE = 0.005  # that is a percent, rounded
EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
#: Columns of a terminal that all of a table needs; in fewer it has no exact figures and no bars.
WIDE = 64


@spread
def plan(
    model: AnyModelName = None,
    *,
    planning: Planning,
    block: Annotated[
        int | None, typer.Option(min=1, metavar="TOKENS", help="Tokens of a prompt read at once.")
    ] = None,
    sessions: Annotated[
        int | None,
        typer.Option(min=1, metavar="TEXTS", help="Texts whose keys and values are kept at once."),
    ] = None,
    dim: onnx.Dims = None,
    input: onnx.StructureInputs = None,  # noqa: A002 - the option's name
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the plan: what fills memory, and when."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page to look into the plan: the memory map over time, step by step.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Say what a model needs: weights, keys and values, work, in all. No weight is read.

    Of an ONNX model sizes that are open are 1, or what --dim says; a range is planned at its bound.
    With --memory and without --context it finds the longest context that fits; where even the
    shortest does not fit, it says what is needed and exits with 1; so does JSON, with "fits" false.
    """
    path = language.obtain(model, planning.offline)
    try:
        if onnx.is_onnx(path):
            options = planning.given("offline", "memory", "device")
            _refuse(path, options | {"block": block, "sessions": sessions})
            title = language.title(model, path)
            return _plan_onnx(path, title, planning, dim, input, svg, html, json)
        if dim or input:
            asked = "--dim" if dim else "--input"
            raise InvalidArgument(f"{asked} is for ONNX models, and {path} is a language model")
        settings = language.settings(model, planning, block=block, sessions=sessions)
        return _plan_language(settings, language.title(model, path), svg, html, json)
    except DoesNotFit as refusal:
        if json:
            fields = {"file": str(path), "fits": False, "memory": refusal.capacity}
            fields |= {"least_nbytes": refusal.smallest_known, "reason": str(refusal)}
            output.print_json("plan", fields)
        raise


def _plan_language(
    settings: Settings, title: str, svg: Path | None, html: Path | None, json: bool
) -> int:
    with language.showing_steps(title) as on_progress:
        if on_progress is not None:
            on_progress("planning", 0, None)
        began = time.monotonic()
        made = settings.plan
    _log.info(
        "planned a context of %d tokens, %d read at once, in %.2f s: %d values in %d bytes, "
        "lower bound %d, found by %s; %s saved by reuse",
        *(settings.context, settings.block, time.monotonic() - began, len(made.slots)),
        *(made.peak_nbytes, made.lower_bound, made.method, readable_nbytes(made.reused_nbytes)),
    )
    if svg is not None:
        output.write_file(svg, made.to_svg())
    if html is not None:
        output.write_file(html, made.to_html(title))
    if json:
        output.print_json("plan", _fields(settings, made))
    else:
        _print_tables(settings, made, title)
    return output.EXIT_DONE


def _refuse(path: Path, options: Mapping[str, object]) -> None:
    given = [option(name) for name, value in options.items() if value is not None]
    if given:
        raise InvalidArgument(f"{', '.join(given)} are for language models, and {path} is none")


def _plan_onnx(
    path: Path,
    title: str,
    planning: Planning,
    dims: Sequence[str] | None,
    inputs: Sequence[str] | None,
    svg: Path | None,
    html: Path | None,
    json: bool,
) -> int:
    from arenite.model import Model
    from arenite.program.backend import backend_of
    from arenite.program.options import USUAL, parse_nbytes

    model, memory = Model.open(path), planning.memory
    given = onnx.sizes_of(model, dims)
    with language.showing_steps(title) as on_progress:
        if on_progress is not None:
            on_progress("planning", 0, None)
        values = onnx.values_of(model, inputs, given)
        options: dict[str, Any] = {"device": planning.device or USUAL.device, **given}
        made = model.plan(memory=memory, values=values, **options)
    sizes = dict.fromkeys(model.sizes, "1") | given
    if svg is not None:
        output.write_file(svg, made.to_svg())
    if html is not None:
        output.write_file(html, made.to_html(title))
    if json:
        fields = {
            "file": str(path),
            "fits": True,
            "sizes": sizes,
            "memory": parse_nbytes(memory),
            "total_nbytes": made.total_nbytes,
            "regions": _sizes(made),
            "file_nbytes": path.stat().st_size,
            "largest": [asdict(group) for group in _largest(made)],
        }
        output.print_json("plan", fields)
        return output.EXIT_DONE
    shown = [f"{n} {one}{' (not given)' * (n not in given)}" for n, one in sizes.items()]
    facts = {"file": str(path), "kind": f"ONNX, {model.description.n_nodes} nodes"}
    output.print_pairs(title, facts | ({"sizes": ", ".join(shown)} if shown else {}))
    output.out.print()
    counted = made.nbytes_by_device.get(backend_of(options["device"]).memory, 0)
    most = parse_nbytes(memory)
    print_memory(output.out, made, None if most is None else most - counted)
    return output.EXIT_DONE


def _title(region: Region) -> str:
    """What a region is to a user: nothing on another device is read from the file while it runs."""
    from arenite.memory.plan import HOST
    from arenite.memory.svg import UPLOADED

    if region.device == HOST:
        return REGIONS[region.name]
    what = UPLOADED if region.name == "mapped" else REGIONS[region.name]
    return f"{what}, on {region.device}"


def _sizes(made: MemoryPlan) -> Mapping[str, int]:
    """Bytes of each region."""
    return {name: made.regions[name].nbytes for name in REGIONS if name in made.regions}


def _fields(settings: Settings, made: MemoryPlan) -> dict[str, object]:
    return {
        "file": settings.file.path,
        "fits": True,
        "architecture": settings.file.description.architecture,
        "context": settings.context,
        "block": settings.block,
        "sessions": settings.sessions,
        "kv": None if settings.file.is_embedding else str(settings.kv),
        "memory": settings.memory,
        "total_nbytes": made.total_nbytes,
        "regions": _sizes(made),
        "file_nbytes": settings.file.nbytes,
        "largest": [asdict(group) for group in _largest(made)],
    }


@dataclass(frozen=True)
class _Group:
    """Slots of one name, but for numbers in it: the same part of each layer."""

    name: str
    count: int
    region: str
    nbytes: int  # of all of them


def _largest(made: MemoryPlan) -> list[_Group]:
    """What fills the memory when it is fullest."""
    groups: dict[tuple[str, str], list[Slot]] = {}
    for slot in made.live_at(made.peak_tick):
        if slot.region in REGIONS:
            # The copies of a state, one a text, are told together.
            name = str(slot.id).partition("#")[0] if slot.region == "state" else str(slot.id)
            name = re.sub(r"\d+", "*", name)
            groups.setdefault((name, slot.region), []).append(slot)
    found = [
        _Group(
            name if len(slots) > 1 else str(slots[0].id),
            len(slots),
            region,
            sum(slot.capacity for slot in slots),
        )
        for (name, region), slots in groups.items()
    ]
    return sorted(found, key=lambda group: (-group.nbytes, group.name))[:LARGEST]


def _print_tables(settings: Settings, made: MemoryPlan, title: str) -> None:
    d = settings.file.description
    texts = f"{settings.context:,} of {d.context:,} tokens"
    if not settings.file.is_embedding:
        several = f" for each of {settings.sessions} texts" if settings.sessions > 1 else ""
        texts += f"{several}, kept as {settings.kv}; {settings.block} are read at once"
    facts = {
        "file": settings.file.path,
        "kind": f"{d.architecture}, {d.n_layers} layers of {d.width:,}",
        "context": texts,
    }
    output.print_pairs(title, ({"name inside": d.name} if d.name else {}) | facts)
    output.out.print()
    left = None if settings.memory is None else settings.memory - made.total_nbytes
    print_memory(output.out, made, left)


def print_memory(console: Console, made: MemoryPlan, left: int | None = None) -> None:
    """What fills the memory, by region and by what is largest; the bytes left of a budget."""
    from rich.table import Table

    total = made.total_nbytes
    table = Table(box=None, header_style="bold")
    table.add_column("memory")
    is_wide = console.width >= WIDE
    for title in ("size", "share", "", "bytes") if is_wide else ("size", "share"):
        table.add_column(title, justify="left" if title == "" else "right", no_wrap=True)

    def add(what: str, nbytes: int, share: float | None = None, style: str = "") -> None:
        shares = ("", "") if share is None else (_percent(share), _bar(share, console.encoding))
        cells = (readable_nbytes(nbytes), *shares, f"{nbytes:,}")
        table.add_row(what, *cells[: len(table.columns) - 1], style=style)

    for name, nbytes in _sizes(made).items():
        add(_title(made.regions[name]), nbytes, nbytes / max(total, 1))
    add("in all", total, style="bold")
    if left is not None:
        add("left of the budget", left)
    console.print(table)
    console.print()
    titles: tuple[str, ...] = ("size", "count", "region", "largest, * for numbers")
    rows: list[tuple[str, ...]] = [
        (readable_nbytes(group.nbytes), str(group.count), group.region, group.name)
        for group in _largest(made)
    ]
    if not is_wide:
        titles, rows = (titles[0], titles[-1]), [(row[0], row[-1]) for row in rows]
    output.print_table(titles, rows, right=("size", "count"), console=console)


def _percent(share: float) -> str:
    """Nothing that is there is nothing."""
    return "<1%" if 0 < share < LEAST_SHARE else f"{share:.0%}"


def _bar(share: float, encoding: str) -> str:
    """A share as a line, to an eighth of a mark, and of the least of all a dot."""
    is_utf = encoding.startswith("utf")
    if share < LEAST_SHARE:
        return ("·" if is_utf else ".") * bool(share)
    if not is_utf:
        return "=" * max(round(share * BAR_WIDTH), 1)
    n_eighths = math.ceil(share * BAR_WIDTH * 8)
    return "█" * (n_eighths // 8) + EIGHTHS[n_eighths % 8]
