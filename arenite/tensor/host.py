"""Python functions in the middle of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arenite.ir.ops import make
from arenite.ir.ops.host import HostFunction
from arenite.tensor.base import node_of
from arenite.tensor.creation import asarray, wrap
from arenite.tensor.signature import TensorSpec


def host_call(function: Callable[..., Any], result: Any, *operands: Any) -> Any:
    """What a Python function of arrays returns, as a tensor.

    `result` says what that is: `arenite.spec(shape, dtype)`, or a tensor or array like it. The
    function gets read-only arrays, is called in every run that needs it, and must depend on its
    arguments alone. Native code returns for it, so it ends a segment; the memory of what it returns
    is planned like any other.
    """
    if not isinstance(result, TensorSpec):
        like = asarray(result)
        result = TensorSpec(like.shape, like.dtype)
    nodes = [node_of(asarray(one)) for one in operands]
    called = HostFunction(function)
    return wrap(make("host", *nodes, function=called, shape=result.shape, dtype=result.dtype))
