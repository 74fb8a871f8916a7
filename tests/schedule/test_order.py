"""The order of drafts: producers first, and soon what makes less than it lets go of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from arenite import ir
from arenite.dtype import BY_NAME
from arenite.ir.node import Node
from arenite.schedule.draft import Draft
from arenite.schedule.kernel import Role, Stage
from arenite.schedule.order import in_order

FLOAT32 = BY_NAME["float32"]
NOTHING: Mapping[int, Sequence[int]] = MappingProxyType({})
X = ir.graph_input("x", 0, (1,), FLOAT32)


class Works:
    """Works that make vectors of so many elements, each from earlier ones or from a source."""

    def __init__(self, sizes: list[int], reads: list[list[int]], source: Node) -> None:
        self.nodes = [
            ir.graph_input(f"made{k}", 1 + k, (size,), FLOAT32) for k, size in enumerate(sizes)
        ]
        self.drafts = [
            Draft(
                node.shape,
                (),
                [Stage(node, Role.ROW)],
                1,
                {read: set() for read in [self.nodes[k] for k in own] or [source]},
            )
            for node, own in zip(self.nodes, reads, strict=True)
        ]

    def order(
        self, kept: Sequence[int] = (), after: Mapping[int, Sequence[int]] = NOTHING
    ) -> list[int]:
        by_node = dict(zip(self.nodes, self.drafts, strict=True))
        behind = {
            id(self.drafts[k]): [self.drafts[one] for one in befores]
            for k, befores in after.items()
        }
        made = in_order(self.drafts, by_node, behind, {self.nodes[k] for k in kept})
        return [self.drafts.index(draft) for draft in made]


def test_what_shrinks_comes_right_behind_the_others_that_read_the_same() -> None:
    #        0 ── 1 ── 2 ── 3 ── 5       4 is the last to read 0 and smaller
    #         └──────── 4 ──────┘
    reads = [[], [0], [1], [2], [0], [3, 4]]
    assert Works([8, 8, 8, 8, 2, 8], reads, X).order() == [0, 1, 4, 2, 3, 5]


def test_what_grows_or_keeps_its_input_stays_where_it_is() -> None:
    reads = [[], [0], [1], [2], [0], [3, 4]]
    assert Works([8, 8, 8, 8, 8, 8], reads, X).order() == [0, 1, 2, 3, 4, 5]
    assert Works([8, 8, 8, 8, 2, 8], reads, X).order(kept=[0]) == [0, 1, 2, 3, 4, 5]


def test_it_waits_for_all_that_it_reads_and_comes_after() -> None:
    reads = [[], [0], [1], [2], [0, 2], [2, 3, 4]]
    assert Works([8, 8, 1, 8, 2, 8], reads, X).order() == [0, 1, 2, 4, 3, 5]
    reads = [[], [0], [1], [2], [0], [3, 4]]
    works = Works([8, 8, 8, 8, 2, 8], reads, X)
    assert works.order(after={4: [2]}) == [0, 1, 2, 4, 3, 5]


def test_what_prepares_constants_for_it_comes_along() -> None:
    #        0 ── 1 ── 2 ──── 5         4 reads 0 and weights that 3 lays out
    weights = ir.constant(np.ones(1, np.float32))
    works = Works([8, 8, 8, 1, 2, 8], [[], [0], [1], [], [0, 3], [2, 4]], X)
    works.drafts[3].reads = {weights: set()}
    assert works.order() == [0, 1, 3, 4, 2, 5]


def test_long_chains_that_shrink_and_constants_of_constants() -> None:
    #        0 ── 1 ── 2 ...        every one smaller than the one before; 0 is read once more
    n = 2000
    works = Works(list(range(2 * n, n, -1)), [[], *([k] for k in range(n - 2)), [0, n - 2]], X)
    assert works.order() == list(range(n))
    # Every one reads the two before it: there are as many paths as a number of n / 5 digits counts.
    reads = [[], [0], *([k, k + 1] for k in range(n - 2))]
    works = Works([1] * n, reads, ir.constant(np.ones(1, np.float32)))
    assert works.order() == list(range(n))


@given(data=st.data())
def test_nobody_comes_before_what_it_needs(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    earlier = [
        data.draw(st.lists(st.integers(0, k - 1), unique=True, max_size=3)) if k else []
        for k in range(n)
    ]
    after = {k: [one] for k in range(1, n) if (one := data.draw(st.integers(-3, k - 1))) >= 0}
    kept = data.draw(st.lists(st.integers(0, n - 1), unique=True))
    works = Works(
        sizes, earlier, data.draw(st.sampled_from([X, ir.constant(np.ones(1, np.float32))]))
    )
    order = works.order(kept, after)
    assert sorted(order) == list(range(n))
    for k in range(n):
        for before in (*earlier[k], *after.get(k, ())):
            assert order.index(before) < order.index(k)
