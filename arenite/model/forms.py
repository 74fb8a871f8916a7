"""The form of sizes that a model works for: found by translating it, again where that fails.

Files often name sizes apart that must be equal, or of which one is the sum of others, or leave out
that a size must be a multiple of 32, or at least 48, or at most 512, or that it can have one value
only. Where translating
fails, more is assumed about the sizes, step by step, as long as that gets past more nodes: what is
assumed least is tried first, and all that is assumed holds for the call at hand. What is tried is
the node that failed, alone; and the whole, where that may pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, islice, permutations

from arenite.errors import AreniteError
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.inputs import StructureNeeded
from arenite.frontends.onnx.translate import Translated, Translator
from arenite.ir import Dim, Var
from arenite.model.arguments import Known, Structure
from arenite.model.sizes import Form, Size

#: What sizes are taken for multiples of.
FACTORS = (4, 32, 64)
#: What they are taken to be at most.
MOST = (8192, 2048, 1024, 512, 128)
#: Pairs of sizes that are tried to be equal.
MAX_PAIRS = 64
#: Sizes that are tried to be the sum of two others.
MAX_SUMS = 256
#: Translations until numbers are taken.
MAX_ATTEMPTS = 96


class FormSearch:
    """Looks for forms that a file can be translated for, given values that decide structure."""

    def __init__(self, file: OnnxFile, structure: Structure, known: Known) -> None:
        self._file = file
        self._structure = structure
        self._known = known.arrays
        self._n_attempts = 0
        #: What came of forms, as long as nothing was found.
        self._failures: dict[Form, Translator] = {}

    def general(self, form: Form) -> tuple[Form, Translated] | None:
        """A form that holds for all calls, but for sizes that must be equal, or sums, or have a
        largest value; None: there is none."""

        def narrower(form: Form) -> Iterator[Form]:
            yield from self._equal(form, None)
            yield from self._sums(form, None)
            yield from self._at_most(form, None)
            for root in form.roots:
                if form.variable(root).low == 0:
                    yield form.changed({root: form.variable(root)._replace(low=1)})

        return self._found(form, narrower)

    def for_sizes(self, form: Form, sizes: Mapping[str, int]) -> tuple[Form, Translated] | None:
        """The most general form that these sizes are of; None: numbers alone may do."""
        return self._found(form, lambda form: self._narrower(form, sizes))

    def _found(
        self, form: Form, narrower: Callable[[Form], Iterator[Form]]
    ) -> tuple[Form, Translated] | None:
        self._n_attempts = 0
        made = self._attempt(form)
        while not isinstance(made, Translated):
            for candidate in narrower(form):
                if self._n_attempts >= MAX_ATTEMPTS:
                    return None
                if not _may_pass(made, form, candidate):
                    continue
                result = self._attempt(candidate)
                if isinstance(result, Translated) or result.n_nodes > made.n_nodes:
                    form, made = candidate, result
                    break
            else:
                return None
        self._failures.clear()
        return form, made

    def _attempt(self, form: Form) -> Translated | Translator:
        """What a form is translated to; or who came past some nodes, and not past the next."""
        if form in self._failures:
            return self._failures[form]
        self._n_attempts += 1
        translator = Translator(self._file)
        try:
            return translator.translate(self._structure.given(form, self._known))
        except StructureNeeded:
            raise
        except AreniteError:
            self._failures[form] = translator
            return translator

    def _narrower(self, form: Form, sizes: Mapping[str, int]) -> Iterator[Form]:
        """Forms that assume more, that which assumes least first."""
        yield from self._equal(form, sizes)
        yield from self._sums(form, sizes)
        yield from self._at_most(form, sizes)
        rows = {leaf.type.shape[0] for leaf in self._structure.leaves if leaf.type.shape}
        values = form.values(sizes)
        assert values is not None
        inner = {root: form.variable(root) for root in form.roots if root not in rows}
        for changed in _changes(inner, {root: values[one.name] for root, one in inner.items()}):
            different = {root: one for root, one in changed.items() if one != inner[root]}
            if different:
                yield form.changed(different)
        numbers: dict[str, Size] = {}
        for root in form.roots:
            one = form.variable(root)
            number = one.factor * values[one.name]
            numbers[root] = Size("", 1, number, number)
        yield from (form.changed({root: numbers[root]}) for root in inner)
        if len(inner) > 1:  # as height and width, where a table has a row for each place
            yield form.changed({root: numbers[root] for root in inner})
        yield from (form.changed({root: numbers[root]}) for root in form.roots if root in rows)

    def _sums(self, form: Form, sizes: Mapping[str, int] | None) -> Iterator[Form]:
        """A size is the sum of two others: as a mask over what was before and what is new."""
        plain = [root for root in form.roots if form.variable(root).factor == 1]
        for total, one, other in islice(permutations(plain, 3), MAX_SUMS):
            if one < other and (sizes is None or sizes[total] == sizes[one] + sizes[other]):
                yield form.sum_of(total, (one, other))

    def _at_most(self, form: Form, sizes: Mapping[str, int] | None) -> Iterator[Form]:
        """Sizes are not very large: as where a table has a row for each place."""
        values = None if sizes is None else form.values(sizes)
        for most in MOST:
            for root in form.roots:
                one = form.variable(root)
                least = one.low if values is None else max(one.low, values[one.name])
                if one.factor == 1 and least <= most < one.high:
                    yield form.changed({root: one._replace(high=most)})

    def _equal(self, form: Form, sizes: Mapping[str, int] | None) -> Iterator[Form]:
        """Sizes are one: those of an axis, of each axis, any two; and only such as are equal."""
        values = None if sizes is None else form.values(sizes)
        axes: dict[int, list[str]] = {}
        for leaf in self._structure.leaves:
            for axis, name in enumerate(leaf.type.shape or ()):
                if name in form.roots and name not in axes.setdefault(axis, []):
                    axes[axis].append(str(name))

        def are_equal(a: str, b: str) -> bool:
            one, other = form.variable(a), form.variable(b)
            is_so = values is None or values[one.name] == values[other.name]
            return one.factor == other.factor and is_so

        joined = form
        for roots in axes.values():
            found = [root for root in roots if root in joined.roots]
            others = [root for root in found[1:] if are_equal(found[0], root)]
            one = form
            for other in others:
                one, joined = one.equal(found[0], other), joined.equal(found[0], other)
            if others:
                yield one
        if joined != form:
            yield joined
        pairs = [pair for pair in combinations(form.roots, 2) if are_equal(*pair)]
        for a, b in pairs[:MAX_PAIRS]:
            yield form.equal(a, b)


def _may_pass(failed: Translator, form: Form, narrower: Form) -> bool:
    """Whether the node at which a form failed may be translated for a narrower one: all others
    need not be tried. With numbers, more than that node may be another."""
    sizes: dict[str, Dim] = {}
    for (name, old), (_, new) in zip(form.sizes, narrower.sizes, strict=True):
        if old.root and new.addends:
            sizes[old.name] = narrower.dim(name)
        elif old.root:
            if not new.root or new.factor % old.factor:
                return True
            sizes[old.name] = new.factor // old.factor * Var(new.name, new.low, new.high)
    return failed.may_pass(sizes)


def _changes(inner: Mapping[str, Size], values: Mapping[str, int]) -> Iterator[dict[str, Size]]:
    """Variables with more assumed of them: that they are not very small, at least as large as now,
    or multiples."""
    some = {root: _at_least(one, _about(values[root])) for root, one in inner.items()}
    now = {root: _at_least(one, values[root]) for root, one in inner.items()}
    yield some
    for root in inner:
        yield some | {root: now[root]}
    yield now
    for factor in FACTORS:
        multiples = {root: _multiple(one, values[root], factor) for root, one in inner.items()}
        for root in inner:
            yield {root: multiples[root]}
        yield multiples


def _about(value: int) -> int:
    """A power of two from an eighth to a quarter of a number."""
    return 1 << max(value.bit_length() - 3, 0)


def _at_least(one: Size, value: int) -> Size:
    return one._replace(low=max(one.low, value))


def _multiple(one: Size, value: int, factor: int) -> Size:
    if one.factor > 1 or value % factor or not value:
        return one
    return Size(one.root, factor, -(-one.low // factor), one.high // factor)
