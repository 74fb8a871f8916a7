"""language/: language models from files, as graphs.

`LanguageFile.open(path)` reads what a GGUF file says about its model; `graph(...)` builds it.
"""

from arenite.frontends.language.description import Description, Experts, Rope
from arenite.frontends.language.file import LanguageFile

__all__ = ["Description", "Experts", "LanguageFile", "Rope"]
