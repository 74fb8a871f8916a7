"""generate/: language models that read and write text.

lm = arenite.load("model.gguf", context=2048, sessions=2)
print("".join(lm.chat([{"role": "user", "content": "Why is the sky blue?"}], seed=1)))
"""

# ruff: noqa: I001 - names that are exported stand together, each under its own name

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenite.generate.generation import Piece as Piece, Stats as Stats
    from arenite.generate.model import LanguageModel as LanguageModel, Settings as Settings
    from arenite.generate.sampling import Sampling as Sampling, SamplingOptions as SamplingOptions
    from arenite.generate.session import Session as Session
    from arenite.generate.tokenizer import Tokenizer as Tokenizer
else:
    from arenite.lazy import names_of

    __getattr__, __dir__, __all__ = names_of(
        "arenite.generate",
        {
            "generation": "Piece Stats",
            "model": "LanguageModel Settings",
            "sampling": "Sampling SamplingOptions",
            "session": "Session",
            "tokenizer": "Tokenizer",
        },
    )
