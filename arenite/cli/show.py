"""`arenite show`: a model or a saved trace as a page to look into."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arenite.cli import language, onnx, output
from arenite.cli.completion import model_names
from arenite.cli.options import MODEL_HELP, Planning, Threads, option, spread
from arenite.cli.run import Inputs, Seed
from arenite.device.allocator import readable_nbytes
from arenite.errors import AreniteError, InvalidArgument

if TYPE_CHECKING:
    from arenite.runtime.profile import Profile

#: Runs that are timed; the shortest is shown, in which others took least of the machine.
N_RUNS = 5
#: How a model begins that is JSON too.
_INDEX = ".safetensors.index.json"


@spread
def show(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|TRACE",
            help=f"{MODEL_HELP} Or a trace that `arenite profile --trace FILE` has written.",
            autocompletion=model_names,
        ),
    ],
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.html",
            show_default="MODEL.show.html in this folder",
            help="Where the page is written.",
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Run it, and show what takes how long, and when.")
    ] = False,
    input: Inputs = None,  # noqa: A002 - the option's name
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default="1, as while it writes",
            help="Tokens that a language model reads in the run of --profile.",
        ),
    ] = None,
    dim: onnx.Dims = None,
    *,
    planning: Planning,
    threads: Threads = None,
    seed: Seed = 0,
    is_opened: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser of this machine.")
    ] = False,
) -> int:
    """Write one HTML file that shows all of a compiled model; it needs nothing else, no network.

    On top what fills memory and what takes time. Below, in views that lead to each other: memory
    over time, step by step; what each pass changed; kernels by time, bytes or name, with their
    loops, their code and why each ends where it does; which launch waits for which, and for which
    bytes; and with --profile the run that was timed, every kernel on every thread.

    Sizes of an ONNX model that are open are 1, or what --dim says. Inputs are given as for `arenite
    run`, what is not given is random. A saved trace shows its kernels and its timeline.
    """
    local = Path(model)
    if _is_trace(local):
        _refuse(f"{model} is a trace, and no model", planning, dim, input, tokens, threads)
        title, write = local.name, _of_trace(local)
    else:
        path = language.obtain(model, planning.offline)
        title = language.title(model, path)
        if onnx.is_onnx(path):
            language_options = planning.given("offline", "memory", "device") | {"tokens": tokens}
            _refuse_given(f"{path} is an ONNX model", language_options)
            write = _of_onnx(path, title, planning, dim, input, threads, seed, profile)
        else:
            _refuse_given(f"{path} is a language model", {"dim": dim, "input": input})
            write = _of_language(model, title, planning, threads, tokens, profile)
    name = re.sub(r"[^\w.-]+", "-", Path(title).name).strip("-.") or "model"
    file = output_file or Path(f"{name}.show.html")
    with output.writing(file):
        write(file)
    output.print_pairs(title, {"page": str(file), "size": readable_nbytes(file.stat().st_size)})
    if is_opened and not webbrowser.open(file.absolute().as_uri()):
        output.note(f"there is no browser here that could be started: open {file} in one")
    return output.EXIT_DONE


_Write = Callable[[Path], None]


def _is_trace(path: Path) -> bool:
    """Whether a file is JSON, and no index of weights."""
    if not path.is_file() or path.name.endswith(_INDEX):
        return False
    with output.regular_file(path) as file:
        return file.read(64).lstrip()[:1] in (b"{", b"[")


def _refuse(
    why: str,
    planning: Planning,
    dim: list[str] | None,
    given: list[str] | None,
    tokens: int | None,
    threads: int | None,
) -> None:
    others = {"dim": dim, "input": given, "tokens": tokens, "threads": threads}
    _refuse_given(why, planning.given("offline") | others)


def _refuse_given(why: str, options: dict[str, Any]) -> None:
    given = [option(name) for name, value in options.items() if value is not None]
    if given:
        raise InvalidArgument(f"{', '.join(given)} can't be given: {why}")


def _of_trace(path: Path) -> _Write:
    from arenite.runtime.trace import Trace
    from arenite.runtime.view import program_page

    with output.regular_file(path) as file:
        trace = Trace.read(file.read().decode("utf-8", "replace"), str(path))
    return lambda target: output.write_file(target, program_page({}, path.name, trace))


def _of_onnx(
    path: Path,
    title: str,
    planning: Planning,
    dim: list[str] | None,
    given: list[str] | None,
    threads: int | None,
    seed: int,
    is_profiled: bool,
) -> _Write:
    from arenite.cli import arrays
    from arenite.model import Model

    model = Model.open(path)
    named = onnx.sizes_of(model, dim)
    sizes = dict.fromkeys(model.sizes, "1") | named

    def write(target: Path) -> None:
        try:
            write_page(target)
        except AreniteError as error:
            raise model.explained(error, named) from None

    def write_page(target: Path) -> None:
        program, _ = onnx.compiled(
            model,
            title,
            memory=planning.memory,
            threads=threads,
            sizes=sizes,
            device=planning.device,
        )
        with program:
            profile = None
            # Where inputs decide the structure, the first run compiles it.
            if is_profiled or not program.variants:
                arguments = arrays.arrays_of(model, given, sizes, seed)
                program(arguments)
                if is_profiled:
                    profile = _shortest(lambda: program.profile(arguments))
            program.save_html(target, title, profile)

    return write


def _of_language(
    model: str,
    title: str,
    planning: Planning,
    threads: int | None,
    tokens: int | None,
    is_profiled: bool,
) -> _Write:
    settings = language.settings(model, planning)
    n_tokens = tokens or 1
    if n_tokens > settings.block:
        raise InvalidArgument(
            f"--tokens {n_tokens}: a run reads up to {settings.block} tokens with this context"
        )

    def write(target: Path) -> None:
        with language.showing_steps(title) as on_progress:
            program = settings.program(threads, on_progress)
        with program:
            profile = None
            if is_profiled:
                # What the tokens are does not matter, where they stand does: in the middle.
                position = (settings.context - n_tokens) // 2
                arguments = settings.arguments([0] * n_tokens, position)
                program(*arguments)
                profile = _shortest(lambda: program.profile(*arguments))
            program.save_html(target, title, profile)

    return write


def _shortest(run: Callable[[], Profile]) -> Profile:
    return min((run() for _ in range(N_RUNS)), key=lambda profile: profile.wall_seconds)
