"""Tokenizer: text to tokens and back, for whatever vocabulary a model was trained with.

In: the metadata of a GGUF file, or a folder as Hugging Face lays it out. Text never makes a control
token unless that is asked for: what a user typed stays text, whatever it looks like.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from arenite.errors import IndexOutOfRange, InvalidArgument
from arenite.frontends.gguf import Metadata
from arenite.generate.parts import Parts
from arenite.generate.stream import TextStream, whole_characters


class Tokenizer(Parts):
    """Texts to tokens and back: a vocabulary, its rules, and the chat template of the model."""

    @classmethod
    def of_gguf(cls, metadata: Metadata) -> Tokenizer:
        """The tokenizer that a GGUF file holds."""
        from arenite.generate.gguf_parts import read_gguf

        return cls(**vars(read_gguf(metadata)))

    @classmethod
    def of_folder(cls, folder: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer of `tokenizer.json` and the files beside it."""
        from arenite.generate.folder_parts import read_folder

        return cls(**vars(read_folder(folder)))

    @property
    def adds_bos(self) -> bool:
        """Whether a text begins with the token for beginnings."""
        return self.bos is not None and self.prefix[:1] == (self.bos,)

    @property
    def adds_eos(self) -> bool:
        """Whether a text ends with the token for ends."""
        return self.eos is not None and self.suffix[-1:] == (self.eos,)

    def encode(self, text: str, *, special: bool = False, ends: bool = True) -> list[int]:
        """Tokens of a text. `special`: texts of control tokens become those tokens; `ends`: with
        the tokens that the model expects before and after a text."""
        if not isinstance(text, str):
            raise InvalidArgument(f"a text is needed; {text!r:.80} is a {type(text).__name__}")
        pieces = self.specials.split(whole_characters(text), controls=special)
        return self.encode_pieces(pieces, ends=ends)

    def encode_pieces(self, pieces: Sequence[str | int], *, ends: bool = False) -> list[int]:
        """Tokens of pieces in order: plain text, or a token that stands for itself."""
        tokens = self.encoder.encode(pieces)
        return [*self.prefix, *tokens, *self.suffix] if ends else tokens

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; none for a control token."""
        if not 0 <= token < self.n_tokens:
            raise IndexOutOfRange(f"there is no token {token}: the vocabulary has {self.n_tokens}")
        return b"" if token in self.specials.controls else self.encoder.token_bytes(token)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens that stand alone; bytes that are not UTF-8 become U+FFFD."""
        text = b"".join(map(self.token_bytes, tokens)).decode(errors="replace")
        return text[1:] if self.drops_first_space and text.startswith(" ") else text

    def stream(self) -> TextStream:
        """The text of tokens as they come, going on from what is there already."""
        return TextStream(self.token_bytes)

    def __repr__(self) -> str:
        kind = type(self.encoder).__name__
        return f"<Tokenizer of {self.n_tokens} tokens, {kind}, bos {self.bos}, eos {self.eos}>"
