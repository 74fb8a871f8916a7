"""generate/: language models that read and write text."""

from importlib import import_module
from typing import Any

from arenite.generate.model import LanguageModel, Settings
from arenite.generate.session import Session

__all__ = ["LanguageModel", "Piece", "Sampling", "Session", "Settings", "Stats", "Tokenizer"]

#: What only writing text needs, and where it is.
_LATER = {
    "Piece": "arenite.generate.generation",
    "Sampling": "arenite.generate.sampling",
    "Stats": "arenite.generate.generation",
    "Tokenizer": "arenite.generate.tokenizer",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'arenite.generate' has no attribute {name!r}")
