"""fetch/: models by name. What is in the cache is used without touching the network."""

from arenite.fetch.catalogue import DEFAULT
from arenite.fetch.obtain import ModelInfo, models, obtain, remove
from arenite.lazy import lister

__all__ = ["DEFAULT", "ModelInfo", "models", "obtain", "remove"]

__dir__ = lister("arenite.fetch")
