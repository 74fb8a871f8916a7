"""`arenite.compile`: a function of tensors becomes one native program.

The function is called once, with tensors that stand for its arguments; what it returns is the
graph. The compiled function takes arrays and returns arrays in the same structure: one, a tuple,
a list or a dict. Where arguments are structure (`arenite.static`), the function is called and
compiled once for each of their values, at the first call that brings it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from arenite.errors import BoundsError, InvalidArgument
from arenite.ir.graph import Graph, everything
from arenite.ir.node import Node
from arenite.memory.amounts import parse_nbytes
from arenite.runtime.arguments import check_targets, no_size
from arenite.runtime.closing import Closing
from arenite.runtime.size_reader import SizeReader
from arenite.tensor.base import ORIGINS, array_of
from arenite.tensor.spec import Static, TensorSpec, spec
from arenite.tensor.structure import LEAF, need_same, put_together, taken_apart
from arenite.tensor.tensor import Tensor
from arenite.tensor.tracing import tracing
from arenite.tensor.variant_states import VariantStates
from arenite.tensor.variants import Variant, VariantCache, Variants

if TYPE_CHECKING:
    from arenite.memory import MemoryPlan
    from arenite.runtime.executable import Executable
    from arenite.runtime.kernel import Kernels
    from arenite.runtime.profile import Profile
    from arenite.runtime.state import States


def compile(  # noqa: A001 - the word for what it does
    function: Callable[..., Any],
    *specs: Any,
    threads: int | None = None,
    memory: int | str | None = None,
    plan: str = "memory",
    winograd: bool = True,
) -> CompiledFunction:
    """Compile a function of tensors for arguments of these types.

    A spec is a tensor or an array (its type counts, not its content), or `arenite.spec(shape,
    dtype)`, where sizes may be Vars. `memory` is the most bytes that the program may take in all,
    "1MiB" or a number: inputs and outputs, weights, states, and everything between. DoesNotFit,
    with what fills it, before anything runs; each value of a static argument has that much.
    `plan` is what bytes are shared for: "memory", as few
    as can be, though work may have to wait for bytes, or "concurrency", only where no work waits
    that data would let run; the plan prints what it costs. Without `winograd` convolutions of 3x3
    taps are summed product by product, which rounds less and takes longer.

    `arenite.static` is the spec of an argument that decides structure: an axis, a permutation, a
    mode. Its values are numbers, bools, strings, None and tuples of them; an array comes to the
    function as a tuple. Each value is traced and compiled at the first call that brings it; the
    16 values used last are kept (`variants`).
    """
    if threads is not None and type(threads) is not int:
        raise InvalidArgument(f"threads is a whole number, not {threads!r}")
    names = _argument_names(function, specs)
    kinds = [_as_kind(given, name) for given, name in zip(specs, names, strict=True)]
    arguments = tuple(zip(names, kinds, strict=True))
    source = _Source(function, arguments, threads, parse_nbytes(memory), plan, winograd)
    return CompiledFunction(source)


@dataclass(frozen=True, slots=True)
class _Source:
    """What is compiled: a function, its arguments by name, and how it is to run."""

    function: Callable[..., Any]
    arguments: tuple[tuple[str, TensorSpec | Static], ...]
    threads: int | None
    memory: int | None  # bytes
    plan: str  # what it is made for
    winograd: bool

    def compile_for(self, values: tuple[Any, ...]) -> Variant:
        """Trace the function with these values of its static arguments, and compile it."""
        from arenite.pipeline.program import compile_program

        left = iter(values)
        inputs: list[Node] = []
        given: list[Any] = []
        for name, kind in self.arguments:
            if isinstance(kind, Static):
                given.append(next(left))
                continue
            tensor = kind.argument(name, len(inputs))
            inputs.append(tensor.node)
            given.append(tensor)
        with tracing() as states:
            structure, leaves = taken_apart(self.function(*given))
        outputs = [_returned(path, leaf) for path, leaf in leaves]
        updates = states.updates
        origins = ORIGINS.subset(everything([*outputs, *(value for _, value in updates)]))
        graph = Graph(tuple(inputs), tuple(outputs), (), origins, tuple(updates))
        unknown = SizeReader([node.shape for node in inputs], graph.vars).missing
        if unknown:
            raise BoundsError(no_size(unknown[0]))
        executable = compile_program(
            graph,
            threads=self.threads,
            memory=self.memory,
            plan=self.plan,
            winograd=self.winograd,
        )
        # One in segments is called and looked at in the same way.
        return Variant(values, cast("Executable", executable), structure)


class CompiledFunction(Closing):
    """Takes arrays, and values for static arguments; returns arrays in the structure the function
    returned. Threads may call it at once."""

    def __init__(self, source: _Source) -> None:
        self._arguments = source.arguments
        self._states = states = VariantStates()
        self._cache = VariantCache(lambda values: states.join(source.compile_for(values)))
        #: Of a function without static arguments.
        self._only: Variant | None = None if self.is_static else self._cache.obtain(())

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        """Run; the results as new arrays, or written into `out`, arrays in the same structure."""
        variant = self._only
        results = None
        if variant is not None and out is None:
            results = variant.executable.quickly(arguments)
        if variant is None or results is None:
            values, arrays = self._sorted_out(arguments)
            variant = self.variant(*values)
            targets = None if out is None else _targets(out, variant.structure)
            with self._states.lent_to(variant):
                results = variant.executable(*arrays, out=targets)
        variant.count_call()
        if out is not None:
            return out
        return results[0] if variant.structure is LEAF else put_together(variant.structure, results)

    def profile(self, *arguments: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times."""
        values, arrays = self._sorted_out(arguments)
        variant = self.variant(*values)
        with self._states.lent_to(variant):
            return variant.executable.profile(*arrays)

    def run_checked(self, *arguments: Any) -> Any:
        """Run launch by launch, every byte watched: see Executable.run_checked."""
        values, arrays = self._sorted_out(arguments)
        variant = self.variant(*values)
        with self._states.lent_to(variant):
            results = variant.executable.run_checked(*arrays)
        return put_together(variant.structure, results)

    # Variants.

    @property
    def is_static(self) -> bool:
        """Whether an argument is structure, so that there is a program for each of its values."""
        return any(isinstance(kind, Static) for _, kind in self._arguments)

    @property
    def variants(self) -> Variants:
        """What is compiled now, with counts."""
        return self._cache.snapshot()

    def variant(self, *values: Any) -> Variant:
        """The program for these values of the static arguments, compiled if it is not there."""
        return self._cache.obtain(values)

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
        [only] = self.variants
        executable: Executable = only.executable
        return executable

    @property
    def plan(self) -> MemoryPlan:
        return self.executable.plan

    @property
    def kernels(self) -> Kernels:
        return self.executable.kernels

    @property
    def passes(self) -> Any:
        return self.executable.passes

    @property
    def state(self) -> States:
        """What lives from call to call, by name; one for all values of static arguments."""
        return self._states.states

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

    def reset_state(self) -> None:
        """Make all states zero."""
        self._states.clear()

    def close(self) -> None:
        """Give every byte back to the system. Returned arrays are the caller's and stay."""
        self._only = None
        self._cache.close()
        self._states.close()

    def __repr__(self) -> str:
        if self.is_static:
            return f"<CompiledFunction: {len(self.variants)} variants>"
        return f"<CompiledFunction {self.executable!r}>"


