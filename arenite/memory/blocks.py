"""Values become blocks: what must share an offset is placed as one.

An alias joins the block of its owner, and a value that takes over another's bytes joins that
block; a block has one size and one lifetime, and knows where in it each of its values lies. It
lives from the first tick that one of its values lives to the last; where none ever does, it has no
bytes.

    tick    0 1 2 3 4 5
    a       ████████        written at 0, last read by the launch at tick 3
    b             ██████    written by that launch, may take over a: same bytes, one block
    a[16:]    ██            an alias: no bytes of its own
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from arenite.errors import InvalidArgument
from arenite.memory.profile import LiveProfile
from arenite.memory.values import Value, ValueId


@dataclass(slots=True)
class Block:
    """Values at fixed distances from one offset: `members` are (value id, offset in block)."""

    nbytes: int  # padded to the alignment
    alignment: int
    start: int
    end: int
    pin: int | None = None
    members: list[tuple[ValueId, int]] = field(default_factory=list)
    last: list[ValueId] = field(default_factory=list)  # those that live until the end of the block

    @property
    def is_live(self) -> bool:
        return self.start < self.end


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of one region, and which value took over which."""

    blocks: list[Block]
    taken_over: dict[ValueId, ValueId]


def make_blocks(values: list[Value]) -> Blocks:
    """Blocks of one region's values; `values` have been checked."""
    by_id = {value.id: value for value in values}
    owners = _owners(values, by_id)
    block_of: dict[ValueId, Block] = {}
    for value in values:
        if value.alias is None:
            block_of[value.id] = Block(
                value.padded_nbytes, value.alignment, *value.lifetime, value.pin, [(value.id, 0)]
            )
    for value in values:
        if value.alias is not None:
            owner_id, offset = owners[value.id]
            block = block_of[owner_id]
            _check_alias_alignment(value, owner_id, offset, block)
            block.members.append((value.id, offset))
    for block in block_of.values():
        _set_lifetime(block, by_id)
    taken_over = _merge_takeovers(values, owners, block_of)
    distinct = {id(block): block for block in block_of.values()}
    return Blocks(list(distinct.values()), taken_over)


def live_profile(blocks: Collection[Block]) -> LiveProfile:
    """How many bytes of blocks are live at each tick."""
    times = zip(*((block.start, block.end, block.nbytes) for block in blocks), strict=True)
    return LiveProfile.of(*times) if blocks else LiveProfile.of((), (), ())


def _owners(values: list[Value], by_id: dict[ValueId, Value]) -> dict[ValueId, tuple[ValueId, int]]:
    """For each value who owns its bytes and the offset in there; aliases of aliases add up."""
    owners = {value.id: (value.id, 0) for value in values if value.alias is None}
    for value in values:
        path: list[Value] = []
        while value.id not in owners:
            if value.alias is None or len(path) > len(values):
                raise InvalidArgument(f"value {value.id!r} is an alias of itself, through others")
            path.append(value)
            value = by_id[value.alias.of]
        for one in reversed(path):
            assert one.alias is not None
            owner_id, offset = owners[one.alias.of]
            owners[one.id] = (owner_id, offset + one.alias.offset)
    return owners


def _set_lifetime(block: Block, by_id: dict[ValueId, Value]) -> None:
    """The ticks from the first to the last at which an owner or one of its aliases lives."""
    members = (by_id[member_id] for member_id, _ in block.members)
    live = [value for value in members if value.lifetime.start < value.lifetime.end]
    if live:
        block.start = min(value.lifetime.start for value in live)
        block.end = max(value.lifetime.end for value in live)
        block.last = [value.id for value in live if value.lifetime.end == block.end]
    else:
        block.nbytes, block.pin = 0, None
        block.start = block.end = 0


def _check_alias_alignment(value: Value, owner_id: ValueId, offset: int, block: Block) -> None:
    if offset % value.alignment or block.alignment % value.alignment:
        raise InvalidArgument(
            f"value {value.id!r} asks for an alignment of {value.alignment} but is an alias of "
            f"{owner_id!r} (aligned to {block.alignment}) at offset {offset}"
        )


def _merge_takeovers(
    values: list[Value],
    owners: dict[ValueId, tuple[ValueId, int]],
    block_of: dict[ValueId, Block],
) -> dict[ValueId, ValueId]:
    """Join blocks where a value may take over another's bytes and no peak is raised by it.

    Equal sizes always join. A smaller value joins a larger one only where keeping the larger
    block's bytes leaves the largest sum of live bytes as it was.
    """
    taken_over: dict[ValueId, ValueId] = {}
    asking = [value for value in values if value.takes_over]
    if not asking:
        return taken_over
    profile = live_profile(block_of.values())
    peak = profile.peak_nbytes
    by_id = {value.id: value for value in values}
    for value in sorted(asking, key=lambda v: v.lifetime):
        mine = block_of[value.id]
        best: ValueId | None = None
        for other_id in value.takes_over:
            other = block_of[owners[other_id][0]]
            if not _may_take_over(by_id[other_id], other, owners[other_id][1], value, mine, by_id):
                continue
            waste = other.nbytes - mine.nbytes
            if waste and profile.peak_between(mine.start + 1, mine.end) + waste > peak:
                continue
            if best is None or other.nbytes < block_of[owners[best][0]].nbytes:
                best = other_id
        if best is None:
            continue
        other = block_of[owners[best][0]]
        profile.add(mine.start, mine.start + 1, -mine.nbytes)
        profile.add(mine.start + 1, mine.end, other.nbytes - mine.nbytes)
        # A value of one tick lives beside the one it took over until both die.
        other.last = mine.last if mine.end > other.end else other.last + mine.last
        other.end = mine.end
        other.alignment = max(other.alignment, mine.alignment)
        other.members.extend(mine.members)
        for member_id, _ in mine.members:
            block_of[owners[member_id][0]] = other
        taken_over[value.id] = best
    return taken_over


def _may_take_over(
    old: Value, other: Block, offset: int, new: Value, mine: Block, by_id: dict[ValueId, Value]
) -> bool:
    """Whether `mine` may start where `other` ends: in the one tick that both live, nobody but the
    two values named uses their bytes; `mine` is no larger and not pinned."""
    birth = new.lifetime.start
    users = [k for k, _ in mine.members if by_id[k].lifetime.start <= birth < by_id[k].lifetime.end]
    return (
        other is not mine
        and offset == 0
        and mine.pin is None
        and mine.start == birth
        and users == [new.id]
        and other.end == birth + 1
        and other.last == [old.id]
        and old.lifetime.start < birth
        and old.nbytes > 0
        and mine.nbytes <= other.nbytes
        and other.nbytes % mine.alignment == 0
        and (other.pin or 0) % mine.alignment == 0
    )
