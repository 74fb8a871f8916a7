"""The programs of a model: which there are, and which one a call takes.

In: calls, with inputs that may decide structure, and sizes. Out: variants. A form, sizes as ranges
that a program may leave open, is looked for first: the general one for all calls, then one for the
sizes at hand; where there is none, sizes are numbers of the program. Forms that were found are kept
beside the code, so that another process does not search.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from arenite import locks
from arenite.errors import AreniteError, DoesNotFit, RunFailed
from arenite.frontends.onnx.inputs import StructureNeeded
from arenite.model.arguments import Call, Known, Signature, Structure, array_of
from arenite.model.file_record import FileRecord
from arenite.model.sizes import N_TIERS, Form
from arenite.model.translations import Request, Translation, Translations
from arenite.pipeline import plan_graph
from arenite.pipeline.program import compile_program
from arenite.program.backend import backend_of
from arenite.program.options import Options
from arenite.records import NamedTuple
from arenite.runtime.executable import Executable
from arenite.runtime.variants import Variant, VariantCache

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.frontends.onnx.translate import Translated
    from arenite.ir.graph import Graph
    from arenite.model.form_cache import FormCache
    from arenite.model.forms import FormSearch

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


class Programs:
    """Those of one model; `forget` is called before one is made, which may end another."""

    def __init__(self, source: Source, forget: Callable[[], None]) -> None:
        self._source = source
        self._forget = forget
        self._translations = Translations(source.record)
        self._memory = source.options.memory
        self._lock = locks.reentrant()
        self.cache = VariantCache(self._compile, None if self._memory is None else 1)
        #: Paths of inputs whose values decide structure, by structure.
        self._deciding: dict[str, list[str]] = {}
        #: Forms of sizes that programs were made for, by structure and values.
        self._known_forms: dict[str, list[Form]] = {}
        #: What a search has just translated, until it is compiled.
        self._translated: dict[str, Translation] = {}
        self._last_search: tuple[str, FormSearch] | None = None
        self._fitting: set[tuple[str, tuple[int, ...]]] = set()

    def prepare(self, values: Mapping[str, Any]) -> None:
        """Compile now what every call needs."""
        structure = self._source.signature.usual
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
                given = {name: self._source.bounds.get(name) for name in structure.sizes(known)}
                sizes = {name: one[0] for name, one in given.items() if one and one[0] == one[1]}
                if not self._forms(structure, Known(known)) and len(sizes) == len(given):
                    numbers = Form.of_numbers(sizes)
                    self.cache.obtain((Request(structure, numbers, Known(known)),))
                break
            except StructureNeeded as needed:
                self._decide(structure, needed)
                if not all(path in known for path in needed.names):
                    break  # the first call brings them

    @cached_property
    def _form_cache(self) -> FormCache:
        from arenite.model.form_cache import FormCache

        return FormCache(self._source.record, self._source.bounds, self._source.options)

    def obtain(self, call: Call) -> tuple[Variant, Known]:
        """The program for a call, and the inputs that decided it, which it does not take."""
        paths = [leaf.path for leaf in call.structure.leaves]
        by_path = dict(zip(paths, call.arrays, strict=True))
        while True:
            deciding = self._deciding.get(call.structure.key, ())
            known = Known({path: by_path[path] for path in paths if path in deciding})
            try:
                return self._variant(call, known), known
            except StructureNeeded as needed:
                self._decide(call.structure, needed)

    def of_numbers(self, request: Request, sizes: Mapping[str, int]) -> Variant:
        """The program of a request, for these sizes alone."""
        names = (name for name, _ in request.form.sizes)
        numbers = Form.of_numbers({name: sizes[name] for name in names})
        return self.cache.obtain((request._replace(form=numbers),))

    def _decide(self, structure: Structure, needed: StructureNeeded) -> None:
        """From now on these inputs decide structure."""
        with self._lock:
            deciding = self._deciding.setdefault(structure.key, [])
            new = [path for path in needed.names if path not in deciding]
            if not new:
                raise needed
            deciding += new

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
        if sizes and is_open and not self.cache.has((numbers,)):
            found = self._for_sizes(structure, known, sizes)
            variant = None if found is None else self._of_form(structure, found, known, sizes)
            if found is not None and variant is not None:
                self._forms(structure, known).append(found)
                return variant
        return self.cache.obtain((numbers,))

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
        """Whether a program may leave sizes open: where memory does not grow with what calls bring
        it is that of the bounds, and needs some."""
        return backend_of(self._source.options.device).arena_grows or all(
            name in self._source.bounds for name in names
        )

    def _of_form(
        self, structure: Structure, form: Form, known: Known, sizes: Mapping[str, int]
    ) -> Variant | None:
        """The program of a form, if these sizes are of it, and it can be made, and fits."""
        if form.values(sizes) is None:
            return None
        try:
            variant = self.cache.obtain((Request(structure, form, known),))
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
                self.cache.obtain((Request(structure, form, known),))
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
                self.cache.obtain((Request(structure, found[0], known),))
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
        self._forget()
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


def _found_nbytes(graph: Graph) -> int:
    """Bytes that the largest value takes whose sizes a run finds: room for all there may be, but
    for what has no bound, which is planned in the run."""
    from arenite.ir.dim import bounds
    from arenite.ir.graph import found_sizes
    from arenite.ir.ops.unbounded import is_bounded

    found = [one for one in graph.nodes if found_sizes(one) and is_bounded(one.nbytes)]
    return max((bounds(one.nbytes)[1] for one in found), default=0)
