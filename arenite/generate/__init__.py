"""generate/: language models that read and write text."""

from arenite.generate.model import LanguageModel, Settings
from arenite.generate.session import Session

__all__ = ["LanguageModel", "Session", "Settings"]
