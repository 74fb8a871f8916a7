"""generate/: language models that read and write text.

lm = arenite.load("model.gguf", context=2048, sessions=2)
print("".join(lm.chat([{"role": "user", "content": "Why is the sky blue?"}], seed=1)))
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arenite.generate.generation import Piece, Stats
    from arenite.generate.model import LanguageModel, Settings
    from arenite.generate.sampling import Sampling, SamplingOptions
    from arenite.generate.session import Session
    from arenite.generate.tokenizer import Tokenizer
else:
    from arenite.lazy import names_of

    __getattr__, __dir__ = names_of(
        "arenite.generate",
        {
            "generation": "Piece Stats",
            "model": "LanguageModel Settings",
            "sampling": "Sampling SamplingOptions",
            "session": "Session",
            "tokenizer": "Tokenizer",
        },
    )

__all__ = [
    "LanguageModel",
    "Piece",
    "Sampling",
    "SamplingOptions",
    "Session",
    "Settings",
    "Stats",
    "Tokenizer",
]
