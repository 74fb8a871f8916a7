"""Arenite: a model becomes one native program over one planned block of memory.

    model = arenite.load("model.onnx")                              # any ONNX model
    lm = arenite.load("model.gguf", memory="1GiB")                  # a language model that talks
    program = arenite.compile(function, arenite.spec((64, 784)))    # a function of tensors

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
        model,
        onnxruntime,
        passes,
        pipeline,
        runtime,
        schedule,
        tensor,
    )
    from arenite.exporting import export
    from arenite.generate import LanguageModel
    from arenite.ir import Var
    from arenite.loading import load
    from arenite.model import Model
    from arenite.tensor import (
        Generator,
        State,
        Tensor,
        TensorSpec,
        abs,  # noqa: A004
        add,
        all,  # noqa: A004
        allclose,
        any,  # noqa: A004
        any_size,
        arange,
        arccos,
        arcsin,
        arctan,
        argmax,
        argmin,
        argsort,
        array_equal,
        asarray,
        broadcast_arrays,
        broadcast_to,
        cat,
        ceil,
        clip,
        concat,
        concatenate,
        cond,
        cos,
        cosh,
        cumprod,
        cumsum,
        diagonal,
        diff,
        divide,
        dot,
        einsum,
        equal,
        exp,
        exp2,
        expand_dims,
        expm1,
        eye,
        flip,
        floor,
        floor_divide,
        fori_loop,
        from_dlpack,
        from_numpy,
        full,
        full_like,
        greater,
        greater_equal,
        gru,
        host_call,
        hstack,
        inner,
        isclose,
        isfinite,
        isinf,
        isnan,
        less,
        less_equal,
        linspace,
        log,
        log1p,
        log2,
        log10,
        logical_not,
        lstm,
        matmul,
        max,  # noqa: A004
        maximum,
        mean,
        median,
        meshgrid,
        min,  # noqa: A004
        minimum,
        moveaxis,
        multiply,
        nan_to_num,
        nonzero,
        not_equal,
        ones,
        ones_like,
        outer,
        pad,
        power,
        prod,
        ravel,
        remainder,
        repeat,
        reshape,
        roll,
        round,  # noqa: A004
        scan,
        sign,
        sin,
        sinh,
        sort,
        spec,
        specialize,
        split,
        sqrt,
        square,
        squeeze,
        stack,
        static,
        std,
        subtract,
        sum,  # noqa: A004
        swapaxes,
        take,
        take_along_axis,
        tan,
        tanh,
        tensordot,
        tile,
        transpose,
        tril,
        triu,
        trunc,
        var,
        vdot,
        vstack,
        where,
        while_loop,
        zeros,
        zeros_like,
    )
    from arenite.tensor.compile import compile  # noqa: A004
    from arenite.tensor.tune import tune

__version__ = "0.1.0"

_ROOMS = (
    "codegen device dtype errors fetch frontends generate hazards ir memory model onnxruntime "
    "passes pipeline runtime schedule tensor"
).split()
#: What a user reaches for first, and the module it lives in; the imports above say the same to
#: those who read the types.
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
            "ones ones_like outer pad power prod ravel remainder repeat reshape roll round "
            "scan sign sin sinh sort spec specialize split sqrt square squeeze stack static "
            "std subtract sum swapaxes take take_along_axis tan tanh tensordot tile transpose "
            "tril triu trunc var vdot vstack where while_loop zeros zeros_like"
        ),
        "tensor.compile": "compile",
        "tensor.tune": "tune",
    }.items()
    for name in names.split()
}

__all__ = [
    "Generator",
    "LanguageModel",
    "Model",
    "State",
    "Tensor",
    "TensorSpec",
    "Var",
    "abs",
    "add",
    "all",
    "allclose",
    "any",
    "any_size",
    "arange",
    "arccos",
    "arcsin",
    "arctan",
    "argmax",
    "argmin",
    "argsort",
    "array_equal",
    "asarray",
    "broadcast_arrays",
    "broadcast_to",
    "cat",
    "ceil",
    "clip",
    "codegen",
    "compile",
    "concat",
    "concatenate",
    "cond",
    "cos",
    "cosh",
    "cumprod",
    "cumsum",
    "device",
    "diagonal",
    "diff",
    "divide",
    "dot",
    "dtype",
    "einsum",
    "equal",
    "errors",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "export",
    "eye",
    "fetch",
    "flip",
    "floor",
    "floor_divide",
    "fori_loop",
    "from_dlpack",
    "from_numpy",
    "frontends",
    "full",
    "full_like",
    "generate",
    "greater",
    "greater_equal",
    "gru",
    "hazards",
    "host_call",
    "hstack",
    "inner",
    "ir",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "linspace",
    "load",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_not",
    "lstm",
    "matmul",
    "max",
    "maximum",
    "mean",
    "median",
    "memory",
    "meshgrid",
    "min",
    "minimum",
    "model",
    "moveaxis",
    "multiply",
    "nan_to_num",
    "nonzero",
    "not_equal",
    "ones",
    "ones_like",
    "onnxruntime",
    "outer",
    "pad",
    "passes",
    "pipeline",
    "power",
    "prod",
    "ravel",
    "remainder",
    "repeat",
    "reshape",
    "roll",
    "round",
    "runtime",
    "scan",
    "schedule",
    "sign",
    "sin",
    "sinh",
    "sort",
    "spec",
    "specialize",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "static",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensor",
    "tensordot",
    "tile",
    "transpose",
    "tril",
    "triu",
    "trunc",
    "tune",
    "var",
    "vdot",
    "vstack",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
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
