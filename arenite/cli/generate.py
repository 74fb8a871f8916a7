"""`arenite generate`: a prompt in, the text that follows it out; made for pipes."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from arenite.cli import language, output, texts
from arenite.cli.options import (
    OPTIONS,
    Choosing,
    Loading,
    ModelName,
    sampling_of,
    spelled,
    spread,
)
from arenite.errors import NotSupported

logger = logging.getLogger(__name__)


@spread
def generate(
    model: ModelName,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="Without it, or as -: what standard input has."),
    ] = None,
    *,
    chat: Annotated[
        bool, typer.Option("--chat", help="Answer PROMPT as a message; without, go on from it.")
    ] = False,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told first, with --chat.")
    ] = None,
    special: Annotated[
        bool, typer.Option("--special", help="Read control tokens in PROMPT, <|im_end|> say.")
    ] = False,
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON schema that the text fulfils.")
    ] = None,
    grammar: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lark or GBNF grammar that it follows.")
    ] = None,
    regex: Annotated[
        str | None, typer.Option(help="Regular expression that the whole text matches.")
    ] = None,
    loading: Loading,
    choosing: Choosing,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Write the text that follows a prompt.

    Standard output has the text and nothing else, as it is made; with --json one object at the
    end. One newline at the end of what standard input has is left out. Exits with 1 where a
    schema, grammar or regular expression was asked for and the text ended before it was fulfilled.
    """
    shape: dict[str, Any] = {
        "json_schema": None if schema is None else texts.read(schema),
        "grammar": None if grammar is None else texts.read(grammar),
        "regex": regex,
    }
    output.check_text("PROMPT", prompt)
    output.check_text("--system", system)
    output.check_text("--stop", *(choosing.stop or ()))
    names = OPTIONS | {"json_schema": f"--schema {schema}", "regex": "--regex"}
    names["grammar"] = "--grammar" if grammar is None else f"--grammar {grammar}"
    with spelled(names):
        sampling = sampling_of(choosing.given() | shape)
    text = texts.standard_input("PROMPT") if prompt is None or prompt == "-" else prompt
    path = language.obtain(model, loading.offline)
    name = language.title(model, path)
    with language.load(path, name, loading, wanted="text") as loaded, spelled(names):
        from arenite.generate.generation import generate

        words = loaded.tokenizer
        if chat or system is not None:
            told = [] if system is None else [{"role": "system", "content": system}]
            if words.chat_template is None:
                raise NotSupported(f"{name} has no chat template; leave out --chat and --system")
            tokens = loaded.chat_tokens([*told, {"role": "user", "content": text}])
        else:
            tokens = words.encode(text, special=special)
        language.check_prompt(loaded, len(tokens))
        answer = ""
        for piece in generate(loaded.session(), tokens, sampling, words):
            answer += piece.text
            if not json:
                sys.stdout.write(piece.text)
                sys.stdout.flush()
        assert piece.stats is not None
        if json:
            result = {"model": name, "text": answer, "finish": piece.finish}
            output.print_json("generate", result | asdict(piece.stats))
        elif not answer.endswith("\n"):
            print()
    logger.info("%s", piece.stats)
    if any(part is not None for part in shape.values()) and piece.finish != "stop":
        output.say(f"the text ended ({piece.finish}) before it was whole")
        return output.EXIT_NO
    return output.EXIT_DONE
