"""Byte pairs: texts as bytes, cut into words, neighbours merged in the order of the file's merges.

The bytes of a text are written with 256 printable characters, as GPT-2 began it, and tokens are
texts of those.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from arenite.errors import printable
from arenite.frontends.gguf import Metadata
from arenite.generate.merges import Merges, Pairs, WordCache, merge
from arenite.generate.pretokens import WordRule, word_rule
from arenite.generate.sentencepiece import SPACE, piece_bytes
from arenite.generate.vocabulary import Kind, Vocabulary
from arenite.generate.words import WordCutter


def _byte_characters() -> dict[str, int]:
    """Each byte's character: itself where it prints, one from U+0100 on where it does not."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    characters = {chr(byte): byte for byte in printable}
    return characters | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHARACTER = _byte_characters()
_CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}


def bytes_of_characters(text: str) -> bytes:
    """The bytes a token's text stands for; of a text with other characters its UTF-8."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in text])
    except KeyError:
        return text.encode()


def byte_numbers(n_tokens: int) -> dict[bytes, int]:
    """Numbers past all tokens that stand for bytes, by their characters, where these are none."""
    return {text.encode(): n_tokens + byte for text, byte in BYTE_OF_CHARACTER.items()}


class BytePairs:
    """Encodes plain text by merging. A byte without a token gives none, and what stands beside it
    is not merged across it."""

    def __init__(self, vocabulary: Vocabulary, pairs: Pairs, rule: WordRule) -> None:
        self._vocabulary, self._rule = vocabulary, rule
        #: Tokens of bytes; one that has none has a number past all tokens.
        self._bytes = []
        for byte in range(256):
            text = f"<0x{byte:02X}>" if rule.as_text else _CHARACTER_OF_BYTE[byte]
            token = vocabulary.find(text.encode())
            self._bytes.append(len(vocabulary) + byte if token is None else token)
        self._merges = Merges(pairs, len(vocabulary) + 256)
        self._cutter = WordCutter(rule.patterns)
        self._cache = WordCache(self._encode_word)

    def encode(self, pieces: Sequence[str | int]) -> list[int]:
        tokens: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                tokens.append(piece)
                continue
            text = piece.replace(" ", SPACE) if self._rule.as_text else piece
            for word in self._cutter.words(text):
                tokens += self._cache[word]
        return tokens

    def token_bytes(self, token: int) -> bytes:
        text = self._vocabulary.texts[token]
        if token in self._vocabulary.user_defined:
            return text.encode()
        if self._rule.as_text:
            return piece_bytes(text, self._vocabulary.kinds[token] == Kind.BYTE)
        return bytes_of_characters(text)

    def _encode_word(self, word: str) -> list[int]:
        raw = word.encode()
        if self._rule.whole_words:
            whole = "".join(_CHARACTER_OF_BYTE[byte] for byte in raw)
            token = self._vocabulary.find(whole.encode())
            if token is not None:
                return [token]
        tokens = self._characters(word) if self._rule.as_text else [self._bytes[b] for b in raw]
        find, n_tokens = self._merges.find, len(self._vocabulary)
        starts = merge(tokens, lambda left, right, _: find(tokens[left], tokens[right]))
        return [tokens[start] for start in starts if tokens[start] < n_tokens]

    def _characters(self, word: str) -> list[int]:
        """Tokens of characters, or of a character's bytes where it is none and they all are."""
        tokens, n_tokens = [], len(self._vocabulary)
        for character in word:
            token = self._vocabulary.find(character.encode())
            parts = [self._bytes[byte] for byte in character.encode()] if token is None else [token]
            tokens += parts if max(parts) < n_tokens else []
        return tokens


def rule_of(metadata: Metadata) -> WordRule:
    """How the file's words are cut; files from before it was written down get a warning."""
    key = "tokenizer.ggml.pre"
    if metadata.text("tokenizer.ggml.model") == "gemma4":
        return word_rule("gemma4", metadata.path)
    if key not in metadata:
        warnings.warn(
            f"{printable(metadata.path)} does not say how its words are cut ({key}); the common "
            "way is taken, and answers may suffer: convert the model again with a newer converter",
            stacklevel=4,
        )
    return word_rule(metadata.text(key, "default"), metadata.path)
