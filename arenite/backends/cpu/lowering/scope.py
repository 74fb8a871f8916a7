"""Where in the function under construction a value belongs: levels, names, dependences.

Loops and branches open levels. An expression belongs to the innermost level that one of its names
belongs to, and is emitted there, once, however deep it is used: that is how invariants leave loops.

    level 0      the function        sizes, addresses
    level 1      the tile loop       r
    level 2      a vector loop       c          r * n goes to level 1, x[r * n + c] stays in 2

Arithmetic goes into the block in front of a loop. A load may only run if its loop does, so it goes
into the preheader behind the loop's guard, at most one loop out, never out of a branch, and never
past a store to its array. Accumulators and arrays that are stored to change between statements;
what depends on them is kept for one statement of its level only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from arenite.backends.cpu.lowering.vector import BasicBlock, Builder, Vec
from arenite.codegen import loop_ir as ir
from arenite.dtype import DType

#: Expression, and which of a vector loop's vectors, or SCALAR, or what else was made of it.
Key = tuple[int, int | str]
#: A value, or an address.
Made = TypeVar("Made", Vec, str)
SCALAR = -1


class Info(NamedTuple):
    level: int
    varying: bool  # has a value for each lane
    volatile: bool  # may differ after the next statement
    loads: bool


#: That of a constant.
_EVERYWHERE = Info(0, False, False, False)


@dataclass(slots=True)
class Preheader:
    """The block between a loop's guard and the loop, and what it holds."""

    first: BasicBlock
    block: BasicBlock  # where it ends; the first one, unless what it holds has control flow
    memo: dict[Key, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Level:
    kind: Literal["function", "loop", "branch", "predicated"]
    stored: frozenset[str] = frozenset()  # arrays stored to in this loop
    accumulated: frozenset[str] = frozenset()  # accumulators changed in this loop
    preheader: Preheader | None = None
    #: The block in front of the level opened inside this one; None: the current one.
    cursor: BasicBlock | None = None
    memo: dict[Key, Any] = field(default_factory=dict)
    volatile: dict[Key, Any] = field(default_factory=dict)
    names: dict[str, Binding] = field(default_factory=dict)


@dataclass(slots=True)
class Binding:
    dtype: DType
    level: int
    varying: bool = False
    is_accumulator: bool = False
    definition: ir.Expr | None = None  # of a Let
    is_lazy: bool = False  # a Let that is emitted where it is first used
    depth: int = 0  # of what is emitted then: operations within operations, through lazy Lets
    is_partial: bool = False  # an accumulator that holds partial results
    values: dict[int, Vec] = field(default_factory=dict)  # by vector, or under SCALAR


class Scope:
    """The open levels of a function, its builder, and what is known of expressions."""

    def __init__(self, builder: Builder, kernel: ir.LoopKernel) -> None:
        self.builder = builder
        self.levels = [Level("function")]
        self.infos: dict[int, Info] = {}
        #: Values are found again by the identity of their expression, so none may go away and leave
        #: its identity to another: some are made while others are emitted.
        self.expressions: dict[int, ir.Expr] = {}
        self.stored = arrays_stored(kernel.body)

    @property
    def depth(self) -> int:
        return len(self.levels) - 1

    def push(self, level: Level) -> None:
        self.levels.append(level)
        self.infos.clear()

    def pop(self) -> None:
        self.levels.pop()
        self.infos.clear()

    def renew(self) -> None:
        """Forgets what the innermost loop holds: its variables get other values."""
        level = self.levels[-1]
        self.pop()
        self.push(Level("loop", level.stored, level.accumulated, level.preheader))

    def next_statement(self) -> None:
        self.levels[-1].volatile.clear()

    def bind(self, name: str, binding: Binding) -> None:
        if self.find(name) is not None:
            self.infos.clear()  # expressions of that name meant another until now
        self.levels[-1].names[name] = binding

    def binding(self, name: str) -> Binding:
        for level in reversed(self.levels):
            if name in level.names:
                return level.names[name]
        raise KeyError(name)

    def find(self, name: str) -> Binding | None:
        """What a name is bound to, if it is."""
        for level in reversed(self.levels):
            if name in level.names:
                return level.names[name]
        return None

    def info(self, expr: ir.Expr) -> Info:
        """Where the expression belongs, seen from the current statement."""
        info = self.infos.get(id(expr))
        if info is None:
            info = self.infos[id(expr)] = self._info(expr)
            self.expressions[id(expr)] = expr
        return info

    def _info(self, expr: ir.Expr) -> Info:
        if isinstance(expr, ir.Name):
            return self._name_info(expr.name)
        if not expr.operands:
            return _EVERYWHERE
        level, varying, volatile, loads = 0, False, False, False
        for child in ir.children(expr):
            if isinstance(child, ir.Const):
                continue
            part = self.info(child)
            if part.level > level:
                level = part.level
            varying |= part.varying
            volatile |= part.volatile
            loads |= part.loads
        if isinstance(expr, ir.Load):
            is_stored = expr.array in self.stored
            level = max(level, self._load_floor())
            if is_stored:
                level = max(level, self._outermost(lambda loop: expr.array not in loop.stored))
            return Info(level, varying, volatile or is_stored, True)
        return Info(level, varying, volatile, loads)

    def _name_info(self, name: str) -> Info:
        binding = self.binding(name)
        if binding.is_accumulator:
            level = self._outermost(lambda loop: name not in loop.accumulated)
            return Info(max(level, binding.level), binding.varying, True, False)
        return Info(binding.level, binding.varying, False, False)

    def _load_floor(self) -> int:
        """The outermost level a load may move to from here."""
        return self.depth - 1 if self.levels[-1].kind == "loop" else self.depth

    def _outermost(self, may_leave: Callable[[Level], bool]) -> int:
        """The level reached by leaving loops from here outwards while that is allowed."""
        at = self.depth
        while at > 0 and self.levels[at].kind == "loop" and may_leave(self.levels[at]):
            at -= 1
        return at

    def remembered(self, key: Key, info: Info, make: Callable[[], Made]) -> Made:
        """The value under the key, made at its level if it is not there yet."""
        level = self.levels[info.level]
        memo = level.volatile if info.volatile else level.memo
        value: Made | None = memo.get(key)
        if value is not None:
            return value
        if info.level == self.depth:
            value = memo[key] = make()
            return value
        inner = self.levels[info.level + 1]
        if info.loads and inner.preheader is not None:
            preheader = inner.preheader
            value = preheader.memo.get(key)
            if value is None:
                value, preheader.block = self._made_in(preheader.block, make)
                preheader.memo[key] = value
            return value
        for owner in self.levels[info.level :]:
            if owner.cursor is not None:
                value, owner.cursor = self._made_in(owner.cursor, make)
                break
        else:
            value = make()
        memo[key] = value
        return value

    def _made_in(self, block: BasicBlock, make: Callable[[], Made]) -> tuple[Made, BasicBlock]:
        """Runs `make` at the end of another block; also where that block then ends."""
        here = self.builder.block
        self.builder.block = block
        value = make()
        end = self.builder.block
        # If we were writing that very block, we go on where it now ends.
        self.builder.block = end if here is block else here
        return value, end


def arrays_stored(block: ir.Block) -> frozenset[str]:
    return frozenset(s.array for s in ir.statements(block) if isinstance(s, ir.Store))


def accumulators(stmt: ir.Stmt) -> tuple[str, ...]:
    """Those that a statement changes."""
    if isinstance(stmt, ir.Accumulate):
        return (stmt.name,)
    return (stmt.best, stmt.at) if isinstance(stmt, ir.AccumulateArg) else ()


def accumulators_changed(block: ir.Block) -> frozenset[str]:
    return frozenset(name for stmt in ir.statements(block) for name in accumulators(stmt))
