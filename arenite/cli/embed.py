"""`arenite embed`: texts in, a vector for each out: a table, JSON or a NumPy file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from arenite.cli import language, output, texts
from arenite.cli.options import EmbeddingLoading, ModelName, spread
from arenite.errors import InvalidArgument

if TYPE_CHECKING:
    from arenite.generate import LanguageModel

#: Numbers of a vector that the table shows.
N_SHOWN = 4


@spread
def embed(
    model: ModelName,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT...", help="Without any, and without --file: lines of standard input."
        ),
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A text a line; - for standard input.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="Write the vectors, a row for each.")
    ] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are longer than the context.")
    ] = False,
    loading: EmbeddingLoading,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Make a vector of each text with a model for embeddings.

    Vectors have length 1: the product of two is how much their texts are alike, 1 for the same.
    Without --json or --out a table shows how each vector begins and how much its text is like the
    first.
    """
    output.check_text("TEXT", *(text or ()))
    given = list(text or ())
    if file is not None and str(file) != "-":
        given += _lines(texts.read(file).removesuffix("\n"))
    elif file is not None or not given:
        given += _lines(texts.standard_input("TEXT"))
    if not given:
        raise InvalidArgument("there is no text to embed; each argument or line is one")
    path = language.obtain(model, loading.offline)
    name = language.title(model, path)
    with language.load(path, name, loading, wanted="embeddings") as loaded:
        counts = _counts(loaded, given, truncate)
        vectors = _vectors(loaded, given)
    if out is not None:
        _write(out, vectors)
    if json:
        rows = [
            {"text": one, "tokens": count, "vector": [float(f"{x:.9g}") for x in vector]}
            for one, count, vector in zip(given, counts, vectors, strict=True)
        ]
        shown = {"model": name, "width": vectors.shape[1], "texts": rows}
        output.print_json("embed", shown | {"out": None if out is None else str(out)})
    elif out is None:
        _print_table(given, counts, vectors)
    else:
        output.note(f"{len(vectors)} vectors of {vectors.shape[1]} numbers are in {out}")
    return output.EXIT_DONE


def _lines(text: str) -> list[str]:
    """A text a line, also where lines are empty: the rows are to be those of the file."""
    return [line.removesuffix("\r") for line in text.split("\n")] if text else []


def _counts(model: LanguageModel, given: Sequence[str], truncate: bool) -> list[int]:
    """Tokens of each text; InvalidArgument where one has too many."""
    counts = [len(model.tokenizer.encode(text)) for text in given]
    for number, count in enumerate(counts, start=1):
        if count > model.context and not truncate:
            raise InvalidArgument(
                f"text {number} of {len(given)} has {count} tokens and the context holds "
                f"{model.context}; cut it into parts, or give --truncate to embed what its first "
                "tokens say"
            )
    return [min(count, model.context) for count in counts]


def _vectors(model: LanguageModel, given: Sequence[str]) -> NDArray[np.float32]:
    if not output.err.is_terminal or len(given) < 2:
        return model.embed(given, truncate=True)
    from rich.progress import MofNCompleteColumn

    from arenite.cli.progress import bar

    rows = []
    with bar(MofNCompleteColumn()) as progress:
        for text in progress.track(given, description="embedding"):
            rows.append(model.embed(text, truncate=True))
    return np.concatenate(rows)


def _write(out: Path, vectors: NDArray[np.float32]) -> None:
    with output.writing(out), out.open("wb") as file:
        np.save(file, vectors)


def _print_table(given: Sequence[str], counts: Sequence[int], vectors: NDArray[np.float32]) -> None:
    rows = [
        (
            f"{count:,}",
            f"{vector @ vectors[0]:.3f}",
            " ".join(f"{x:+.3f}" for x in vector[:N_SHOWN]) + " …",
            text,
        )
        for text, count, vector in zip(given, counts, vectors, strict=True)
    ]
    titles = ("tokens", "like the first", f"vector of {vectors.shape[1]}", "text")
    output.print_table(titles, rows, right=titles[:2])
