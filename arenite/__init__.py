"""Arenite: a model becomes one native program over one planned block of memory.

    model = arenite.load("model.onnx")                              # any ONNX model
    lm = arenite.load("model.gguf", memory="1GiB")                  # a language model that talks
    program = arenite.compile(function, arenite.spec((64, 784)))    # a function of tensors

The rooms stand one above the other and each imports only from those above it; importing the
package itself pulls in this file and `lazy` alone, so that `import arenite` is quick. Rooms and the
names below load on first use.
"""

# ruff: noqa: I001 - names that are exported stand together, each under its own name

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from arenite import lazy

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
        serve as serve,
        tensor as tensor,
    )
    from arenite.exporting import export as export
    from arenite.generate import LanguageModel as LanguageModel
    from arenite.ir import Var as Var
    from arenite.loading import load as load
    from arenite.model import Model as Model
    from arenite.tensor import *  # noqa: F403
    from arenite.tensor import fft as fft, linalg as linalg
    from arenite.tensor.compile import compile as compile  # noqa: A004
    from arenite.tensor.constants import (
        e as e,
        inf as inf,
        nan as nan,
        newaxis as newaxis,
        pi as pi,
    )
    from arenite.tensor.data_types import (
        bfloat16 as bfloat16,
        bool as bool,  # noqa: A004
        complex128 as complex128,
        complex64 as complex64,
        float16 as float16,
        float32 as float32,
        float64 as float64,
        int16 as int16,
        int32 as int32,
        int64 as int64,
        int8 as int8,
        uint16 as uint16,
        uint32 as uint32,
        uint64 as uint64,
        uint8 as uint8,
    )
    import arenite.tensor.inspection
    from arenite.tensor.tune import tune as tune

__version__ = "0.1.0"
#: The version of the array API standard whose names are here.
__array_api_version__ = "2024.12"

#: Rooms, and the array API's namespaces of functions, by the module that holds them.
_ROOMS = {
    name: name
    for name in (
        "codegen device dtype errors fetch frontends generate hazards ir memory model "
        "onnxruntime passes pipeline runtime schedule serve tensor"
    ).split()
} | {"fft": "tensor.fft", "linalg": "tensor.linalg"}
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
            "Generator State Tensor TensorSpec abs acos acosh add all allclose any any_size "
            "arange arccos arcsin arctan argmax argmin argsort array_equal asarray asin asinh "
            "astype atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or "
            "bitwise_right_shift bitwise_xor broadcast_arrays broadcast_to can_cast cat ceil "
            "clip concat concatenate cond conj copysign cos cosh count_nonzero cumprod cumsum "
            "cumulative_prod cumulative_sum diagonal diff divide dot einsum empty empty_like "
            "equal exp exp2 expand_dims expm1 eye finfo flip floor floor_divide fori_loop "
            "from_dlpack from_numpy full full_like greater greater_equal gru host_call hstack "
            "hypot iinfo imag inner isclose isdtype isfinite isin isinf isnan less less_equal "
            "linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or "
            "logical_xor lstm matmul matrix_transpose max maximum mean median meshgrid min "
            "minimum moveaxis multiply nan_to_num negative nextafter nonzero not_equal ones "
            "ones_like outer pad permute_dims positive pow power prod ravel real realize_all "
            "reciprocal remainder repeat reshape result_type roll round scan searchsorted sign "
            "signbit sin sinh sort spec specialize split sqrt square squeeze stack static std "
            "subtract sum swapaxes take take_along_axis tan tanh tensordot tile transpose tril "
            "triu trunc unique_all unique_counts unique_inverse unique_values unstack var vdot "
            "vecdot vstack where while_loop zeros zeros_like"
        ),
        "tensor.compile": "compile",
        "tensor.constants": "e inf nan newaxis pi",
        "tensor.data_types": (
            "bfloat16 bool complex128 complex64 float16 float32 float64 int16 int32 int64 int8 "
            "uint16 uint32 uint64 uint8"
        ),
        "tensor.tune": "tune",
    }.items()
    for name in names.split()
}


def __array_namespace_info__() -> "arenite.tensor.inspection.NamespaceInfo":  # noqa: N807
    """What the namespace can do, for libraries that ask."""
    from arenite.tensor.inspection import NamespaceInfo

    return NamespaceInfo()


logging.getLogger("arenite").addHandler(logging.NullHandler())
lazy.find_quickly(__spec__)

if not TYPE_CHECKING:  # else every name that is not there would be Any
    __all__ = sorted([*_ROOMS, *_NAMES])

    def __getattr__(name: str) -> Any:
        if name in _ROOMS:
            return import_module(f"arenite.{_ROOMS[name]}")
        if name in _NAMES:
            return getattr(import_module(f"arenite.{_NAMES[name]}"), name)
        raise AttributeError(f"module 'arenite' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
