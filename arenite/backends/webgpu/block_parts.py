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


class Read(NamedTuple):
    """`loads` are (name, type, value) of words as they are in memory: they are loaded long before
    `text`, which takes them apart."""

    loads: list[tuple[str, str, str]]
    text: list[str]
    parts: list[Part]


class Unit(NamedTuple):
    """`per_block` lanes share a block, or several as if they were one, each of a number `part`, and
    read `eights` times eight elements, of which the first is eight `first` of the block.
    read(array, tag) reads them from the block that begins at byte `at{tag}`; `part{tag}` is the
    part, and all names end with the tag."""

    per_block: int
    eights: int
    first: str  # of `part`
    read: Callable[[str, str], Read]
    is_wide: bool = False  # whether it reads four words at once: rows begin at multiples of 16
    functions: str = ""  # that it calls, of which `$w` is the array
    blocks: int = 1  # that are read as one
    is_inside: bool = True  # whether all words that it reads have bytes of the block
