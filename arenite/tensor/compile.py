"""`arenite.compile`: a function of tensors becomes one native program.

The function is called once, with tensors that stand for its arguments; what it returns is the
graph. Arguments are arrays, or tuples, lists, dicts and dataclasses of them, and what the compiled
function returns has the structure of what the function did. Where arguments are structure
(`arenite.static`), the function is called and compiled once for each of their values, at the first
call that brings it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from operator import is_
from os import PathLike
from typing import TYPE_CHECKING, Any

from arenite.device.allocator import readable_nbytes
from arenite.errors import BoundsError, InvalidArgument
from arenite.ir.graph import Graph, everything
from arenite.ir.node import Node
from arenite.program.arguments import SizeReader, check_targets, no_size
from arenite.program.closing import Closing
from arenite.program.options import Options, parse_nbytes
from arenite.runtime.variants import Variant, VariantCache, Variants
from arenite.tensor.base import ORIGINS
from arenite.tensor.closure import ClosureNames
from arenite.tensor.signature import Signature
from arenite.tensor.structure import LEAF, flatten, named, need_same, unflatten
from arenite.tensor.tensor import Tensor
from arenite.tensor.tracing import tracing
from arenite.tensor.variant_states import VariantStates

if TYPE_CHECKING:
    from arenite.program.cached_kernel import Kernels
    from arenite.runtime.compiled_program import CompiledProgram, Plan
    from arenite.runtime.executable import Executable
    from arenite.runtime.profile import Profile
    from arenite.runtime.state import States


def compile(  # noqa: A001 - the word for what it does
    function: Callable[..., Any],
    *specs: Any,
    threads: int | None = None,
    memory: int | str | None = None,
    plan: str = "memory",
    winograd: bool = True,
    device: str = "cpu",
) -> CompiledFunction:
    """Compile a function of tensors for arguments of these types.

    A spec is a tensor or an array (its type counts, not its content), `arenite.spec(shape,
    dtype)`, where sizes may be Vars, or a tuple, list, dict or dataclass of these; the plan names
    what is in it: `params.layers.0.w`. Tensors and arrays that the function closes over are called
    what its source calls them, `self.weights[3]`, unless they have a name (`Tensor.named`).
    `memory` is the most bytes that the program may take in all,
    "1MiB" or a number: inputs and outputs, weights, states, and everything between. DoesNotFit,
    with what fills it, before anything runs; each value of a static argument has that much.
    `plan` is what bytes are shared for: "memory", as few
    as can be, though work may have to wait for bytes, or "concurrency", only where no work waits
    that data would let run; the plan prints what it costs. Without `winograd` convolutions of 3x3
    taps are summed product by product, which takes longer; it rounds less from some 64 channels on,
    and more below (`docs/stability.md`). `device` is what the program runs on.

    `arenite.static` is the spec of an argument that decides structure: an axis, a permutation, a
    mode. Its values are numbers, bools, strings, None and tuples of them; an array comes to the
    function as a tuple. Each value is traced and compiled at the first call that brings it; the
    16 values used last are kept (`variants`).
    """
    if threads is not None and type(threads) is not int:
        raise InvalidArgument(f"threads is a whole number, not {threads!r}")
    signature = Signature.of(function, specs)
    options = Options(parse_nbytes(memory), plan, winograd, device)
    source = _Source(function, signature, threads, options)
    return CompiledFunction(source)


@dataclass(frozen=True, slots=True)
class _Source:
    """What is compiled: a function, its arguments, and how it is to run."""

    function: Callable[..., Any]
    signature: Signature
    threads: int | None
    options: Options

    def compile_for(self, values: tuple[Any, ...]) -> Variant:
        """Trace the function with these values of its static arguments, and compile it."""
        from arenite.garbage import collected_less_often

        with collected_less_often():
            return self._compile_for(values)

    def _compile_for(self, values: tuple[Any, ...]) -> Variant:
        from arenite.pipeline.program import compile_program

        inputs, given = self.signature.traced(values)
        names_of_data = ClosureNames(self.function)
        with tracing() as states, names_of_data.listening():
            structure, leaves = flatten(self.function(*given))
        outputs = [_returned(path, leaf) for path, leaf in leaves]
        updates = states.updates
        nodes = everything([*outputs, *(value for _, value in updates)])
        origins = ORIGINS.subset(nodes)
        names_of_data.give_to(origins, nodes)
        names = _output_names([path for path, _ in leaves])
        graph = Graph(tuple(inputs), tuple(outputs), names, origins, tuple(updates))
        unknown = SizeReader([node.shape for node in inputs], graph.vars).missing
        if unknown:
            raise BoundsError(no_size(unknown[0]))
        executable = compile_program(graph, self.options, threads=self.threads)
        return Variant(values, executable, structure)


class CompiledFunction(Closing):
    """Takes arrays, and values for static arguments; returns arrays in the structure the function
    returned. Threads may call it at once."""

    def __init__(self, source: _Source) -> None:
        self._signature = source.signature
        self._is_flat = source.signature.is_flat
        self._states = states = VariantStates()
        self._cache = VariantCache(lambda values: states.join(source.compile_for(values)))
        #: Of a function without static arguments.
        self._only: Variant | None = None if self.is_static else self._cache.obtain(())

    def __call__(self, *arguments: Any, out: Any = None) -> Any:
        """Run; the results as new arrays, or written into `out`, arrays in the same structure.

        `out` is what is returned, but for an array with room for more rows than the run found:
        of that the first, as many as were found.
        """
        variant = self._only
        results, targets = None, None
        is_leaf = out is None or (variant is not None and variant.structure is LEAF)
        if variant is not None and self._is_flat and is_leaf:
            results = variant.executable.fast_path(arguments, None if out is None else (out,))
        if variant is None or results is None:
            values, arrays = self._signature.sorted_out(arguments)
            variant = self.variant(*values)
            targets = None if out is None else _targets(out, variant.structure)
            with self._states.lent_to(variant):
                results = variant.executable(*arrays, out=targets)
        variant.count_call()
        if out is not None and (targets is None or all(map(is_, results, targets))):
            return out
        return results[0] if variant.structure is LEAF else unflatten(variant.structure, results)

    def profile(self, *arguments: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times."""
        values, arrays = self._signature.sorted_out(arguments)
        variant = self.variant(*values)
        with self._states.lent_to(variant):
            return variant.executable.profile(*arrays)

    def run_checked(self, *arguments: Any) -> Any:
        """Run launch by launch, every byte watched: see Executable.run_checked."""
        values, arrays = self._signature.sorted_out(arguments)
        variant = self.variant(*values)
        with self._states.lent_to(variant):
            results = variant.executable.run_checked(*arrays)
        return unflatten(variant.structure, results)

    # Variants.

    @property
    def is_static(self) -> bool:
        """Whether an argument is structure, so that there is a program for each of its values."""
        return self._signature.is_static

    @property
    def variants(self) -> Variants:
        """What is compiled now, with counts."""
        return self._cache.snapshot()

    def variant(self, *values: Any) -> Variant:
        """The program for these values of the static arguments, compiled if it is not there."""
        return self._cache.obtain(values)

    # The one program of a function without static arguments.

    @property
    def executable(self) -> CompiledProgram:
        """The program; of a function with static arguments each value has one: `variant(...)`."""
        if self.is_static:
            raise InvalidArgument(
                "this function has a program for each value of its static arguments; "
                "variant(...) gives one, variants all there are"
            )
        [only] = self.variants
        return only.executable

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The program, or where it is cut those of its segments that are compiled now."""
        return self.executable.executables

    @property
    def on_cpu(self) -> dict[str, str]:
        """Ops that the device refuses and the CPU does, and why."""
        return self.executable.on_cpu

    @property
    def plan(self) -> Plan:
        """Where every value lives, and what the program takes."""
        return self.executable.plan

    @property
    def kernels(self) -> Kernels:
        """The kernels, which print as a table; each prints as its loops."""
        return self.executable.kernels

    @property
    def passes(self) -> Any:
        """The graph after each pass."""
        return self.executable.passes

    def save_html(
        self, path: str | PathLike[str], title: str = "", profile: Profile | None = None
    ) -> None:
        """Write a page that shows all of it: see Executable.save_html."""
        self.executable.save_html(path, title, profile)

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

    def _repr_html_(self) -> str:
        """The program, its kernels and what memory it takes; of several, a line for each."""
        text = f"<p>{escape(repr(self))}</p>"
        if self.is_static:
            return text + self.variants._repr_html_()
        plan = self.plan
        memory = f"<p>{readable_nbytes(plan.total_nbytes)} of memory in all</p>"
        return text + memory + self.kernels._repr_html_()

    def __repr__(self) -> str:
        if self.is_static:
            return f"<CompiledFunction: {len(self.variants)} variants>"
        return f"<CompiledFunction {self.executable!r}>"


def _targets(out: Any, wanted: Any) -> list[Any]:
    """The arrays in `out`, which has the structure of the results."""
    structure, leaves = flatten(out)
    need_same("out", structure, wanted)
    targets = [leaf for _, leaf in leaves]
    check_targets(targets, [f"out{path}" for path, _ in leaves])
    return targets


def _output_names(paths: Sequence[str]) -> tuple[str, ...]:
    """Names of results: keys and fields where there are some, else numbers."""
    names = [named("", path) for path in paths]
    keys = [f"out{k}" if not name or name.isdigit() else name for k, name in enumerate(names)]
    return tuple(keys if len(set(keys)) == len(keys) else (f"out{k}" for k in range(len(keys))))


def _returned(path: str, leaf: Any) -> Node:
    if isinstance(leaf, Tensor):
        return leaf.node
    raise InvalidArgument(
        "a function to compile returns tensors, or tuples, lists and dicts of them; "
        f"result{path} is {type(leaf).__name__}"
    )
