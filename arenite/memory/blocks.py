"""Values become blocks: what must share an offset is placed as one.

An alias joins the block of its owner, and a value that takes over another's bytes joins that
block; a block has one size and one lifetime, and knows where in it each of its values lies.

    tick    0 1 2 3 4 5
    a       ████████        written at 0, last read by the launch at tick 3
    b             ██████    written by that launch, may take over a: same bytes, one block
    a[16:]    ██            an alias: no bytes of its own
"""

from __future__ import annotations

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
    latest_birth: int = 0  # of a value that owns its bytes
    members: list[tuple[ValueId, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of one region, and which value took over which."""

    blocks: list[Block]
    taken_over: dict[ValueId, ValueId]


def make_blocks(values: list[Value]) -> Blocks:
    """Blocks of one region's values; `values` have been checked."""
    by_id = {value.id: value for value in values}
    owners = {value.id: _owner(value, by_id) for value in values}
    block_of: dict[ValueId, Block] = {}
    for value in values:
        if value.alias is None:
            block_of[value.id] = Block(
                value.padded_nbytes,
                value.alignment,
                value.lifetime.start,
                value.lifetime.end,
                value.pin,
                value.lifetime.start,
                [(value.id, 0)],
            )
    for value in values:
        if value.alias is not None:
            owner_id, offset = owners[value.id]
            block = block_of[owner_id]
            _check_alias_alignment(value, owner_id, offset, block)
            if value.lifetime.start < value.lifetime.end:
                block.start = min(block.start, value.lifetime.start)
                block.end = max(block.end, value.lifetime.end)
            block.members.append((value.id, offset))
    taken_over = _merge_takeovers(values, owners, block_of)
    distinct = {id(block): block for block in block_of.values()}
    return Blocks(list(distinct.values()), taken_over)


def _owner(value: Value, by_id: dict[ValueId, Value]) -> tuple[ValueId, int]:
    """The value that owns the bytes and the offset in it; aliases of aliases add up."""
    offset, seen = 0, {value.id}
    while value.alias is not None:
        offset += value.alias.offset
        value = by_id[value.alias.of]
        if value.id in seen:
            raise InvalidArgument(f"value {value.id!r} is an alias of itself, through others")
        seen.add(value.id)
    return value.id, offset


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
    blocks = block_of.values()
    profile = LiveProfile.of(
        [block.start for block in blocks],
        [block.end for block in blocks],
        [block.nbytes for block in blocks],
    )
    peak = profile.peak_nbytes
    for value in sorted(asking, key=lambda v: v.lifetime):
        mine = block_of[value.id]
        best: ValueId | None = None
        for other_id in value.takes_over:
            other = block_of[owners[other_id][0]]
            if not _may_take_over(value, mine, other, owners[other_id][1]):
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
        other.end = max(other.end, mine.end)
        other.latest_birth = mine.start
        other.alignment = max(other.alignment, mine.alignment)
        other.members.extend(mine.members)
        for member_id, _ in mine.members:
            block_of[owners[member_id][0]] = other
        taken_over[value.id] = owners[best][0]  # whoever owns the bytes, not a view of them
    return taken_over


def _may_take_over(value: Value, mine: Block, other: Block, offset: int) -> bool:
    """Whether `mine` may start where `other` ends: born at its last tick, no larger, not pinned."""
    return (
        other is not mine
        and offset == 0
        and mine.pin is None
        and mine.start == value.lifetime.start < value.lifetime.end
        and other.end == mine.start + 1
        and max(other.start, other.latest_birth) < mine.start  # nobody took it in this tick
        and mine.nbytes <= other.nbytes
        and other.nbytes % mine.alignment == 0
        and (other.pin or 0) % mine.alignment == 0
    )
