"""Arenite: a model becomes one native program over one planned block of memory.

    model = arenite.load("model.onnx")                              # any ONNX model
    lm = arenite.load("model.gguf", memory="1GiB")                  # a language model that talks
    program = arenite.compile(function, arenite.spec((64, 784)))    # a function of tensors

The rooms stand one above the other and each imports only from those above it; importing the
package itself pulls in nothing but this file, so that `import arenite` is quick. Rooms and the
names below load on first use.
"""

# ruff: noqa: I001 - names that are exported stand together, each under its own name

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arenite import (
        codegen as codegen,
        device as device,
        dtype as dtype,
        errors as errors,
        fetch as fetch,
        frontends as frontends,
        generate as generate,
        hazards as hazards,
        ir as ir,
        memory as memory,
        model as model,
        onnxruntime as onnxruntime,
        passes as passes,
        pipeline as pipeline,
        runtime as runtime,
        schedule as schedule,
        tensor as tensor,
    )
    from arenite.exporting import export as export
    from arenite.generate import LanguageModel as LanguageModel
    from arenite.ir import Var as Var
    from arenite.loading import load as load
    from arenite.model import Model as Model
    from arenite.tensor import *  # noqa: F403
    from arenite.tensor.compile import compile as compile  # noqa: A004
    from arenite.tensor.tune import tune as tune

__version__ = "0.1.0"

_ROOMS = (
    "codegen device dtype errors fetch frontends generate hazards ir memory model onnxruntime "
    "passes pipeline runtime schedule tensor"
).split()
#: What a user reaches for first, and the module it lives in;
#: what is here from `tensor` is all that it offers.
_NAMES = {
    name: module
    for module, names in {
        "generate": "LanguageModel",
        "ir": "Var",
        "exporting": "export",
        "loading": "load",
        "model": "Model",
        "tensor": (
            "Generator State Tensor TensorSpec abs add all allclose any any_size arange "
            "arccos arcsin arctan argmax argmin argsort array_equal asarray broadcast_arrays "
            "broadcast_to cat ceil clip concat concatenate cond cos cosh cumprod cumsum "
            "diagonal diff divide dot einsum equal exp exp2 expand_dims expm1 eye flip floor "
            "floor_divide fori_loop from_dlpack from_numpy full full_like greater "
            "greater_equal gru host_call hstack inner isclose isfinite isinf isnan less "
            "less_equal linspace log log10 log1p log2 logical_not lstm matmul max maximum "
            "mean median meshgrid min minimum moveaxis multiply nan_to_num nonzero not_equal "
            "ones ones_like outer pad power prod ravel realize_all remainder repeat reshape roll "
            "round scan sign sin sinh sort spec specialize split sqrt square squeeze stack "
            "static std subtract sum swapaxes take take_along_axis tan tanh tensordot tile "
            "transpose tril triu trunc var vdot vstack where while_loop zeros zeros_like"
        ),
        "tensor.compile": "compile",
        "tensor.tune": "tune",
    }.items()
    for name in names.split()
}

logging.getLogger("arenite").addHandler(logging.NullHandler())

if not TYPE_CHECKING:  # else every name that is not there would be Any
    __all__ = sorted([*_ROOMS, *_NAMES])

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return import_module(f"arenite.{name}")
        if name in _NAMES:
            return getattr(import_module(f"arenite.{_NAMES[name]}"), name)
        raise AttributeError(f"module 'arenite' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
