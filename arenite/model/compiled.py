"""CompiledModel: a model, compiled; call it with arrays, by position or by name.

Named sizes are bound at each call. What a call brings that no program was made for is compiled when
it comes first: structure (values of inputs that decide it, lengths of sequences, ranks), and sizes
outside of what the programs assume. The 16 programs used last are kept; under a budget one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arenite import locks
from arenite.errors import AreniteError, DoesNotFit, RunFailed, printable
from arenite.frontends.onnx.inputs import StructureNeeded, WrongBranch
from arenite.model.arguments import Call, Known, Signature, Structure, array_of
from arenite.model.file_record import FileRecord
from arenite.model.sizes import N_TIERS, Form
from arenite.model.translations import (
    SHAPED,
    SHAPED_STRINGS,
    STRINGS,
    TENSOR,
    Request,
    Translation,
    Translations,
)
from arenite.pipeline import plan_graph
from arenite.pipeline.program import compile_program
from arenite.program.closing import Closing
from arenite.program.options import Options
from arenite.records import NamedTuple
from arenite.runtime.executable import Executable
from arenite.runtime.variants import Variant, VariantCache, Variants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.fetch.source import OnProgress
    from arenite.frontends.onnx.translate import Translated
    from arenite.ir.graph import Graph
    from arenite.model.form_cache import FormCache
    from arenite.model.forms import FormSearch
    from arenite.program.cached_kernel import Kernels
    from arenite.runtime.compiled_program import CompiledProgram, Plan
    from arenite.runtime.profile import Profile

Array: TypeAlias = "NDArray[Any]"

_log = logging.getLogger("arenite.model")

#: Sets of sizes that are known to fit a budget.
_MAX_FITTING = 1024
#: What a value whose sizes a run finds may take at the largest sizes that nobody asked for; where
#: it is more, smaller ones are the usual bounds.
_MAX_FOUND_NBYTES = 64 * 2**20


class Source(NamedTuple):
    """What is compiled, and how."""

    record: FileRecord
    signature: Signature
    bounds: Mapping[str, tuple[int, int]]  # of sizes, by the caller
    options: Options
    threads: int | None
    on_progress: OnProgress | None = None  # hears of kernels that are compiled


def _found_nbytes(graph: Graph) -> int:
    """Bytes that the largest value takes whose sizes a run finds: room for all there may be, but
    for what has no bound, which is planned in the run."""
    from arenite.ir.dim import bounds
    from arenite.ir.graph import found_sizes
    from arenite.ir.ops.unbounded import is_bounded

    found = [one for one in graph.nodes if found_sizes(one) and is_bounded(one.nbytes)]
    return max((bounds(one.nbytes)[1] for one in found), default=0)


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
        self._translations = Translations(source.record)
        self._signature = source.signature
        self._memory = source.options.memory
        self._has_strings = source.record.description.has_strings
        self._lock = locks.reentrant()
        self._cache = VariantCache(self._compile, None if self._memory is None else 1)
        #: Paths of inputs whose values decide structure, by structure.
        self._deciding: dict[str, list[str]] = {}
        #: Forms of sizes that programs were made for, by structure and values.
        self._known_forms: dict[str, list[Form]] = {}
        #: What a search has just translated, until it is compiled.
        self._translated: dict[str, Translation] = {}
        self._last_search: tuple[str, FormSearch] | None = None
        self._fitting: set[tuple[str, tuple[int, ...]]] = set()
        #: For calls like the last: its program, and the sizes of it.
        self._last: tuple[Variant, dict[str, int]] | None = None
        self._quick: Quick | None = None
        self._names = source.signature.inputs.names
        self._prepare(values)

    def _prepare(self, values: Mapping[str, Any]) -> None:
        """Compile now what every call needs."""
        structure = self._signature.usual
        if structure is None:
            return
        arrays = {leaf.path: leaf for leaf in structure.leaves}
        known = {
            name: array_of(name, arrays[name].type, value)
            for name, value in values.items()
            if name in arrays
        }
        while True:
            try:
                if not self._forms(structure, Known(known)) and not structure.sizes(known):
                    self._cache.obtain((Request(structure, Form(), Known(known)),))
                break
            except StructureNeeded as needed:
                self._decide(structure, needed)
                if not all(path in known for path in needed.names):
                    break  # the first call brings them

    @cached_property
    def _form_cache(self) -> FormCache:
        from arenite.model.form_cache import FormCache

        return FormCache(self._source.record, self._source.bounds, self._source.options)

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
        sizes = {name: call.sizes[name] for name, _ in request.form.sizes}
        variant = self._cache.obtain((request._replace(form=Form.of_numbers(sizes)),))
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
        if template in (SHAPED, SHAPED_STRINGS):
            array = array.reshape(next(results))
        is_string = template in (STRINGS, SHAPED_STRINGS)
        return self._file.strings.texts(array) if is_string else array

    def _ready(self, call: Call) -> tuple[Variant, list[Array]]:
        """The program for a call, and the arrays that it takes."""
        paths = [leaf.path for leaf in call.structure.leaves]
        by_path = dict(zip(paths, call.arrays, strict=True))
        while True:
            deciding = self._deciding.get(call.structure.key, ())
            known = Known({path: by_path[path] for path in paths if path in deciding})
            try:
                variant = self._variant(call, known)
                break
            except StructureNeeded as needed:
                self._decide(call.structure, needed)
        self._last = variant, call.sizes
        given = [self._place(by_path[path]) for path in paths if path not in known.arrays]
        return variant, given

    def _place(self, array: Array) -> Array:
        return self._file.strings.places(array) if array.dtype == object else array

    def _decide(self, structure: Structure, needed: StructureNeeded) -> None:
        """From now on these inputs decide structure."""
        with self._lock:
            deciding = self._deciding.setdefault(structure.key, [])
            new = [path for path in needed.names if path not in deciding]
            if not new:
                raise needed
            deciding += new

    # Programs.

    def _variant(self, call: Call, known: Known) -> Variant:
        """The program for a call: that of a form that was compiled, of one that is found for its
        sizes, or of its sizes as numbers."""
        structure, fixed = call.structure, self._source.bounds
        sizes = {name: call.sizes[name] for name in structure.sizes(known.arrays)}
        for form in self._forms(structure, known):
            for one in dict.fromkeys((form, form.wide_enough(sizes, fixed))):
                variant = self._of_form(structure, one, known, sizes)
                if variant is not None:
                    return variant
        numbers = Request(structure, Form.of_numbers(sizes), known)
        is_open = self._may_be_open(sizes) and all(sizes.values())
        if sizes and is_open and not self._cache.has((numbers,)):
            found = self._for_sizes(structure, known, sizes)
            variant = None if found is None else self._of_form(structure, found, known, sizes)
            if found is not None and variant is not None:
                self._forms(structure, known).append(found)
                return variant
        return self._cache.obtain((numbers,))

    def _for_sizes(
        self, structure: Structure, known: Known, sizes: Mapping[str, int]
    ) -> Form | None:
        """A form that these sizes are of; None: they are taken as numbers."""
        kept = self._form_cache.get(structure, known, sizes)
        if kept is not None:
            return kept.form
        fixed = self._source.bounds
        wide = Form.of_bounds(sizes, fixed).wide_enough(sizes, fixed)
        found = self._searched(structure, known, lambda search: search.for_sizes(wide, sizes))
        form = found[0] if found is not None and found[0].is_open else None
        if form is not None and self._of_form(structure, form, known, sizes) is None:
            form = None
        self._form_cache.put(structure, known, sizes, form)
        return form

    def _searched(
        self,
        structure: Structure,
        known: Known,
        search: Callable[[FormSearch], tuple[Form, Translated] | None],
    ) -> tuple[Form, Translated] | None:
        """What a search finds; what it has translated is kept."""
        from arenite.program.backend import backend_of

        backend_of(self._source.options.device).prepare()  # what is found will be compiled
        with self._source.record.translating():
            found = search(self._search(structure, known))
        if found is None:
            return None
        form, made = found
        request = Request(structure, form, known)
        self._translated = {repr(request): self._translations.keep(request, made)}
        return found

    def _may_be_open(self, names: Collection[str]) -> bool:
        """Whether a program may leave sizes open: on the CPU memory grows with what calls bring,
        elsewhere it is that of the bounds, and needs some."""
        return self._source.options.device == "cpu" or all(
            name in self._source.bounds for name in names
        )

    def _of_form(
        self, structure: Structure, form: Form, known: Known, sizes: Mapping[str, int]
    ) -> Variant | None:
        """The program of a form, if these sizes are of it, and it can be made, and fits."""
        if form.values(sizes) is None:
            return None
        try:
            variant = self._cache.obtain((Request(structure, form, known),))
        except (StructureNeeded, RunFailed):
            raise
        except AreniteError:
            return None  # numbers are easier
        return variant if self._fits(variant, form, sizes) else None

    def _forms(self, structure: Structure, known: Known) -> list[Form]:
        """Those that programs were made for, the most general first."""
        key = f"{structure.key}; {known!r}"
        with self._lock:
            if key not in self._known_forms:
                general = self._general(structure, known)
                self._known_forms[key] = [] if general is None else [general]
            return self._known_forms[key]

    def _general(self, structure: Structure, known: Known) -> Form | None:
        """The form that holds for all calls, compiled."""
        names, fixed = structure.sizes(known.arrays), self._source.bounds
        if not names or not self._may_be_open(names):
            return None
        kept = self._form_cache.get(structure, known, {})
        try:
            if kept is None:
                form = self._found_general(structure, known, names)
                self._form_cache.put(structure, known, {}, form)
            elif (form := kept.form) is not None:
                self._cache.obtain((Request(structure, form, known),))
        except StructureNeeded as needed:
            if kept is None:
                self._form_cache.put(structure, known, {}, needed)
            raise
        if form is None and self._memory is not None and all(name in fixed for name in names):
            # Each call is compiled for by itself; what can't fit is refused now.
            largest = Form.of_numbers(Form.of_bounds(names, fixed).largest())
            made = self._translations.obtain(Request(structure, largest, known))
            plan_graph(made.interface, self._source.options)
        return form

    def _found_general(
        self, structure: Structure, known: Known, names: Sequence[str]
    ) -> Form | None:
        for tier in range(N_TIERS):
            asked = Form.of_bounds(names, self._source.bounds, tier, structure.may_be_empty)
            found = self._searched(structure, known, lambda search: search.general(asked))  # noqa: B023
            if found is None:
                break
            if _found_nbytes(found[1].graph) > _MAX_FOUND_NBYTES and tier < N_TIERS - 1:
                continue
            try:
                self._cache.obtain((Request(structure, found[0], known),))
                return found[0]
            except (StructureNeeded, DoesNotFit, RunFailed):
                raise
            except AreniteError as error:
                _log.info("no program for %s: %s", found[0], error)
        return None

    def _search(self, structure: Structure, known: Known) -> FormSearch:
        """One search knows at which node forms have failed, the next time too."""
        from arenite.model.forms import FormSearch

        key = f"{structure.key}; {known!r}"
        with self._lock:
            if self._last_search is None or self._last_search[0] != key:
                file = self._source.record.file
                self._last_search = key, FormSearch(file, structure, known)
            return self._last_search[1]

    def _fits(self, variant: Variant, form: Form, sizes: Mapping[str, int]) -> bool:
        """Whether the plan for these sizes is within the budget."""
        if self._memory is None or not isinstance(variant.executable, Executable):
            return True  # one in segments counts itself
        key = (str(form), tuple(sizes.values()))
        if key in self._fitting:
            return True
        values = form.values(sizes)
        assert values is not None
        if variant.executable.plan_for(values).total_nbytes > self._memory:
            return False
        if len(self._fitting) >= _MAX_FITTING:
            self._fitting.clear()
        self._fitting.add(key)
        return True

    def _compile(self, values: tuple[Any, ...]) -> Variant:
        [request] = values
        self._quick = self._last = None
        made = self._translated.pop(repr(request), None) or self._translations.obtain(request)
        is_bounded = all(
            name in self._source.bounds or not size.root for name, size in request.form.sizes
        )
        tell = self._source.on_progress
        on_progress = None if tell is None else lambda k, n: tell("compiling", k, n)
        executable = compile_program(
            made.interface,
            self._source.options,
            threads=self._source.threads,
            on_progress=on_progress,
            in_segments=made.is_cut,
            is_checked_later=not is_bounded,
        )
        executable.resets_itself = True  # nothing stays from run to run
        # One in segments is called and looked at in the same way.
        return Variant(values, executable, made.outputs)

    # What it shows.

    @property
    def variants(self) -> Variants:
        """What is compiled now, with counts."""
        return self._cache.snapshot()

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
        self._quick = self._last = None
        self._cache.close()

    def __repr__(self) -> str:
        return f"<CompiledModel {printable(self._file.path)}: {len(self.variants)} programs>"
