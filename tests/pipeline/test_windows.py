"""What comes before what, closed: judged by walking back along every edge."""

from __future__ import annotations

from random import Random

import pytest

from arenite.pipeline.windows import _closed


@pytest.mark.parametrize("seed", range(30))
def test_all_that_comes_before_each_position_is_found(seed: int) -> None:
    random = Random(seed)
    n = random.randint(0, 14)
    density = random.choice([0.1, 0.3, 0.9])
    befores = [[a for a in range(b) if random.random() < density] for b in range(n)]
    for some in befores:
        random.shuffle(some)
    wanted: list[set[int]] = []
    for some in befores:
        wanted.append({*some}.union(*(wanted[before] for before in some)))
    found = [
        {*range(floor), *(floor + k for k in range(n) if bits >> k & 1)}
        for floor, bits in _closed(befores)
    ]
    assert found == wanted
    for floor, bits in _closed(befores):
        assert not bits & 1, "what is below the floor is said once"
        assert floor <= n
