"""Arenite: a model becomes one native program over one planned block of memory.

The rooms stand one above the other and each imports only from those above it; importing the
package itself pulls in nothing but this file, so that `import arenite` is quick. The submodules
`arenite.device`, `arenite.hazards`, `arenite.memory` load on first use.
"""

import logging
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

_ROOMS = ("device", "dtype", "errors", "hazards", "memory")

logging.getLogger("arenite").addHandler(logging.NullHandler())


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return import_module(f"arenite.{name}")
    raise AttributeError(f"module 'arenite' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_ROOMS, "__version__"])
