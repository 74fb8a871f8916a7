"""Pieces with scores, as SentencePiece has them: of all neighbours that form a token, those with
the highest score are merged first, the leftmost of equals. What is no token falls back to bytes.

    h e l l o        scores: ll -1, he -2, llo -3, hello -4
    h e (ll) o       (he) (ll) o       (he) (llo)       (hello)

The tokenizers library merges by the rank of a pair; here a pair's rank is the score of what it
forms, whatever the two halves are, so it is written out. A space is written as U+2581.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from arenite.errors import InvalidFile
from arenite.frontends.gguf import Metadata
from arenite.generate.vocabulary import Kind, Vocabulary, special_id

SPACE = "\u2581"
#: Words as they are merged apart from each other: spaces, then what is none.
_WORDS = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
_MAX_CACHED_WORDS = 2**16
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


def piece_bytes(text: str, is_byte: bool) -> bytes:
    """The bytes a piece stands for."""
    if is_byte and (found := _BYTE_TOKEN.fullmatch(text)):
        return bytes([int(found[1], 16)])
    return text.replace(SPACE, " ").encode()


class ScoredPieces:
    """Encodes plain text by merging towards the highest scores."""

    def __init__(self, metadata: Metadata, vocabulary: Vocabulary, adds_space: bool) -> None:
        self._vocabulary = vocabulary
        self._adds_space = adds_space
        scores = _scores(metadata, len(vocabulary))
        kinds, controls = vocabulary.kinds, vocabulary.controls
        #: Score (negated: the heap gives the smallest) and id of what text may become.
        self._pieces = {
            text: (-score, token)
            for (text, token), score in zip(vocabulary.ids.items(), scores, strict=True)
            if kinds[token] != Kind.BYTE and token not in controls
        }
        self._longest = max(map(len, self._pieces), default=0)
        self._unknown = special_id(metadata, len(vocabulary), "unknown", 0)
        self._bytes = [vocabulary.ids.get(f"<0x{byte:02X}>") for byte in range(256)]
        # A token with a space inside joins words; without any, words are merged one by one.
        self._one_by_one = not any(SPACE in text.lstrip(SPACE) for text in self._pieces)
        self._cache: dict[str, list[int]] = {}

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
            for word in _WORDS.findall(text) if self._one_by_one else [text]:
                tokens += self._encode_word(word)
        return tokens

    def token_bytes(self, token: int) -> bytes:
        text = self._vocabulary.texts[token]
        if token in self._vocabulary.user_defined:
            return text.encode()
        return piece_bytes(text, self._vocabulary.kinds[token] == Kind.BYTE)

    def _encode_word(self, word: str) -> list[int]:
        found = self._cache.get(word)
        if found is None:
            found = []
            for piece in self._merge(word):
                if piece in self._pieces:
                    found.append(self._pieces[piece][1])
                else:
                    found += self._fall_back(piece)
            if len(self._cache) < _MAX_CACHED_WORDS:
                self._cache[word] = found
        return found

    def _fall_back(self, character: str) -> list[int]:
        """Tokens of its bytes; one unknown token where the vocabulary has none for them."""
        found = [self._bytes[byte] for byte in character.encode()]
        tokens = [token for token in found if token is not None]
        is_known = len(tokens) == len(found)
        return [self._unknown] if not is_known and self._unknown is not None else tokens

    def _merge(self, text: str) -> list[str]:
        """The text in pieces after all merges; `ends[i]` is where the piece that starts at i
        ends, 0 once it is part of another."""
        n = len(text)
        ends = list(range(1, n + 1))
        before = list(range(-1, n - 1))
        heap = []
        pieces, longest = self._pieces, self._longest
        for left in range(n - 1):
            found = pieces.get(text[left : left + 2])
            if found is not None:
                heap.append((found[0], left, left + 1, left + 2))
        heapify(heap)
        while heap:
            _, left, right, end = heappop(heap)
            if ends[left] != right or ends[right] != end:
                continue  # one of the two has been merged since
            ends[left], ends[right] = end, 0
            if end < n:
                before[end] = left
                after = ends[end]
                if after - left <= longest:
                    found = pieces.get(text[left:after])
                    if found is not None:
                        heappush(heap, (found[0], left, end, after))
            previous = before[left]
            if previous >= 0 and end - previous <= longest:
                found = pieces.get(text[previous:end])
                if found is not None:
                    heappush(heap, (found[0], previous, left, end))
        merged, start = [], 0
        while start < n:
            merged.append(text[start : ends[start]])
            start = ends[start]
        return merged


def _scores(metadata: Metadata, n_tokens: int) -> list[float]:
    key = "tokenizer.ggml.scores"
    if key not in metadata:
        return [0.0] * n_tokens
    scores = metadata.numbers(key)
    if len(scores) != n_tokens or np.isnan(scores).any():
        raise InvalidFile(
            f"{metadata.path}: {key} has {len(scores)} values, one for each of {n_tokens} tokens "
            "is needed and none may be NaN"
        )
    listed: list[float] = scores.astype(np.float32).tolist()
    return listed
