"""Inputs of a model that are no tensors of numbers to come: one that is left out, and those whose
numbers decide structure."""

from __future__ import annotations

from collections.abc import Sequence

from arenite.errors import AreniteError


class Absent:
    """An optional input that is not given; all of them are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Absent)

    def __hash__(self) -> int:
        return hash(Absent)

    def __repr__(self) -> str:
        return "Absent()"


class StructureNeeded(AreniteError):
    """Inputs decide structure, so that their numbers are needed to make a graph."""

    def __init__(self, names: Sequence[str], reason: str) -> None:
        super().__init__(reason)
        self.names = tuple(names)


class WrongBranch(AreniteError):
    """A run took a branch that made no sense when it was translated, for the sizes assumed."""

    def __init__(self, error: AreniteError) -> None:
        super().__init__(str(error))
        self.error = error
