"""CompiledModel: a model, compiled; call it with arrays, by position or by name.

Named sizes are bound at each call. What a call brings that no program was made for is compiled when
it comes first: structure (values of inputs that decide it, lengths of sequences, ranks), and sizes
outside of what the programs assume. The 16 programs used last are kept; under a budget one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arenite.errors import RunFailed, printable
from arenite.frontends.onnx.inputs import WrongBranch
from arenite.model.arguments import Call
from arenite.model.programs import Programs, Source
from arenite.model.translations import SHAPED, SHAPED_STRINGS, STRINGS, TENSOR
from arenite.program.closing import Closing
from arenite.records import NamedTuple
from arenite.runtime.executable import Executable
from arenite.runtime.variants import Variant, Variants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.program.cached_kernel import Kernels
    from arenite.runtime.compiled_program import CompiledProgram, Plan
    from arenite.runtime.profile import Profile

Array: TypeAlias = "NDArray[Any]"


class Quick(NamedTuple):
    """A short way for calls like the last: of the same program, without a check in Python."""

    variant: Variant
    names: list[str]  # of outputs
    known: list[tuple[int, np.dtype[Any], tuple[int, ...], bytes]]  # inputs that decide structure
    data: list[int] | None  # places of the others; None: all are

    @staticmethod
    def of(variant: Variant, call: Call) -> Quick | None:
        """That of a call where tensors alone come and go."""
        if any(one != TENSOR for one in variant.structure.values()):
            return None
        [request] = variant.values
        known, data = [], []
        for k, (leaf, array) in enumerate(zip(call.structure.leaves, call.arrays, strict=True)):
            if leaf.path in request.known.arrays:
                known.append((k, array.dtype, array.shape, array.tobytes()))
            else:
                data.append(k)
        return Quick(variant, list(variant.structure), known, data if known else None)

    def run(self, given: Sequence[Any]) -> dict[str, Any] | None:
        """The outputs, if the program takes these arrays as they are."""
        for k, dtype, shape, content in self.known:
            one = given[k]
            if type(one) is not np.ndarray or one.dtype != dtype or one.shape != shape:
                return None
            if one.tobytes() != content:
                return None
        if self.data is not None:
            given = [given[k] for k in self.data]
        results = self.variant.executable.fast_path(given)
        if results is None:
            return None
        self.variant.count_call()
        return dict(zip(self.names, results, strict=True))


class CompiledModel(Closing):
    """Call it with arrays; it returns a dict of arrays by output name. Threads may call it at once.

    y = exe(x)["y"]; exe(x=x); exe({"x": x})
    """

    def __init__(self, source: Source, values: Mapping[str, Any]) -> None:
        self._source = source
        self._file = source.record.file
        self._signature = source.signature
        self._has_strings = source.record.description.has_strings
        self._programs = Programs(source, self._forget)
        #: For calls like the last: its program, and the sizes of it.
        self._last: tuple[Variant, dict[str, int]] | None = None
        self._quick: Quick | None = None
        self._names = source.signature.inputs.names
        self._programs.prepare(values)

    def _forget(self) -> None:
        self._quick = self._last = None

    # Calling.

    def __call__(self, *arrays: Any, **named: Any) -> dict[str, Any]:
        """Run with arrays by position or by name, or with one dict of them."""
        quick = self._quick
        if quick is not None:
            given = self._in_order(arrays, named)
            try:
                results = None if given is None else quick.run(given)
            except WrongBranch:
                results = None
            if results is not None:
                return results
        return self._call(arrays, named)

    def _in_order(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any] | None:
        """All inputs by position; None where that takes more than a look."""
        if not named and len(arrays) == len(self._names) and not isinstance(arrays[0], dict):
            return arrays
        if len(arrays) == 1 and not named and isinstance(arrays[0], dict):
            arrays, named = [], arrays[0]
        if arrays or len(named) != len(self._names):
            return None
        return [named.get(name) for name in self._names]

    def _call(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        call = self._signature.call(arrays, named)
        with self._in_call():
            variant, arrays = self._run(call)
            results = iter(arrays)
            outputs = {
                name: self._rebuilt(template, results)
                for name, template in variant.structure.items()
            }
        variant.count_call()
        self._quick = None
        is_whole = call.structure.is_usual and len(call.arrays) == len(self._names)
        if is_whole and not self._has_strings:
            self._quick = Quick.of(variant, call)
        return outputs

    def _run(self, call: Call) -> tuple[Variant, Sequence[Array]]:
        """The program for a call and what it gives. A branch that makes no sense for all sizes that
        a program was made for may make sense for these: then it is theirs alone."""
        variant, given = self._ready(call)
        [request] = variant.values
        try:
            return variant, variant.executable(*given)
        except WrongBranch as wrong:
            if not request.form.is_open:
                raise wrong.error from None
        variant = self._programs.of_numbers(request, call.sizes)
        try:
            return variant, variant.executable(*given)
        except WrongBranch as wrong:
            raise wrong.error from None

    def _in_call(self) -> AbstractContextManager[None]:
        return self._file.strings.in_call() if self._has_strings else nullcontext()

    def _rebuilt(self, template: Any, results: Iterator[Array]) -> Any:
        if isinstance(template, list):
            return [self._rebuilt(one, results) for one in template]
        if template is None:
            return None
        array = next(results)
        if isinstance(template, dict):
            return [dict(zip(template["labels"], row, strict=True)) for row in array.tolist()]
        if template in (SHAPED, SHAPED_STRINGS):
            array = array.reshape(next(results))
        is_string = template in (STRINGS, SHAPED_STRINGS)
        return self._file.strings.texts(array) if is_string else array

    def _ready(self, call: Call) -> tuple[Variant, list[Array]]:
        """The program for a call, and the arrays that it takes."""
        variant, known = self._programs.obtain(call)
        self._last = variant, call.sizes
        leaves = zip(call.structure.leaves, call.arrays, strict=True)
        given = [self._place(one) for leaf, one in leaves if leaf.path not in known.arrays]
        return variant, given

    def _place(self, array: Array) -> Array:
        return self._file.strings.places(array) if array.dtype == object else array

    # What it shows.

    @property
    def variants(self) -> Variants:
        """What is compiled now, with counts."""
        return self._programs.cache.snapshot()

    @property
    def executable(self) -> CompiledProgram:
        """The program used last."""
        kept = self.variants
        if not kept:
            raise RunFailed(
                "nothing is compiled yet: inputs decide the structure of this model, and the first "
                "call brings them"
            )
        return kept[0].executable

    @property
    def plan(self) -> Plan:
        """The plan of the program used last, for the sizes of the last call, or the least."""
        executable = self.executable
        if not isinstance(executable, Executable):
            return executable.plan
        [request] = self.variants[0].values
        sizes = self._last[1] if self._last and self._last[0].executable is executable else None
        bound = None if sizes is None else request.form.values(sizes)
        is_free = any(
            size.root and name not in self._source.bounds for name, size in request.form.sizes
        )
        if bound is None and not is_free:
            return executable.plan
        return executable.plan_for(request.form.least() if bound is None else bound)

    @property
    def kernels(self) -> Kernels:
        """The kernels of the program used last, which print as a table."""
        return self.executable.kernels

    @property
    def on_cpu(self) -> dict[str, str]:
        """Ops that the device refuses and the CPU does in the program used last, and why."""
        return self.executable.on_cpu

    @property
    def threads(self) -> int:
        """How many workers a run has."""
        return self.executable.threads

    def profile(self, *arrays: Any, **named: Any) -> Profile:
        """Run once with time stamps: a table of kernels with their times."""
        call = self._signature.call(arrays, named)
        with self._in_call():
            variant, given = self._ready(call)
            return variant.executable.profile(*given)

    def save_html(
        self, path: str | PathLike[str], title: str = "", profile: Profile | None = None
    ) -> None:
        """Write a page that shows all of the program used last: see Executable.save_html."""
        self.executable.save_html(path, title or self._file.path, profile)

    def verify(self) -> None:
        """Check the plans and prove the orders of all programs; RaceFound or InvalidPlan."""
        for one in self.variants:
            one.executable.verify()

    # Ending.

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
        self._forget()
        self._programs.cache.close()

    def __repr__(self) -> str:
        return f"<CompiledModel {printable(self._file.path)}: {len(self.variants)} programs>"
