"""`arenite.compile`: a function of tensors becomes one native program.

The function is called once, with tensors that stand for its arguments; what it returns is the
graph. The compiled function takes arrays and returns arrays in the same structure: one, a tuple,
a list or a dict.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.errors import InvalidArgument
from arenite.ir.graph import Graph, topological
from arenite.ir.node import Node
from arenite.tensor.base import ORIGINS
from arenite.tensor.spec import TensorSpec, spec
from arenite.tensor.tensor import Tensor

if TYPE_CHECKING:
    from arenite.memory import MemoryPlan
    from arenite.runtime.executable import Executable
    from arenite.runtime.kernel import CachedKernel
    from arenite.runtime.profile import Profile

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)


def parse_nbytes(text: int | str | None) -> int | None:
    """Bytes from a number or a text such as "300MiB"; KB and KiB are both 1024 bytes."""
    if text is None or isinstance(text, int):
        return text
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"{text!r} is no size in bytes; write 300MiB, 2GiB or a number")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def compile(  # noqa: A001 - the word for what it does
    function: Callable[..., Any],
    *specs: Any,
    threads: int | None = None,
    memory: int | str | None = None,
) -> CompiledFunction:
    """Compile a function of tensors for arguments of these types.

    A spec is a tensor or an array (its type counts, not its content), or `arenite.spec(shape,
    dtype)`, where sizes may be Vars. `memory` is the most bytes the arena may take: DoesNotFit,
    with what fills it, before anything runs.
    """
    from arenite.pipeline import compile_graph

    names = _argument_names(function, len(specs))
    arguments = [
        _as_spec(given).argument(name, k)
        for k, (given, name) in enumerate(zip(specs, names, strict=True))
    ]
    returned = function(*arguments)
    leaves: list[Node] = []
    structure = _taken_apart(returned, leaves)
    inputs = tuple(argument.node for argument in arguments)
    origins = ORIGINS.subset(topological(leaves))
    graph = Graph(inputs, tuple(leaves), (), origins)
    return CompiledFunction(
        compile_graph(graph, threads=threads, memory=parse_nbytes(memory)), structure
    )


class CompiledFunction:
    """Takes arrays, returns arrays in the structure the function returned."""

    def __init__(self, executable: Executable, structure: Any) -> None:
        self.executable = executable
        self._structure = structure

    def __call__(self, *arrays: Any) -> Any:
        results = iter(self.executable(*map(_as_array, arrays)))
        return _put_together(self._structure, results)

    @property
    def plan(self) -> MemoryPlan:
        return self.executable.plan

    @property
    def kernels(self) -> tuple[CachedKernel, ...]:
        return self.executable.kernels

    @property
    def passes(self) -> Any:
        return self.executable.passes

    def profile(self, *arrays: Any) -> Profile:
        return self.executable.profile(*map(_as_array, arrays))

    def verify(self) -> None:
        self.executable.verify()

    def close(self) -> None:
        self.executable.close()

    def __enter__(self) -> CompiledFunction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CompiledFunction {self.executable!r}>"


def _as_spec(given: Any) -> TensorSpec:
    if isinstance(given, TensorSpec):
        return given
    if isinstance(given, Tensor):
        return TensorSpec(given.shape, given.dtype)
    array = np.asarray(given)
    return spec(array.shape, array.dtype)


def _as_array(given: Any) -> Any:
    return given.numpy() if isinstance(given, Tensor) else given


def _argument_names(function: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return [f"x{k}" for k in range(count)]
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in plain]
    return [*names[:count], *(f"x{k}" for k in range(len(names), count))]


def _taken_apart(returned: Any, leaves: list[Node]) -> Any:
    """The structure, with None where a tensor was; the tensors go into `leaves`."""
    if isinstance(returned, Tensor):
        leaves.append(returned.node)
        return None
    if isinstance(returned, dict):
        return {key: _taken_apart(value, leaves) for key, value in returned.items()}
    if isinstance(returned, tuple | list):
        return type(returned)([_taken_apart(value, leaves) for value in returned])
    raise InvalidArgument(
        "a function to compile returns tensors, or tuples, lists and dicts of them, not "
        f"{type(returned).__name__}"
    )


def _put_together(structure: Any, results: Any) -> Any:
    if structure is None:
        return next(results)
    if isinstance(structure, dict):
        return {key: _put_together(value, results) for key, value in structure.items()}
    return type(structure)([_put_together(value, results) for value in structure])
