"""Parts: what a tokenizer is made of, whichever file it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from arenite.generate.specials import Specials
from arenite.generate.template import ChatTemplate


class Encoder(Protocol):
    """One way to make tokens of text."""

    def encode(self, pieces: Sequence[str | int]) -> list[int]:
        """Tokens of pieces in order: plain text, or a token that stands for itself."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token that is no control token."""
        ...


@dataclass(frozen=True, repr=False, eq=False)
class Parts:
    """A vocabulary and its ways, as a model's files have them."""

    encoder: Encoder
    specials: Specials
    n_tokens: int
    bos: int | None
    eos: int | None
    prefix: tuple[int, ...]  # before a text: bos, or the like
    suffix: tuple[int, ...]
    end_tokens: frozenset[int]  # that end an answer
    chat_template: ChatTemplate | None
    drops_first_space: bool  # of a decoded text, because encoding put it there
