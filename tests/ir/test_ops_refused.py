"""What the type rules of ops refuse, in the words a person sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arenite.dtype import BY_NAME
from arenite.errors import (
    AreniteError,
    InvalidArgument,
    ShapeMismatch,
    TypeMismatch,
)
from arenite.ir import (
    Node,
    Var,
    constant,
    full,
    make,
)
from arenite.ir.compose.neural import attention
from tests.ir.op_examples import x

F32, I8, I64, U8, BOOL = (BY_NAME[n] for n in ("float32", "int8", "int64", "uint8", "bool"))
C64, Q4 = BY_NAME["complex64"], BY_NAME["q4_0"]


def last(image: Node, panels: Node, **attrs: Any) -> Node:
    return make("conv_last", image, panels, **{"channels": 34, **LAST, **attrs})


M = x(3, 4)
N = Var("n", 0, 9)
CONV: dict[str, Any] = {"strides": (1,), "padding": ((0, 0),), "dilations": (1,), "groups": 1}
LAST: dict[str, Any] = {"strides": (1,), "padding": ((0, 0),), "dilations": (1,)}
PANELS = x(2, 2, 3, 2, 16, index=1)
SEED = full((), 1, BY_NAME["uint64"])
PLACES = constant(np.array([[0, 1]]))
KEYS = x(1, 2, 5, 4)
BYTES = (x(1, 2, 5, 4, dtype=I8),) * 2
ATTENTION: dict[str, Any] = {"scale": 1.0, "causal": False, "offset": 0, "window": 0}


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            lambda: make("add", M, x(4, 3)),
            ShapeMismatch,
            r"add: shapes differ: float32\[3, 4\] and",
        ),
        (
            lambda: make("add", M, x(3, 4, dtype=I8)),
            TypeMismatch,
            "add: dtypes differ: .* cast one",
        ),
        (lambda: make("exp", x(3, dtype=I8)), TypeMismatch, r"exp takes float, not int8\[3\]"),
        (lambda: make("div", x(3, dtype=I8), x(3, dtype=I8)), TypeMismatch, "div takes"),
        (lambda: make("pow", x(3, dtype=C64), x(3, dtype=C64)), TypeMismatch, "pow takes"),
        (lambda: make("where", M, M, M), TypeMismatch, "where: the condition must be bool"),
        (lambda: make("where", x(3, dtype=BOOL), M, M), ShapeMismatch, r"has shape \(3,\)"),
        (lambda: make("cast", M, dtype=Q4), TypeMismatch, "cast makes numbers, not q4_0"),
        (lambda: make("cast", x(32, dtype=Q4), dtype=F32), TypeMismatch, "cast takes"),
        (lambda: make("bitcast", M, dtype=I64), TypeMismatch, "has 32, int64 64"),
        (lambda: make("bitcast", M, dtype=Q4), TypeMismatch, "keeps the bits"),
        (lambda: make("permute", M, axes=(0,)), ShapeMismatch, r"axes \(0,\) are no order"),
        (lambda: make("expand", M, shape=(3, 5)), ShapeMismatch, "does not stretch"),
        (lambda: make("pad", M, padding=((1, 1),), value=0), ShapeMismatch, r"pad: \(\(1, 1\),\)"),
        (
            lambda: make("slice", M, start=(0, 0), stop=(3, 5), step=(1, 1)),
            ShapeMismatch,
            r"range\(0, 5, 1\) leaves axis 1 of float32\[3, 4\]",
        ),
        (
            lambda: make("slice", M, start=(3, 0), stop=(0, 4), step=(-1, 1)),
            ShapeMismatch,
            r"range\(3, 0, -1\) leaves axis 0",
        ),
        (lambda: make("slice", M, start=(0,), stop=(3,), step=(1,)), ShapeMismatch, "one each"),
        (
            lambda: make("slice", M, start=(0, 0), stop=(3, 4), step=(1, 0)),
            ShapeMismatch,
            "not 0",
        ),
        (lambda: make("concat", M, x(3, 4, dtype=I8), axis=0), TypeMismatch, "concat: dtypes"),
        (lambda: make("concat", M, x(3, 5), axis=0), ShapeMismatch, "differ elsewhere than"),
        (lambda: make("concat", M, axis=2), ShapeMismatch, r"axis 2 is not within 0\.\.1"),
        (lambda: make("sum", M, axes=(1, 1)), ShapeMismatch, "name an axis twice"),
        (lambda: make("sum", x(3, dtype=BOOL), axes=(0,)), TypeMismatch, "sum takes"),
        (lambda: make("any", M, axes=(0,)), TypeMismatch, "any takes bool"),
        (lambda: make("argmax", M, axis=-1), ShapeMismatch, "axis -1"),
        (lambda: make("cumsum", M, axis=2), ShapeMismatch, "cumsum: axis 2"),
        (lambda: make("gather", M, M, axis=0), TypeMismatch, "indices must be int64"),
        (
            lambda: make("gather_elements", M, PLACES, axis=0),
            ShapeMismatch,
            r"indices of shape \(1, 2\) differ",
        ),
        (
            lambda: make("scatter_elements", x(2, 2), PLACES, x(1, 3), axis=0, reduction="none"),
            ShapeMismatch,
            r"updates of shape \(1, 3\)",
        ),
        (
            lambda: make(
                "scatter_elements",
                x(2, 2, dtype=BOOL),
                PLACES,
                x(1, 2, dtype=BOOL),
                axis=0,
                reduction="add",
            ),
            TypeMismatch,
            "scatter_elements with add takes",
        ),
        (
            lambda: make(
                "scatter_elements",
                x(2, 2, dtype=C64),
                PLACES,
                x(1, 2, dtype=C64),
                axis=0,
                reduction="max",
            ),
            TypeMismatch,
            "scatter_elements with max takes",
        ),
        (
            lambda: make("scatter_elements", M, PLACES, M, axis=0, reduction="sub"),
            InvalidArgument,
            "reduction = 'sub'",
        ),
        (
            lambda: make("matmul", M, x(4, dtype=F32), transpose_a=False, transpose_b=False),
            ShapeMismatch,
            "takes matrices",
        ),
        (
            lambda: make("matmul", M, x(4, 2, dtype=I8), transpose_a=False, transpose_b=False),
            TypeMismatch,
            "matmul: dtypes differ",
        ),
        (
            lambda: make("attention", KEYS, KEYS, x(1, 2, 5, 4, dtype=C64), **ATTENTION),
            TypeMismatch,
            "attention takes float",
        ),
        (
            lambda: make(
                "attention",
                KEYS,
                KEYS,
                x(1, 2, 5, 4, dtype=BY_NAME["float16"]),
                **ATTENTION,
            ),
            TypeMismatch,
            "attention: dtypes float32 and float16",
        ),
        (
            lambda: make(
                "attention",
                KEYS,
                KEYS,
                KEYS,
                x(1, 2, 5, 5, dtype=I8),
                **ATTENTION,
            ),
            TypeMismatch,
            "the mask is bool or float32",
        ),
        (
            lambda: make("attention", KEYS, x(1, 2, 5, 4, dtype=I8), KEYS, **ATTENTION),
            TypeMismatch,
            "attention takes float",
        ),
        (
            lambda: make("attention", KEYS, KEYS, KEYS, x(1, 2, 5), x(1, 2, 5), **ATTENTION),
            TypeMismatch,
            "that have scales are int8",
        ),
        (
            lambda: make("attention", KEYS, *BYTES, x(1, 2, 5), x(1, 5, 2), **ATTENTION),
            ShapeMismatch,
            r"one for each key is \(1, 2, 5\)",
        ),
        (
            lambda: make(
                "attention", x(1, 2, 5, 4, dtype=BY_NAME["float16"]), KEYS, KEYS, **ATTENTION
            ),
            TypeMismatch,
            "as wide as queries",
        ),
        (
            lambda: make("attention", KEYS, KEYS, KEYS, **(ATTENTION | {"window": 3})),
            InvalidArgument,
            "say causal=True",
        ),
        (
            lambda: make("attention", KEYS, KEYS, KEYS, **(ATTENTION | {"window": -1})),
            InvalidArgument,
            "window = -1",
        ),
        (
            lambda: attention(KEYS, *BYTES, k_scale=x(1, 2, 5)),
            InvalidArgument,
            "scales of keys and of values, or neither",
        ),
        (
            lambda: attention(KEYS, KEYS, KEYS, causal=True, window=0),
            InvalidArgument,
            "a window of 0 keys shows none",
        ),
        (lambda: make("conv", x(1, 1, 1, 1, 1, 1), M, **CONV), ShapeMismatch, "one to three"),
        (lambda: make("conv", x(1, 2, 3, 3), x(1, 2, 1, 1), **CONV), ShapeMismatch, "one each"),
        (lambda: last(x(1, 9), PANELS), ShapeMismatch, "one to three spatial axes"),
        (lambda: last(x(1, 9, 5), PANELS), ShapeMismatch, "for 5 channels in"),
        (lambda: last(x(1, 9, 4), PANELS, channels=33), ShapeMismatch, "33 channels of 2 groups"),
        (lambda: last(x(1, 9, 4), PANELS, channels=0), ShapeMismatch, "0 channels"),
        (lambda: last(x(1, 9, 4), PANELS, strides=(1, 1)), ShapeMismatch, "not one each for 1"),
        (lambda: last(x(1, 9, 4), PANELS, dilations=(5,)), ShapeMismatch, "a kernel of 11"),
        (lambda: last(x(1, 9, 4, dtype=BY_NAME["int32"]), PANELS), TypeMismatch, "dtypes differ"),
        (
            lambda: make("depthwise_last", x(1, 9, 4), x(3, 5, index=1), **LAST),
            ShapeMismatch,
            r"w is \[\*K, C\]",
        ),
        (
            lambda: make("depthwise_last", x(1, 2, 4), x(3, 4, index=1), **LAST),
            ShapeMismatch,
            "a kernel of 3 does not fit 2",
        ),
        (lambda: make("iota", axis=1, shape=(3,), dtype=F32), ShapeMismatch, "iota: axis 1"),
        (lambda: make("iota", axis=0, shape=(3,), dtype=BOOL), TypeMismatch, "not in bool"),
        (lambda: full((-1,), 0, F32), ShapeMismatch, "may be negative"),
        (lambda: x(N - 1), ShapeMismatch, "size n - 1, which may be negative"),
        (lambda: make("random_bits", M, counter=0, shape=(1,)), TypeMismatch, "must be uint64"),
        (
            lambda: make("random_bits", x(2, dtype=BY_NAME["uint64"]), counter=0, shape=(1,)),
            ShapeMismatch,
            "the seed is one number",
        ),
        (lambda: make("random_bits", SEED, counter=-1, shape=(1,)), InvalidArgument, "64 bits"),
    ],
)
def test_types_that_do_not_fit(wrong: Any, error: type[AreniteError], message: str) -> None:
    with pytest.raises(error, match=message):
        wrong()