def _as_kind(given: Any, name: str) -> TensorSpec | Static:
    if isinstance(given, TensorSpec | Static):
        return given
    if isinstance(given, Tensor):
        return TensorSpec(given.shape, given.dtype)
    try:
        array = array_of(given)
        return spec(array.shape, array.dtype)
    except ValueError:
        raise InvalidArgument(
            f"{type(given).__name__} is no type for argument {name!r}; give an array, a tensor, "
            "arenite.spec(shape, dtype) or arenite.static"
        ) from None


def _as_array(given: Any) -> Any:
    return given.numpy() if isinstance(given, Tensor) else given


def _argument_names(function: Callable[..., Any], specs: Sequence[Any]) -> list[str]:
    if not callable(function):
        raise InvalidArgument(f"{type(function).__name__} is no function to compile")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return [f"x{k}" for k in range(len(specs))]
    try:
        signature.bind(*specs)
    except TypeError as error:
        raise InvalidArgument(
            f"{len(specs)} specs do not fit a function of {signature}: {error}"
        ) from None
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [one.name for one in signature.parameters.values() if one.kind in plain]
    return [*names[: len(specs)], *(f"x{k}" for k in range(len(names), len(specs)))]


def _targets(out: Any, wanted: Any) -> list[Any]:
    """The arrays in `out`, which has the structure of the results."""
    structure, leaves = taken_apart(out)
    need_same("out", structure, wanted)
    targets = [leaf for _, leaf in leaves]
    check_targets(targets, [f"out{path}" for path, _ in leaves])
    return targets


def _returned(path: str, leaf: Any) -> Node:
    if isinstance(leaf, Tensor):
        return leaf.node
    raise InvalidArgument(
        "a function to compile returns tensors, or tuples, lists and dicts of them; "
        f"result{path} is {type(leaf).__name__}"
    )
