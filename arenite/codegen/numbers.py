"""Kernels that differ in numbers alone become one, which is given them as it is given sizes.

In: kernels as they were built. Out: the same, where those that are alike but for some numbers, such
as the scales of layers, have the same loops: a number that differs between them is a size by a name
like `float32$0`, whose low bits it is, and what each is given is in its Built. Their code is then
written, and compiled, once. What all of them agree on stays a constant, and so does a number that
stands for itself: zero, one, infinity.

    a: max(x * 0.25, 0)         both: max(x * float32$0, 0)        a is given 0.25, b 0.5
    b: max(x * 0.5, 0)

Where numbers are sizes, strides and bounds of loops, code that knows them is the quicker one: they
are given to kernels that run once alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.built import Built
from arenite.codegen.printer import kernel_text
from arenite.dtype import DType

#: More than these are not given to a kernel.
MAX_NUMBERS = 12
#: Ops whose second operand decides what they become.
_DIVISIONS = ("div", "floordiv", "mod", "fmod", "pow", "shift_left", "shift_right")
_ROOMS = ("arenite.codegen.", "arenite.backends.")
#: Types that have no expressions in them, as they are met.
_LEAVES: set[type] = set()


@dataclass(frozen=True, slots=True)
class _Member:
    """A kernel that has numbers, without them and its name, and what stands in their places, in
    order."""

    loops: ir.LoopKernel
    nameless: ir.LoopKernel
    numbers: tuple[ir.Const, ...]

    @property
    def kind(self) -> Hashable:
        """The same for all kernels of a group, and quick to tell."""
        dtypes = tuple(number.dtype.name for number in self.numbers)
        return type(self.loops), self.loops.arrays, self.loops.sizes, dtypes


@dataclass(frozen=True, slots=True)
class _Shared:
    """The kernel of a group, and where in its members the numbers are that it is given."""

    loops: ir.LoopKernel
    places: dict[str, int]


#: The identity of a body, and whether it runs once.
_Known: TypeAlias = tuple[int, bool]


def with_shared_loops(built: Mapping[int, Built], at_load: Collection[int]) -> dict[int, Built]:
    """The same kernels, by number; `at_load` are those that run once."""
    members: dict[_Known, _Member | None] = {}
    for number, one in built.items():
        known = (id(one.loops.body), number in at_load)
        if known not in members:
            members[known] = _member(one.loops, number in at_load)
    shared: dict[_Known, _Shared | None] = {}
    for some in _groups({known: one for known, one in members.items() if one is not None}):
        shared |= dict.fromkeys(some, _shared([*some.values()]))
    made: dict[int, Built] = {}
    for number, one in built.items():
        known = (id(one.loops.body), number in at_load)
        member, group = members[known], shared.get(known)
        if group is not None and member is not None:
            numbers = [(name, _bits(member.numbers[k])) for name, k in group.places.items()]
            loops = replace(group.loops, name=one.loops.name)
            one = replace(one, loops=loops, numbers=tuple(numbers))
        made[number] = one
    return made


def _groups(members: Mapping[_Known, _Member]) -> Iterator[dict[_Known, _Member]]:
    """Kernels that are alike but for their numbers, two or more each."""
    kinds: dict[Hashable, dict[_Known, _Member]] = {}
    for known, member in members.items():
        kinds.setdefault((known[1], member.kind), {})[known] = member
    for some in kinds.values():
        alike: dict[str, dict[_Known, _Member]] = {}
        for known, member in some.items() if len(some) > 1 else ():
            alike.setdefault(kernel_text(member.nameless), {})[known] = member
        yield from (group for group in alike.values() if len(group) > 1)


def stays(loops: ir.LoopKernel) -> bool:
    """Whether a kernel is the same in the end, whatever others there are and when it runs."""
    return type(loops) is not ir.LoopKernel and _member(loops, runs_once=False) is None


def _member(loops: ir.LoopKernel, runs_once: bool) -> _Member | None:
    """A kernel as one that may be of a group; None: it has no numbers."""
    numbers: list[ir.Const] = []

    def given(expr: ir.Const) -> ir.Expr:
        numbers.append(expr)
        return ir.Name(_name_of("", expr.dtype), expr.dtype)

    changed = _changed(loops, given, runs_once)
    return _Member(loops, replace(changed, name="kernel"), tuple(numbers)) if numbers else None


def _shared(members: list[_Member]) -> _Shared | None:
    """The kernel that all are, given their numbers; None where it is not worth it."""
    columns = [*zip(*(member.numbers for member in members), strict=True)]
    names: dict[tuple[ir.Const, ...], str] = {}
    places: dict[str, int] = {}
    for k, column in enumerate(columns):
        if len({*column}) > 1 and column not in names:
            names[column] = name = _name_of(str(len(names)), column[0].dtype)
            places[name] = k
    if not names or len(names) > MAX_NUMBERS:
        return None
    coming = iter(columns)

    def given(expr: ir.Const) -> ir.Expr:
        name = names.get(next(coming))
        return expr if name is None else ir.Name(name, expr.dtype)

    first = members[0].loops
    loops = _changed(first, given, runs_once=_has_sizes(members[0]))
    return _Shared(replace(loops, sizes=(*first.sizes, *places)), places)


def _has_sizes(member: _Member) -> bool:
    return any(number.dtype == ir.INT64 for number in member.numbers)


def _name_of(k: str, dtype: DType) -> str:
    """Of a number: no other size has such a sign in its name."""
    return f"{dtype.name}{ir.NUMBER}{k}"


def _bits(number: ir.Const) -> int:
    kind = np.uint32 if number.dtype.bits == 32 else np.int64
    return int(np.asarray(number.value, number.dtype.to_numpy()).view(kind))


def _is_number(expr: ir.Const, runs_once: bool) -> bool:
    """Whether it stands for no other thing, and code need not know it."""
    if expr.dtype == ir.INT64:
        return runs_once and expr.value != 0
    is_float = expr.dtype.name in ("float32", "float64")
    return is_float and math.isfinite(expr.value) and abs(expr.value) not in (0, 1)


def _changed(
    loops: ir.LoopKernel, change: Callable[[ir.Const], ir.Expr], runs_once: bool
) -> ir.LoopKernel:
    """A kernel with other numbers, in all of its parts; a part that is shared by others stays one.
    What has a form of its own beside its loops keeps its sizes."""
    is_plain = runs_once and type(loops) is ir.LoopKernel
    known: dict[int, tuple[Any, Any]] = {}

    def part(value: Any) -> Any:
        kind: Any = type(value)
        if kind is ir.Const:
            return change(value) if _is_number(value, is_plain) else value
        names = _names_of(kind)
        if kind is not tuple and not names:
            _LEAVES.add(kind)
            return value
        found = known.get(id(value))
        if found is not None:
            return found[1]
        old = value if kind is tuple else [getattr(value, name) for name in names]
        new = [one if type(one) in _LEAVES else part(one) for one in old]
        if kind is ir.Binary and value.op in _DIVISIONS and value.a != ir.Name(loops.tile_var):
            new[-1] = value.b if type(value.b) is ir.Const else new[-1]
        made = value
        if not _are_same(new, old):
            made = (
                tuple(new)
                if kind is tuple
                else replace(value, **dict(zip(names, new, strict=True)))
            )
        known[id(value)] = value, made  # which keeps its identity from going to another
        return made

    made: ir.LoopKernel = part(loops)
    return made


def _are_same(some: Iterable[Any], others: Iterable[Any]) -> bool:
    return all(a is b for a, b in zip(some, others, strict=True))


@lru_cache(maxsize=256)
def _names_of(kind: Any) -> tuple[str, ...]:
    """Fields of a part of a kernel that may have expressions in them; of anything else none."""
    if not is_dataclass(kind) or not kind.__module__.startswith(_ROOMS):
        return ()
    return tuple(one.name for one in fields(kind) if one.init and one.name != "dtype")
