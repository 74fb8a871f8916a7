"""WordPiece: words without case and accents, each covered from the left by the longest tokens.

A word that can't be covered is one unknown token. In a GGUF file a token that starts a word begins
with U+2581, and those that go on inside a word have no mark.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from arenite.errors import InvalidFile
from arenite.frontends.gguf import Metadata
from arenite.generate.merges import WordCache
from arenite.generate.sentencepiece import SPACE
from arenite.generate.vocabulary import Vocabulary, special_id

#: Ideographs, which are words by themselves, as BERT's own tokenizer lists them.
_IDEOGRAPHS = (
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B920, 0x2CEB0),
    range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
)


class WordPieces:
    """Encodes plain text word by word."""

    def __init__(self, metadata: Metadata, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lowers = metadata.flag("tokenizer.ggml.normalizer.lowercase", True)
        self._strips = metadata.flag("tokenizer.ggml.normalizer.strip_accents", self._lowers)
        unknown = special_id(metadata, len(vocabulary), "unknown", 100)
        if unknown is None:
            raise InvalidFile(
                f"{metadata.path}: the vocabulary has no token that stands for unknown words "
                "(tokenizer.ggml.unknown_token_id)"
            )
        self._unknown = unknown
        self._longest = int(vocabulary.texts.n_characters().max())
        self._cache = WordCache(self._encode_word)

    def encode(self, pieces: Sequence[str | int]) -> list[int]:
        tokens: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                tokens.append(piece)
            else:
                for word in self._words(piece):
                    tokens += self._cache[word]
        return tokens

    def token_bytes(self, token: int) -> bytes:
        return self._vocabulary.texts[token].replace(SPACE, " ").encode()

    def _words(self, text: str) -> list[str]:
        words = [""]
        for character in _bases(text) if self._strips else text:
            part = _part(character)
            if part == "space":
                words += [""]
            elif part == "none" or (self._strips and part == "accent"):
                continue
            else:
                lowered = _lower(character) if self._lowers else character
                if part == "sign":
                    words += [lowered, ""]
                else:
                    words[-1] += lowered
        return [word for word in words if word]

    def _encode_word(self, word: str) -> list[int]:
        return self._cover(SPACE + word) or [self._unknown]

    def _cover(self, word: str) -> list[int]:
        """The longest tokens from the left; none where something is not covered."""
        tokens, start = [], 0
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                token = self._vocabulary.find(word[start:end].encode())
                if token is not None:
                    tokens.append(token)
                    start = end
                    break
            else:
                return []
        return tokens


def _bases(text: str) -> str:
    """Each character's first in its decomposition: a letter without its accents."""
    return "".join(unicodedata.normalize("NFD", character)[0] for character in text)


def _lower(character: str) -> str:
    lowered = character.lower()
    return lowered if len(lowered) == 1 else character


@lru_cache(maxsize=2**12)
def _part(character: str) -> str:
    """What a character does in a text: space, none, accent, sign or letter."""
    code, category = ord(character), unicodedata.category(character)
    if character.isspace() and not 0x1C <= code <= 0x1F:
        return "space"
    if code in (0, 0xFFFD) or category in ("Cc", "Cf", "Co", "Cs"):
        return "none"
    if category.startswith("M"):
        return "accent"
    is_ascii_symbol = code < 0x7F and category.startswith("S")
    if category.startswith("P") or is_ascii_symbol or any(code in span for span in _IDEOGRAPHS):
        return "sign"
    return "letter"
