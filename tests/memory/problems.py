"""Problems for the memory tests: random ones, and answers by brute force."""

from __future__ import annotations

from itertools import combinations, permutations
from random import Random

from hypothesis import strategies as st

from arenite.memory import Alias, Lifetime, MemoryPlan, Slot, Value, ValueId
from arenite.memory.values import ARENA_REGIONS


@st.composite
def values(draw: st.DrawFn, most: int = 12) -> list[Value]:
    """Small values of every kind: aligned, aliased, in several regions, and such that may take over
    others: some that die just then, some that don't."""
    made: list[Value] = []
    for k in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, 8))
        lifetime = Lifetime(start, start + draw(st.integers(0, 5)))
        alignment = draw(st.sampled_from([1, 1, 2, 4, 8]))
        owners = [v for v in made if v.nbytes]
        if owners and draw(st.integers(0, 3)) == 0:
            owner = draw(st.sampled_from(owners))
            offset = draw(st.one_of(st.just(0), st.integers(0, owner.nbytes)))
            nbytes = draw(st.integers(0, owner.nbytes - offset))
            alias = Alias(owner.id, offset)
            made.append(Value(f"v{k}", nbytes, lifetime, 1, owner.region, alias=alias))
            continue
        region = draw(st.sampled_from(["work"] * 6 + ["state", "packed", "io"]))
        takes_over: tuple[ValueId, ...] = ()
        others = [v for v in made if v.region == region]
        if others and draw(st.integers(0, 2)) > 0:
            named = draw(st.lists(st.sampled_from(others), min_size=1, max_size=3))
            takes_over = tuple(dict.fromkeys(v.id for v in named))
            if named[0].lifetime.end and draw(st.booleans()):
                birth = named[0].lifetime.end - 1
                lifetime = Lifetime(birth, birth + draw(st.integers(0, 5)))
        nbytes = draw(st.sampled_from([0, 1, 3, 8, 8, 8, 8, 16, 24]))
        made.append(Value(f"v{k}", nbytes, lifetime, alignment, region, takes_over=takes_over))
    return draw(st.permutations(made))


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


def conflicts(plan: MemoryPlan) -> list[tuple[object, object]]:
    """Pairs that use a byte at some tick and must not, found byte by byte and tick by tick.

    A byte is used by every value that lives and has it, and kept for an owner from the first tick
    that it or an alias of it lives to the last.
    """
    roots = {name: _root(plan, name) for name in plan.slots}
    ticks: dict[ValueId, list[int]] = {name: [] for name in roots.values()}
    for slot in plan.slots.values():
        ticks[roots[slot.id]] += range(slot.lifetime.start, slot.lifetime.end)
    users: dict[tuple[str, int, int], list[Slot]] = {}
    for slot in plan.slots.values():
        when = set(range(slot.lifetime.start, slot.lifetime.end))
        if slot.alias_of is None and ticks[slot.id]:
            when.update(range(min(ticks[slot.id]), max(ticks[slot.id]) + 1))
        space = "arena" if slot.region in ARENA_REGIONS else slot.region
        for tick in when:
            for byte in range(slot.offset, slot.offset + slot.capacity):
                users.setdefault((space, byte, tick), []).append(slot)

    def handed_over(old: Slot, new: Slot, tick: int) -> bool:
        kin, mine = ticks[roots[old.id]], ticks[roots[new.id]]
        taken = None if new.took_over is None else plan.slots[new.took_over]
        return (
            taken is not None
            and roots[taken.id] == roots[old.id]
            and (taken.offset, taken.capacity > 0) == (new.offset, True)
            and min(kin) < max(kin) == tick == min(mine)
            and new.lifetime.start == tick < new.lifetime.end
            and taken.lifetime.start < tick < taken.lifetime.end
            and (old.id == taken.id or not old.lifetime.start <= tick < old.lifetime.end)
        )

    return [
        (one.id, other.id)
        for (_, _, tick), there in users.items()
        for one, other in combinations(there, 2)
        if roots[one.id] != roots[other.id]
        and not handed_over(one, other, tick)
        and not handed_over(other, one, tick)
    ]


def _root(plan: MemoryPlan, name: ValueId) -> ValueId:
    while (above := plan.slots[name].alias_of) is not None:
        name = above
    return name


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
