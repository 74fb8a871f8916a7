"""`arenite.compile`: a function of tensors becomes one native program.

The function is called once, with tensors that stand for its arguments; what it returns is the
graph. The compiled function takes arrays and returns arrays in the same structure: one, a tuple,
a list or a dict. Where arguments are structure (`arenite.static`), the function is called and
compiled once for each of their values, at the first call that brings it.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.errors import InvalidArgument, RunFailed
from arenite.ir.graph import Graph, everything
from arenite.ir.node import Node
from arenite.memory.tables import aligned
from arenite.runtime import forks
from arenite.runtime.closing import Closing
from arenite.tensor.base import ORIGINS
from arenite.tensor.spec import Static, TensorSpec, spec
from arenite.tensor.tensor import Tensor

if TYPE_CHECKING:
    from arenite.memory import MemoryPlan
    from arenite.runtime.executable import Executable
    from arenite.runtime.kernel import CachedKernel
    from arenite.runtime.profile import Profile

#: Values of static arguments for which a function is kept compiled.
MAX_VARIANTS = 16

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

    `arenite.static` is the spec of an argument that decides structure: an axis, a permutation, a
    mode. Its values are numbers, bools, strings, None and tuples of them; an array comes to the
    function as a tuple. Each value is traced and compiled at the first call that brings it; the
    16 values used last are kept (`variants`).
    """
    names = _argument_names(function, len(specs))
    kinds = [given if isinstance(given, Static) else _as_spec(given) for given in specs]
    made = CompiledFunction(function, list(zip(names, kinds, strict=True)), threads, memory)
    made.compile_only()
    return made


@dataclass(eq=False, slots=True)
class Variant:
    """The program for one set of values of the static arguments."""

    values: tuple[Any, ...]
    executable: Executable
    structure: Any  # what the function returned, with None where a tensor was
    n_calls: int = 0
    last_call: int = 0  # counted over all variants


@dataclass(frozen=True, slots=True)
class Variants(Sequence[Variant]):
    """The variants a compiled function keeps, the one called last first."""

    kept: tuple[Variant, ...]
    n_compiled: int
    n_dropped: int

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, k: Any) -> Any:
        return self.kept[k]

    def __iter__(self) -> Iterator[Variant]:
        return iter(self.kept)

    def __str__(self) -> str:
        rows = [["values", "calls", "kernels", "arena bytes"]] + [
            [
                ", ".join(map(repr, one.values)),
                str(one.n_calls),
                str(len(one.executable.kernels)),
                str(one.executable.plan.peak_nbytes),
            ]
            for one in self.kept
        ]
        return (
            aligned(rows, {1, 2, 3})
            + f"\n\n{self.n_compiled} compiled, {self.n_dropped} dropped, {len(self)} kept of at "
            f"most {MAX_VARIANTS}"
        )


