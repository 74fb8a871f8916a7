"""Where reshapes find their elements: index expressions against NumPy, for all values of sizes."""

from __future__ import annotations

from itertools import product as all_of

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.ir.dim import Dim, Var, evaluate, product
from arenite.schedule.access import reshaped_index

NUMBERS = [1, 2, 3, 6]
VARS = [Var("a", 0, 3), Var("b", 1, 3), Var("c", 0, 2)]


def regrouped(sizes: list[Dim], cuts: list[bool]) -> tuple[Dim, ...]:
    """Neighbours joined, but where they are cut."""
    groups: list[list[Dim]] = [[]]
    for size, is_cut in zip(sizes, cuts, strict=True):
        if is_cut:
            groups.append([])
        groups[-1].append(size)
    return tuple(product(group) for group in groups)


@given(
    sizes=st.lists(st.sampled_from([*NUMBERS, *VARS]), min_size=1, max_size=4),
    data=st.data(),
)
@settings(max_examples=150)
def test_reshapes_find_the_elements_numpy_finds(sizes: list[Dim], data: st.DataObject) -> None:
    cuts = st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))
    outer, inner = (regrouped(sizes, data.draw(cuts)) for _ in range(2))
    places = [Var(f"_i{k}", 0, 10_000) for k in range(len(outer))]
    index = reshaped_index(tuple(places), outer, inner)
    for values in all_of(*(range(var.low, var.high + 1) for var in VARS)):
        bound = dict(zip("abc", values, strict=True))
        shape, within = (tuple(evaluate(d, bound) for d in dims) for dims in (outer, inner))
        for flat, at in enumerate(np.ndindex(*shape)):
            named = bound | {f"_i{k}": place for k, place in enumerate(at)}
            found = tuple(evaluate(place, named) for place in index)
            assert found == tuple(map(int, np.unravel_index(flat, within)))
