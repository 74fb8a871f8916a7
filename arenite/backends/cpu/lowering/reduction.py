"""Reductions: neutral elements, one step, and how partial results become one.

A vector loop keeps a partial result for each lane of each of its vectors. They are combined as a
tree whose shape depends on the number of lanes and vectors alone:

    vectors   (p0 + p1) + (p2 + p3)
    lanes     upper half onto lower half, until one is left
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arenite.backends.cpu.lowering import arithmetic
from arenite.backends.cpu.lowering.convert import register_type
from arenite.backends.cpu.lowering.scope import accumulators
from arenite.backends.cpu.lowering.vector import Builder, Vec
from arenite.codegen import loop_ir as ir
from arenite.dtype import DType, Kind


@dataclass(frozen=True, slots=True)
class Reduction:
    """One accumulator, or with argmax and argmin the two that change together."""

    names: tuple[str, ...]
    op: str
    dtypes: tuple[DType, ...]

    def neutral(self, b: Builder, lanes: int) -> list[Vec]:
        values = [neutral_value(self.op, self.dtypes[0])]
        if len(self.names) == 2:
            values.append(_extremes(self.dtypes[1])[1])
        return [
            b.constant(value, register_type(dtype, lanes))
            for value, dtype in zip(values, self.dtypes, strict=True)
        ]

    def step(self, old: list[Vec], new: list[Vec]) -> list[Vec]:
        if len(self.names) == 1:
            # The new value first: of max and min, only its check for NaN is off the chain then.
            return [arithmetic.binary(self.op, new[0], old[0], self.dtypes[0])]
        wins = _beats(self.op, new, old, self.dtypes)
        return [wins.select(a, b) for a, b in zip(new, old, strict=True)]

    def combine(self, vectors: list[list[Vec]]) -> list[Vec]:
        """One value out of vectors of partial results."""
        total = _tree(vectors, self.step)
        b = total[0].builder
        lanes = total[0].type.lanes
        while lanes > 2:
            lanes //= 2
            low = [b.shuffle(v, None, range(lanes)) for v in total]
            high = [b.shuffle(v, None, range(lanes, 2 * lanes)) for v in total]
            total = self.step(low, high)
        if lanes == 2:
            total = self.step([b.lane(v, 0) for v in total], [b.lane(v, 1) for v in total])
        return total


def _tree(parts: list[list[Vec]], step: Callable[[list[Vec], list[Vec]], list[Vec]]) -> list[Vec]:
    while len(parts) > 1:
        pairs = [step(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]


def neutral_value(op: str, dtype: DType) -> bool | int | float:
    """What leaves every other value unchanged."""
    is_float = dtype.kind is Kind.FLOAT
    if op in ("max", "argmax"):
        return _extremes(dtype)[0]
    if op in ("min", "argmin"):
        return _extremes(dtype)[1]
    if op == "mul":
        return 1.0 if is_float else 1
    if op == "and":
        return True if dtype.kind is Kind.BOOL else -1
    return -0.0 if is_float else 0


def _extremes(dtype: DType) -> tuple[bool | int | float, bool | int | float]:
    if dtype.kind is Kind.FLOAT:
        return float("-inf"), float("inf")
    if dtype.kind is Kind.BOOL:
        return False, True
    if dtype.kind is Kind.UNSIGNED:
        return 0, (1 << dtype.bits) - 1
    return -(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1


def _beats(op: str, new: list[Vec], old: list[Vec], dtypes: tuple[DType, ...]) -> Vec:
    """Greater (or less), NaN above all, ties to the smaller index."""
    relation = "gt" if op == "argmax" else "lt"
    wins = arithmetic.binary(relation, new[0], old[0], dtypes[0])
    ties = new[0].eq(old[0])
    if dtypes[0].kind is Kind.FLOAT:
        new_nan, old_nan = new[0].is_nan(), old[0].is_nan()
        wins = wins | (new_nan & ~old_nan)
        ties = ties | (new_nan & old_nan)
    return wins | (ties & arithmetic.binary("lt", new[1], old[1], dtypes[1]))


def reduction_of(stmt: ir.Accumulate | ir.AccumulateArg, dtypes: tuple[DType, ...]) -> Reduction:
    return Reduction(accumulators(stmt), stmt.op, dtypes)
