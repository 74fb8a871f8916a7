"""The commands of `arenite`: options shared by all, and one module a subcommand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer

from arenite import __version__
from arenite.cli import (
    bench,
    cache,
    chat,
    doctor,
    embed,
    export,
    generate,
    info,
    models,
    output,
    pack,
    plan,
    run,
    serve,
    show,
    tune,
)
from arenite.cli.help import Command, Group

app = typer.Typer(
    cls=Group,
    help="Plan, compile and run models: one native program over one planned block of memory.",
    epilog=output.EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
#: What the command-line library raises for wrong usage; it names only this leaf of the class.
UsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])

#: How it says that an option has no good value.
_BAD_VALUE = re.compile(r"Invalid value for '(?P<option>.+?)': (?:Value error, )?(?P<why>.+)")

#: With what the list of commands says of each: short, so that it fits narrow terminals.
COMMANDS: dict[Callable[..., int], str] = {
    chat.chat: "Talk with a model.",
    generate.generate: "Go on from a prompt.",
    embed.embed: "Make vectors of texts.",
    serve.serve: "Serve a model to programs.",
    run.run: "Run an ONNX model.",
    info.info: "Say what a model is.",
    plan.plan: "Say what a model needs.",
    show.show: "Look into a model.",
    run.profile: "Say where time goes.",
    bench.bench: "Time a model.",
    pack.pack: "Place values in memory.",
    models.pull: "Fetch a model.",
    models.models: "List models.",
    models.rm: "Remove a model.",
    export.export: "Write a model as C.",
    tune.tune: "Find the best kernels.",
    doctor.doctor: "Say what there is here.",
}
for command, about in COMMANDS.items():
    app.command(command.__name__, cls=Command, short_help=about, epilog=output.EXIT_CODES)(command)
app.add_typer(cache.app, name="cache", short_help="Compiled code on disk.")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"arenite {__version__}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[
        int,
        typer.Option(
            "-v", "--verbose", count=True, show_default=False, help="Say what is done; -vv: more."
        ),
    ] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    output.log_to_stderr(verbose)


def _usage(error: Any) -> str:
    """What is wrong with a command line, in one line, and where to read how it is written."""
    command = "arenite" if error.ctx is None else error.ctx.command_path
    said = " ".join(error.format_message().split()).rstrip(".")
    if found := _BAD_VALUE.fullmatch(said):
        said = f"{found['option']}: {_lowered(found['why'])}"
    return f"{_lowered(said)}; `{command} --help` says what can be given"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def called() -> int:
    """Run what the command line says; the exit code."""
    try:
        code = app(prog_name="arenite", standalone_mode=False)
    except UsageError as error:
        output.say(_usage(error))
        return output.EXIT_BAD_INPUT
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code == output.EXIT_INTERRUPTED:  # what the library makes of Ctrl-C; say so ourselves
        raise KeyboardInterrupt
    return code if isinstance(code, int) else output.EXIT_DONE
