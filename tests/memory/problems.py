"""Problems for the memory tests: random ones, and answers by brute force."""

from __future__ import annotations

from itertools import permutations
from random import Random

from hypothesis import strategies as st

from arenite.memory import Alias, Lifetime, MemoryPlan, Slot, Value


@st.composite
def values(draw: st.DrawFn, most: int = 12) -> list[Value]:
    """Small values of every kind: aligned, aliased, taking over, in several regions."""
    made: list[Value] = []
    for k in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, 8))
        lifetime = Lifetime(start, start + draw(st.integers(0, 5)))
        alignment = draw(st.sampled_from([1, 1, 2, 4, 8]))
        owners = [v for v in made if v.nbytes]
        if owners and draw(st.integers(0, 4)) == 0:
            owner = draw(st.sampled_from(owners))
            offset = draw(st.integers(0, owner.nbytes))
            nbytes = draw(st.integers(0, owner.nbytes - offset))
            alias = Alias(owner.id, offset)
            made.append(Value(f"v{k}", nbytes, lifetime, 1, owner.region, alias=alias))
            continue
        region = draw(st.sampled_from(["work", "work", "work", "state", "packed", "io"]))
        dying = [
            v.id
            for v in made
            if v.region == region and v.lifetime.end == start + 1 and v.lifetime.start < start
        ]
        takes_over = tuple(draw(st.lists(st.sampled_from(dying), max_size=2))) if dying else ()
        nbytes = draw(st.integers(0, 24))
        made.append(Value(f"v{k}", nbytes, lifetime, alignment, region, takes_over=takes_over))
    return made


def graph_like(n: int, seed: int, reach: float = 8, skips: float = 0.05) -> list[Value]:
    """Values of a random network: each is read by some later launches, few of them far away."""
    random = Random(seed)
    last_read = [t + 1 for t in range(n)]
    for t in range(1, n):
        for _ in range(random.randint(1, 3)):
            if random.random() < skips:
                source = random.randrange(max(0, t - 400), t)
            else:
                source = max(0, t - 1 - int(random.expovariate(1 / reach)))
            last_read[source] = max(last_read[source], t)
    return [
        Value(t, 64 * int(2 ** random.uniform(4, 16)), Lifetime(t, last_read[t] + 1))
        for t in range(n)
    ]


def conflicts(plan: MemoryPlan, given: list[Value]) -> list[tuple[object, object]]:
    """Pairs that share a byte at some tick and must not, found byte by byte and tick by tick."""
    by_id = {value.id: value for value in given}

    def root(value: Value) -> Value:
        while value.alias is not None:
            value = by_id[value.alias.of]
        return value

    wrong: list[tuple[object, object]] = []
    for tick in range(16):
        users: dict[tuple[str, int], Slot] = {}
        live = [v for v in given if v.lifetime.start <= tick < v.lifetime.end]
        for owner in {root(v).id: root(v) for v in live}.values():
            slot = plan.slots[owner.id]
            for byte in range(slot.offset, slot.offset + slot.nbytes):
                space = "arena" if slot.region != "io" else "io"
                other = users.setdefault((space, byte), slot)
                if other is not slot and not _handed_over(plan, other, slot, tick):
                    wrong.append((other.id, slot.id))
    return wrong


def _handed_over(plan: MemoryPlan, one: Slot, other: Slot, tick: int) -> bool:
    old, new = (one, other) if other.took_over == one.id else (other, one)
    aliases = [s for s in plan.slots.values() if s.alias_of is not None and s.block == old.block]
    last = max([old.lifetime.end, *(s.lifetime.end for s in aliases if s.region == old.region)])
    return new.took_over == old.id and new.lifetime.start == tick and last >= tick + 1


def optimum(boxes: list[tuple[int, int, int]]) -> int:
    """The least peak of (start, end, size) boxes: lowest fit over every order of placing."""
    best = sum(size for _, _, size in boxes)
    for order in permutations(boxes):
        placed: list[tuple[int, int, int, int]] = []
        for start, end, size in order:
            base = 0
            for low, high in sorted((p[2], p[3]) for p in placed if p[0] < end and start < p[1]):
                if low - base >= size:
                    break
                base = max(base, high)
            placed.append((start, end, base, base + size))
        best = min(best, max((p[3] for p in placed), default=0))
    return best
