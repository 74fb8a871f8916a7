"""Arenite: a model becomes one native program over one planned block of memory.

    lm = arenite.load("model.gguf", memory="1GiB")           # a language model that talks
    program = arenite.compile(function, arenite.spec((64, 784)))   # a function of tensors

The rooms stand one above the other and each imports only from those above it; importing the
package itself pulls in nothing but this file, so that `import arenite` is quick. Rooms and the
names below load on first use.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arenite import (
        codegen,
        device,
        dtype,
        errors,
        fetch,
        frontends,
        generate,
        hazards,
        ir,
        memory,
        passes,
        pipeline,
        runtime,
        schedule,
        tensor,
    )
    from arenite.generate import LanguageModel
    from arenite.ir import Var
    from arenite.loading import load
    from arenite.tensor import (
        State,
        Tensor,
        any_size,
        cond,
        fori_loop,
        from_numpy,
        gru,
        host_call,
        lstm,
        scan,
        spec,
        specialize,
        static,
        while_loop,
    )
    from arenite.tensor.compile import compile
    from arenite.tensor.tune import tune

__version__ = "0.1.0"

_ROOMS = (
    "codegen device dtype errors fetch frontends generate hazards ir memory passes pipeline "
    "runtime schedule tensor"
).split()
#: What a user reaches for first, and the module it lives in; the imports above say the same to
#: those who read the types.
_NAMES = {
    name: module
    for module, names in {
        "generate": "LanguageModel",
        "ir": "Var",
        "loading": "load",
        "tensor": (
            "State Tensor any_size cond fori_loop from_numpy gru host_call lstm scan spec "
            "specialize static while_loop"
        ),
        "tensor.compile": "compile",
        "tensor.tune": "tune",
    }.items()
    for name in names.split()
}

__all__ = [
    "LanguageModel",
    "State",
    "Tensor",
    "Var",
    "any_size",
    "codegen",
    "compile",
    "cond",
    "device",
    "dtype",
    "errors",
    "fetch",
    "fori_loop",
    "from_numpy",
    "frontends",
    "generate",
    "gru",
    "hazards",
    "host_call",
    "ir",
    "load",
    "lstm",
    "memory",
    "passes",
    "pipeline",
    "runtime",
    "scan",
    "schedule",
    "spec",
    "specialize",
    "static",
    "tensor",
    "tune",
    "while_loop",
]

logging.getLogger("arenite").addHandler(logging.NullHandler())

if not TYPE_CHECKING:  # else every name that is not there would be Any

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return import_module(f"arenite.{name}")
        if name in _NAMES:
            return getattr(import_module(f"arenite.{_NAMES[name]}"), name)
        raise AttributeError(f"module 'arenite' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
