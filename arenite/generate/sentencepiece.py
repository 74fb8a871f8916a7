"""Pieces with scores, as SentencePiece has them: of all neighbours that form a token, those with
the highest score are merged first, the leftmost of equals, whatever the two are. What is no token
falls back to bytes. A space is written as U+2581.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arenite.errors import InvalidFile
from arenite.frontends.gguf import Metadata
from arenite.generate.merges import WordCache, merge
from arenite.generate.vocabulary import Kind, Vocabulary, special_id

SPACE = "\u2581"
#: Words as they are merged apart from each other: spaces, then what is none.
_WORDS = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


def piece_bytes(text: str, is_byte: bool) -> bytes:
    """The bytes a piece stands for."""
    if is_byte and (match := _BYTE_TOKEN.fullmatch(text)):
        return bytes([int(match[1], 16)])
    return text.replace(SPACE, " ").encode()


class ScoredPieces:
    """Encodes plain text by merging towards the highest scores."""

    def __init__(self, metadata: Metadata, vocabulary: Vocabulary, adds_space: bool) -> None:
        self._vocabulary = vocabulary
        self._adds_space = adds_space
        texts = vocabulary.texts
        self._ranks = (-_scores(metadata, len(vocabulary))).data  # the highest score is first
        self._longest = int(texts.n_characters().max())
        self._unknown = special_id(metadata, len(vocabulary), "unknown", 0)
        self._bytes = [texts.find(b"<0x%02X>" % byte) for byte in range(256)]
        # A token with a space inside joins words; without any, words are merged one by one.
        self._one_by_one = not any(
            SPACE in text.lstrip(SPACE) and self._piece(text) is not None for text in texts
        )
        self._cache = WordCache(self._encode_word)

    def encode(self, pieces: Sequence[str | int]) -> list[int]:
        tokens: list[int] = []
        after_token = True
        for piece in pieces:
            if isinstance(piece, int):
                tokens.append(piece)
                after_token = True
                continue
            text = f" {piece}" if self._adds_space and after_token else piece
            text = text.replace(" ", SPACE)
            after_token = False
            if self._one_by_one:
                for word in _WORDS.findall(text):
                    tokens += self._cache[word]
            else:
                tokens += self._encode_word(text)
        return tokens

    def token_bytes(self, token: int) -> bytes:
        text = self._vocabulary.texts[token]
        if token in self._vocabulary.user_defined:
            return text.encode()
        return piece_bytes(text, self._vocabulary.kinds[token] == Kind.BYTE)

    def _piece(self, text: str) -> int | None:
        """The token that a text may become."""
        token = self._vocabulary.find(text.encode())
        is_byte = token is not None and self._vocabulary.kinds[token] == Kind.BYTE
        return None if is_byte else token

    def _encode_word(self, word: str) -> list[int]:
        merged = [-1] * len(word)

        def find(left: int, _right: int, end: int) -> tuple[float, int] | None:
            if end - left > self._longest:
                return None
            token = self._piece(word[left:end])
            return None if token is None else (self._ranks[token], token)

        tokens = []
        for start in merge(merged, find):
            if merged[start] >= 0:
                tokens.append(merged[start])
            else:
                token = self._piece(word[start])
                tokens += self._fall_back(word[start]) if token is None else [token]
        return tokens

    def _fall_back(self, character: str) -> list[int]:
        """Tokens of its bytes; one unknown token where the vocabulary has none for them."""
        pieces = [self._bytes[byte] for byte in character.encode()]
        tokens = [token for token in pieces if token is not None]
        is_known = len(tokens) == len(pieces)
        return [self._unknown] if not is_known and self._unknown is not None else tokens


def _scores(metadata: Metadata, n_tokens: int) -> NDArray[np.float32]:
    key = "tokenizer.ggml.scores"
    if key not in metadata:
        return np.zeros(n_tokens, np.float32)
    scores = metadata.numbers(key)
    if len(scores) != n_tokens or np.isnan(scores).any():
        raise InvalidFile(
            f"{metadata.path}: {key} has {len(scores)} values, one for each of {n_tokens} tokens "
            "is needed and none may be NaN"
        )
    return scores.astype(np.float32)
