"""Byte pairs: texts as bytes, cut into words, neighbours merged in the order of the file's merges.

The bytes of a text are written with 256 printable characters, as GPT-2 began it, and tokens are
texts of those. Cutting and merging are done by the tokenizers library.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arenite.errors import InvalidFile
from arenite.frontends.gguf import Metadata
from arenite.frontends.stored import quoted
from arenite.generate.pretokens import WordRule, word_rule
from arenite.generate.sentencepiece import SPACE, piece_bytes
from arenite.generate.vocabulary import Kind, Vocabulary

if TYPE_CHECKING:
    import tokenizers


def _byte_characters() -> dict[str, int]:
    """Each byte's character: itself where it prints, one from U+0100 on where it does not."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    characters = {chr(byte): byte for byte in printable}
    return characters | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHARACTER = _byte_characters()


def bytes_of_characters(text: str) -> bytes:
    """The bytes a token's text stands for; of a text with other characters its UTF-8."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in text])
    except KeyError:
        return text.encode()


class BytePairs:
    """Encodes plain text by merging."""

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], rule: WordRule) -> None:
        # Not the vocabulary itself: its ids by text would be kept for nothing.
        self._texts, self._kinds = vocabulary.texts, vocabulary.kinds
        self._user_defined = vocabulary.user_defined
        self._as_text = rule.as_text
        self._lacks_bytes = not (rule.as_text or vocabulary.ids.keys() >= BYTE_OF_CHARACTER.keys())
        self._library = _library_tokenizer(vocabulary, merges, rule)

    def encode(self, pieces: Sequence[str | int]) -> list[int]:
        tokens: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                tokens.append(piece)
            else:
                text = piece.replace(" ", SPACE) if self._as_text else piece
                tokens += self._library.encode(text, add_special_tokens=False).ids
        n_tokens = len(self._texts)
        return [token for token in tokens if token < n_tokens] if self._lacks_bytes else tokens

    def token_bytes(self, token: int) -> bytes:
        text = self._texts[token]
        if token in self._user_defined:
            return text.encode()
        if self._as_text:
            return piece_bytes(text, self._kinds[token] == Kind.BYTE)
        return bytes_of_characters(text)


def rule_of(metadata: Metadata) -> WordRule:
    """How the file's words are cut; files from before it was written down get a warning."""
    key = "tokenizer.ggml.pre"
    if metadata.text("tokenizer.ggml.model") == "gemma4":
        return word_rule("gemma4", metadata.path)
    if key not in metadata:
        warnings.warn(
            f"{metadata.path} does not say how its words are cut ({key}); the common way is taken, "
            "and answers may suffer: convert the model again with a newer converter",
            stacklevel=4,
        )
    return word_rule(metadata.text(key, "default"), metadata.path)


def _library_tokenizer(
    vocabulary: Vocabulary, merges: Sequence[str], rule: WordRule
) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    pairs: list[Any] = [tuple(merge.split(" ", 1)) for merge in merges]
    ids = vocabulary.ids.copy()
    for token in vocabulary.controls:  # no text makes these, whatever the merges say
        del ids[vocabulary.texts[token]]
    if not rule.as_text:
        # A byte without a token gives none, and what stands beside it is not merged across it.
        for index, character in enumerate(BYTE_OF_CHARACTER):
            ids.setdefault(character, len(vocabulary) + index)
    try:
        model = models.BPE(ids, pairs, byte_fallback=rule.as_text, ignore_merges=rule.whole_words)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # what the library raises in a panic is no Exception
        raise InvalidFile(f"{vocabulary.path}: {_wrong_merge(pairs, ids) or error}") from None
    library = Tokenizer(model)
    steps: list[Any] = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns
    ]
    if not rule.as_text:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    library.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return library


def _wrong_merge(merges: list[tuple[str, ...]], ids: dict[str, int]) -> str | None:
    for rank, merge in enumerate(merges):
        if len(merge) != 2:
            return f"merge {rank} is {quoted(' '.join(merge))}, which is no pair of tokens"
        for text in (*merge, "".join(merge)):
            if text not in ids:
                return f"merge {rank} is {quoted(' '.join(merge))}, and {quoted(text)} is no token"
    return None
