"""The form of sizes that a model works for: found by translating it, again where that fails.

Files often name sizes apart that must be equal, or leave out that a size must be a multiple of 32.
Where translating fails, sizes are taken for equal, two by two, as long as that gets further; then
for multiples of a power of two. What is still refused is compiled for numbers, call by call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import combinations
from typing import TypeAlias

from arenite.errors import AreniteError
from arenite.frontends.onnx.translate import StructureNeeded, Translated, Translator
from arenite.model.arguments import Structure
from arenite.model.sizes import Form

#: Translates for a form; or how many nodes it came past.
Attempt: TypeAlias = Callable[[Form], "Translated | int"]

#: Powers of two that sizes are tried to be multiples of.
FACTORS = (2, 4, 8, 16, 32, 64)
#: Pairs of sizes that are tried to be equal.
MAX_PAIRS = 64


def attempted(translator: Callable[[], Translator], given: Callable[[Form], object]) -> Attempt:
    """An attempt that translates anew for each form."""

    def attempt(form: Form) -> Translated | int:
        one = translator()
        try:
            return one.translate(given(form))  # type: ignore[arg-type]
        except StructureNeeded:
            raise
        except AreniteError:
            return one.n_nodes

    return attempt


def general_form(
    structure: Structure, form: Form, fixed: Collection[str], attempt: Attempt
) -> tuple[Form, Translated] | None:
    """The form that a model can be translated for, the most general that is found; `fixed` are
    sizes with bounds of the caller's."""
    made = attempt(form)
    if isinstance(made, Translated):
        return form, made
    form, made = _with_equal_sizes(structure, form, made, attempt)
    if isinstance(made, Translated):
        return form, made
    rows = {leaf.type.shape[0] for leaf in structure.leaves if leaf.type.shape}
    inner = [root for root in form.roots if root not in rows and root not in fixed]
    for roots in (inner, [root for root in form.roots if root not in fixed]):
        for factor in FACTORS if roots else ():
            candidate = form.multiples(factor, roots)
            candidate, made = _with_equal_sizes(structure, candidate, attempt(candidate), attempt)
            if isinstance(made, Translated):
                return candidate, made
    return None


def _with_equal_sizes(
    structure: Structure, form: Form, made: Translated | int, attempt: Attempt
) -> tuple[Form, Translated | int]:
    """Two sizes are one where the translation gets further then."""
    axes = _axes(structure)
    while not isinstance(made, Translated):
        best, reached = form, made
        pairs = [
            (a, b)
            for a, b in combinations(form.roots, 2)
            if _factor(form, a) == _factor(form, b)
        ]  # fmt: skip
        # First those that are of the same axis.
        pairs.sort(key=lambda pair: not axes.get(pair[0], set()) & axes.get(pair[1], set()))
        for a, b in pairs[:MAX_PAIRS]:
            candidate = form.equal(a, b)
            result = attempt(candidate)
            if isinstance(result, Translated):
                return candidate, result
            if result > reached:
                best, reached = candidate, result
                break
        if best is form:
            break
        form, made = best, reached
    return form, made


def _axes(structure: Structure) -> dict[str, set[int]]:
    """The axes that each size is of."""
    found: dict[str, set[int]] = {}
    for leaf in structure.leaves:
        for axis, name in enumerate(leaf.type.shape or ()):
            if isinstance(name, str):
                found.setdefault(name, set()).add(axis)
    return found


def _factor(form: Form, root: str) -> int:
    return next(one.factor for _, one in form.sizes if one.root == root)
