"""What one lane reads of a block of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Part(NamedTuple):
    """Elements that stand for scale * number + least; no least is "". `numbers` are (k, words):
    eight elements, the k-th eight behind the first of the unit, as two words of int8. Either all
    of them lie in one run of 32 elements, or the least is ""."""

    scale: str
    least: str
    numbers: tuple[tuple[int, tuple[str, str]], ...]


class Unit(NamedTuple):
    """`per_block` lanes share a block, each of a number `part`, and read `eights` times eight
    elements, of which the first is eight `first` of the block. read(array, r) is text that reads
    them from the block that begins at byte `at{r}`, and its parts."""

    per_block: int
    eights: int
    first: str
    read: Callable[[str, int], tuple[list[str], list[Part]]]
    is_wide: bool = False  # whether it reads four words at once: rows begin at multiples of 16
    functions: str = ""  # that it calls, of which `$w` is the array
