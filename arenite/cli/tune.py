"""`arenite tune`: how a model's kernels are best cut on this machine, measured and kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len

from arenite.cli import language, onnx, output, shapes
from arenite.cli.completion import model_names
from arenite.cli.options import MODEL_HELP, Planning, spread
from arenite.errors import InvalidArgument, printable

if TYPE_CHECKING:
    from arenite.ir import Graph
    from arenite.pipeline.tune import OnProgress
    from arenite.pipeline.tuning import Tuning

_SIZES = re.compile(r"[^=,]+=[0-9]{1,9}(,[^=,]+=[0-9]{1,9})*")


@spread
def tune(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL|LAYER",
            help=f"{MODEL_HELP} Or one layer: {shapes.HELP}.",
            autocompletion=model_names,
        ),
    ],
    seconds: Annotated[
        float | None,
        typer.Option(min=0, help="About how long it may take, in all; the heaviest kernels first."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads to measure with, beside one.")
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N,...", help="Values of sizes that vary; may be given again."),
    ] = None,
    dim: onnx.Dims = None,
    *,
    planning: Planning,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Measure other ways to cut the kernels of models or layers, and keep the best in the cache.

    Every program that has such a kernel is cut so from now on; its results stay the same, bit for
    bit, on any number of threads. What was tried is shown. Run it while the machine is idle.

    Sizes of an ONNX model that are open are 1, or what --dim says: as it will be compiled.
    """
    from arenite.pipeline.tune import tune_graph
    from arenite.program.options import USUAL, Options

    options = Options(device=planning.device or USUAL.device)
    wanted = [_parse_sizes(text) for text in sizes or ()]
    left, exit_code = seconds, output.EXIT_DONE
    _check_cache()
    graphs = [  # of all, so that what is no model or layer is said before anything is measured
        _layer_graph(name) if shapes.is_layer(name) else _model_graph(name, planning, dim)
        for name in what
    ]
    results = []
    for name, graph in zip(what, graphs, strict=True):
        try:
            with _showing() as on_progress:
                tuning = tune_graph(
                    graph,
                    options,
                    threads=threads,
                    sizes=wanted,
                    seconds=left,
                    on_progress=on_progress,
                )
        except KeyboardInterrupt:
            # What was measured is kept, and shown; nothing more is measured.
            tuning = tune_graph(graph, options, threads=threads, sizes=wanted, seconds=0)
            exit_code = output.EXIT_INTERRUPTED
        left = None if left is None else max(0.0, left - tuning.spent_seconds)
        results.append({"name": name, **tuning.fields()})
        if not json:
            _print(name, tuning)
        if exit_code != output.EXIT_DONE:
            break
    if json:
        output.print_json("tune", {"tuned": results})
    _check_cache()  # which may have become one in memory
    return exit_code


def _check_cache() -> None:
    """OSError where what is found could be kept in memory alone, which ends with this process."""
    from arenite.program import cache

    why = cache.default().info().why_in_memory
    if why:
        raise OSError(
            f"what tuning finds can't be kept: {why}; name a folder of your own in "
            "ARENITE_CACHE_DIR"
        )


def _parse_sizes(text: str) -> dict[str, int]:
    if _SIZES.fullmatch(text) is None:
        raise InvalidArgument(f"{text!r} gives no sizes: write tokens=128, or a=1,b=2")
    pairs = (part.split("=") for part in text.split(","))
    return {name.strip(): int(value) for name, value in pairs}


def _layer_graph(text: str) -> Graph:
    from arenite.tensor.compile import compile as compiled
    from arenite.tensor.signature import spec

    function, given = shapes.layer(text)
    with compiled(function, *(spec(shape) for shape in given)) as program:
        return program.executable.graph


def _model_graph(name: str, planning: Planning, dims: list[str] | None) -> Graph:
    from arenite.model import Model

    path = language.obtain(name, planning.offline)
    if onnx.is_onnx(path):
        model = Model.open(path)
        sizes: dict[str, Any] = {**onnx.sizes_of(model, dims)}
        return model.graph(**sizes)
    if dims:
        raise InvalidArgument(f"--dim is for ONNX models, and {path} is a language model")
    return language.settings(name, planning).graph


@contextmanager
def _showing() -> Iterator[OnProgress | None]:
    """A bar on a terminal; nothing elsewhere."""
    if not output.err.is_terminal:
        yield None
        return
    from rich.progress import MofNCompleteColumn

    from arenite.cli.progress import bar

    with bar(MofNCompleteColumn()) as progress:
        task = progress.add_task("looking for kernels", total=None)

        def on_progress(kernel: str, done: int, total: int) -> None:
            step = f"measuring {kernel}" if kernel else "done"
            progress.update(task, description=step, completed=done, total=total)

        yield on_progress


def _print(name: str, tuning: Tuning) -> None:
    """What was tried: a table, or where a terminal is too narrow for it one for each kernel."""
    text = str(tuning)
    table, _, last = text.rpartition("\n\n")
    widest = max(map(cell_len, table.splitlines()), default=0)
    output.out.print(printable(name), "", sep="\n", style="bold", soft_wrap=True)
    if not output.out.is_terminal or widest <= output.out.width:
        output.out.print(text, "", sep="\n", soft_wrap=True)
        return
    titles = ("choice", *(f"µs, {condition}" for condition in tuning.conditions), "of limit", "")
    for kernel, tried in groupby(tuning.tried, lambda one: (one.kernel, one.n_uses)):
        uses = "once" if kernel[1] == 1 else f"{kernel[1]} times"
        output.out.print(f"{kernel[0]}, used {uses}", style="bold", soft_wrap=True)
        rows = [
            (one.choice, *one.micros(len(tuning.conditions)), one.share, one.note) for one in tried
        ]
        output.print_table(titles, rows, right=titles[1:-2])
        output.out.print()
    output.out.print(last, "", sep="\n")