class CompiledFunction(Closing):
    """Takes arrays, and values for static arguments; returns arrays in the structure the function
    returned. Threads may call it at once."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[str, TensorSpec | Static]],
        threads: int | None = None,
        memory: int | str | None = None,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._threads = threads
        self._memory = parse_nbytes(memory)
        self._kept: dict[str, Variant] = {}
        self._only: Variant | None = None  # of a function without static arguments
        self._n_calls = self._n_compiled = self._n_dropped = 0
        self._is_closed = False
        self._lock = threading.Lock()  # around the books
        self._compiling = threading.Lock()
        forks.watch(self)

    def __call__(self, *arguments: Any) -> Any:
        only = self._only
        if only is not None and len(arguments) == len(self._arguments):
            # What every call of a function without static arguments takes: as little as can be.
            with self._lock:
                only.n_calls += 1
            results = only.executable(
                *[given if type(given) is np.ndarray else _as_array(given) for given in arguments]
            )
            structure = only.structure
            return results[0] if structure is None else _put_together(structure, iter(results))
        values, arrays = self._sorted_out(arguments)
        variant = self.variant(*values)
        return _put_together(variant.structure, iter(variant.executable(*arrays)))

    def profile(self, *arguments: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times."""
        values, arrays = self._sorted_out(arguments)
        return self.variant(*values).executable.profile(*arrays)

    def run_checked(self, *arguments: Any) -> Any:
        """Run launch by launch, every byte watched: see Executable.run_checked."""
        values, arrays = self._sorted_out(arguments)
        variant = self.variant(*values)
        return _put_together(variant.structure, iter(variant.executable.run_checked(*arrays)))

    # Variants.

    @property
    def is_static(self) -> bool:
        """Whether an argument is structure, so that there is a program for each of its values."""
        return any(isinstance(kind, Static) for _, kind in self._arguments)

    @property
    def variants(self) -> Variants:
        """What is compiled now, with counts."""
        with self._lock:
            kept = sorted(self._kept.values(), key=lambda one: -one.last_call)
            return Variants(tuple(kept), self._n_compiled, self._n_dropped)

    def variant(self, *values: Any) -> Variant:
        """The program for these values of the static arguments, compiled if it is not there."""
        # Text tells 1, 1.0 and True apart, and -0.0 from 0.0.
        key = repr(values)
        found = self._counted(key)
        if found is None:
            with self._compiling:
                found = self._counted(key)
                if found is None:
                    found = self._keep(key, self._compiled_for(values))
        return found

    def compile_only(self) -> None:
        """Compile the one program of a function without static arguments."""
        if not self.is_static:
            self._only = self.variant()
            self._only.n_calls = 0

    def _counted(self, key: str) -> Variant | None:
        with self._lock:
            if self._is_closed:
                raise RunFailed("this function was closed; compile it again")
            found = self._kept.get(key)
            if found is not None:
                self._n_calls += 1
                found.n_calls += 1
                found.last_call = self._n_calls
            return found

    def _keep(self, key: str, made: Variant) -> Variant:
        with self._lock:
            if self._is_closed:
                made.executable.close()
                raise RunFailed("this function was closed while it was compiled")
            self._n_calls += 1
            made.n_calls, made.last_call = 1, self._n_calls
            self._kept[key] = made
            self._n_compiled += 1
            if len(self._kept) > MAX_VARIANTS:
                # Not closed: another thread may be about to run it. It goes with its last user.
                oldest = min(self._kept, key=lambda key: self._kept[key].last_call)
                del self._kept[oldest]
                self._n_dropped += 1
        return made

    def _compiled_for(self, values: Sequence[Any]) -> Variant:
        from arenite.pipeline import compile_graph

        left = iter(values)
        inputs: list[Node] = []
        given: list[Any] = []
        for name, kind in self._arguments:
            if isinstance(kind, Static):
                given.append(next(left))
                continue
            tensor = kind.argument(name, len(inputs))
            inputs.append(tensor.node)
            given.append(tensor)
        leaves: list[Node] = []
        structure = _taken_apart(self._function(*given), leaves)
        origins = ORIGINS.subset(everything(leaves))
        graph = Graph(tuple(inputs), tuple(leaves), (), origins)
        executable = compile_graph(graph, threads=self._threads, memory=self._memory)
        return Variant(tuple(values), executable, structure)

    def _sorted_out(self, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Values of static arguments, and arrays."""
        if len(arguments) != len(self._arguments):
            names = ", ".join(name for name, _ in self._arguments)
            raise InvalidArgument(
                f"{len(self._arguments)} arguments are needed ({names}), not {len(arguments)}"
            )
        values, arrays = [], []
        for given, (name, kind) in zip(arguments, self._arguments, strict=True):
            if isinstance(kind, Static):
                values.append(kind.value(given, name))
            else:
                arrays.append(_as_array(given))
        return values, arrays

    # The one program of a function without static arguments.

    @property
    def executable(self) -> Executable:
        if self.is_static:
            raise InvalidArgument(
                "this function has a program for each value of its static arguments; "
                "variant(...) gives one, variants all there are"
            )
        with self._lock:
            [only] = self._kept.values()
        return only.executable

    @property
    def plan(self) -> MemoryPlan:
        return self.executable.plan

    @property
    def kernels(self) -> tuple[CachedKernel, ...]:
        return self.executable.kernels

    @property
    def passes(self) -> Any:
        return self.executable.passes

    # All there are.

    def verify(self) -> None:
        """Check the plans and prove the orders; RaceFound or InvalidPlan."""
        for one in self.variants:
            one.executable.verify()

    def cancel(self) -> None:
        """End the runs in progress, from another thread."""
        for one in self.variants:
            one.executable.cancel()

    def reset(self) -> None:
        """Make what failed usable again."""
        for one in self.variants:
            one.executable.reset()

    def close(self) -> None:
        """Give every byte back to the system. Returned arrays are the caller's and stay."""
        with self._lock:
            self._is_closed = True
            self._only = None
        for one in self.variants:
            one.executable.close()

    def forget_after_fork(self) -> None:
        """In a forked process: no thread is here to let go of a lock."""
        self._lock, self._compiling = threading.Lock(), threading.Lock()

    def __repr__(self) -> str:
        if self.is_static:
            return f"<CompiledFunction: {len(self.variants)} variants>"
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
