"""The `arenite` command: options shared by all, and one module a subcommand."""

from __future__ import annotations

import sys
from typing import Annotated, Any, cast

import typer

from arenite import __version__
from arenite.cli import cache, chat, doctor, generate, manner, models, pack, plan, tune

app = typer.Typer(
    help="Plan, compile and run models: one native program over one planned block of memory.",
    epilog=manner.EXIT_CODES,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
#: What the command-line library raises for wrong usage; it names only this leaf of the class.
UsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])

app.command("chat", epilog=manner.EXIT_CODES)(chat.chat)
app.command("generate", epilog=manner.EXIT_CODES)(generate.generate)
app.command("plan", epilog=manner.EXIT_CODES)(plan.plan)
app.command("pack", epilog=manner.EXIT_CODES)(pack.pack)
app.command("pull", epilog=manner.EXIT_CODES)(models.pull)
app.command("models", epilog=manner.EXIT_CODES)(models.models)
app.command("rm", epilog=manner.EXIT_CODES)(models.rm)
app.command("tune", epilog=manner.EXIT_CODES)(tune.tune)
app.command("doctor", epilog=manner.EXIT_CODES)(doctor.doctor)
app.add_typer(cache.app, name="cache")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"arenite {__version__}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, help="Say what is done; -vv for more.")
    ] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    manner.log_to_stderr(verbose)


def run() -> None:
    """Entry point of the `arenite` command."""
    manner.prepare_streams()
    sys.exit(manner.exit_code_of(_run_app, debug="--debug" in sys.argv[1:]))


def _run_app() -> int:
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        cast(Any, error).show()
        return manner.EXIT_BAD_INPUT
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code == manner.EXIT_INTERRUPTED:  # what the library makes of Ctrl-C; say so ourselves
        raise KeyboardInterrupt
    return code if isinstance(code, int) else manner.EXIT_DONE


if __name__ == "__main__":
    run()
