"""Arenite: a model becomes one native program over one planned block of memory.

The rooms stand one above the other and each imports only from those above it; importing the
package itself pulls in nothing but this file, so that `import arenite` is quick. Rooms and the
names below load on first use.
"""

import logging
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_ROOMS = (
    "codegen device dtype errors fetch frontends generate hazards ir memory passes pipeline "
    "runtime schedule tensor"
).split()
#: What a user reaches for first, and the room it lives in.
_NAMES = {
    "State": "arenite.tensor",
    "Tensor": "arenite.tensor",
    "Var": "arenite.ir",
    "any_size": "arenite.tensor",
    "compile": "arenite.tensor.compile",
    "cond": "arenite.tensor",
    "fori_loop": "arenite.tensor",
    "from_numpy": "arenite.tensor",
    "gru": "arenite.tensor",
    "host_call": "arenite.tensor",
    "load": "arenite.loading",
    "lstm": "arenite.tensor",
    "scan": "arenite.tensor",
    "spec": "arenite.tensor",
    "specialize": "arenite.tensor",
    "static": "arenite.tensor",
    "tune": "arenite.tensor.tune",
    "while_loop": "arenite.tensor",
}

logging.getLogger("arenite").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"arenite.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'arenite' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_ROOMS, *_NAMES, "__version__"])
