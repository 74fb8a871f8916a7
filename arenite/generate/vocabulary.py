"""Vocabulary: the tokens of a GGUF file, what kind each is, and those with a part of their own.

In: the file's metadata. Out: texts and kinds by id, and ids by text, checked: no two tokens alike,
every list as long as the vocabulary, every special id inside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenite.errors import InvalidFile
from arenite.frontends.gguf import Metadata
from arenite.frontends.stored_tensor import quoted
from arenite.frontends.tokenizer_json.check import MAX_TOKEN_LENGTH, MAX_TOKENS
from arenite.generate.texts import Texts

_Kinds: TypeAlias = NDArray[np.int64]


class Kind(IntEnum):
    """What a token is, by its number in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


#: Tokens that end an answer by what they are called: files seldom say it in another way.
END_NAMES = frozenset(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> "
    "<|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> "
    "<eos> <turn|> <|tool_response> <\uff5cend\u2581of\u2581sentence\uff5c> [e~[ "
    # A next file or padding: the model is past the text it was writing.
    "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> "
    "<reponame> <|file_sep|>".split()
)
#: Tokens around a gap in a text, which are no text whatever a file says.
GAP_NAMES = frozenset(
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <PRE> \u2581<PRE> <|code_prefix|> <|prefix|> "
    "<|fim_suffix|> <fim-suffix> <fim_suffix> <SUF> \u2581<SUF> <|code_suffix|> <|suffix|> "
    "<|fim_middle|> <fim-middle> <fim_middle> <MID> \u2581<MID> <|code_middle|> <|middle|> "
    "<\uff5cfim\u2581begin\uff5c> <\uff5cfim\u2581hole\uff5c> <\uff5cfim\u2581end\uff5c>".split()
)
#: Names that end nothing where all of the others are there too.
_NO_END = {
    "<|end|>": [{"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"}],
    "</s>": [{"<|tool_response>"}, {"<|plamo:eos|>"}],
}


#: All names that decide what a token is.
NAMES = END_NAMES | GAP_NAMES | frozenset().union(*chain.from_iterable(_NO_END.values()))


def read_texts(metadata: Metadata) -> Texts:
    """The texts of all tokens; one that is empty gets a name."""
    key = "tokenizer.ggml.tokens"
    path, tokens = metadata.path, metadata.array(key)
    if not 0 < len(tokens) <= MAX_TOKENS:
        raise InvalidFile(f"{path}: a vocabulary of {len(tokens)} tokens; 1 to {MAX_TOKENS} go")
    raw, starts = tokens.packed_texts()
    if (np.diff(starts) == 0).any():
        texts = Texts.of(text or f"[EMPTY_{k}]" for k, text in enumerate(tokens.texts()))
    else:
        texts = Texts(raw, starts)
    if texts.repeated:
        first, second = texts.repeated
        raise InvalidFile(f"{path}: tokens {first} and {second} are both {quoted(texts[first])}")
    longest = int(texts.n_characters().argmax())
    if len(texts[longest]) > MAX_TOKEN_LENGTH:
        raise InvalidFile(
            f"{path}: token {longest} is {quoted(texts[longest])}; at most {MAX_TOKEN_LENGTH} "
            "characters are read"
        )
    return texts


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens by id; `controls` are those that no text makes: control tokens and unknown ones."""

    path: str
    texts: Texts
    kinds: bytes  # as in the file; what is no kind is 0
    controls: frozenset[int]
    user_defined: frozenset[int]
    end_tokens: frozenset[int]

    @classmethod
    def of(
        cls, metadata: Metadata, texts: Texts, merged: NDArray[np.int32] | None = None
    ) -> Vocabulary:
        """Read and check it; `merged` are the tokens that merges make, where the file has such."""
        kinds = _kinds(metadata, len(texts))
        ids = {name: token for name in NAMES if (token := texts.find(name.encode())) is not None}
        plain = _plain_words(ids, kinds, merged)
        ends = end_tokens(ids) - plain
        ends |= special_ids(metadata, len(texts), "eos eot eom")
        controls = set(np.flatnonzero((kinds == Kind.CONTROL) | (kinds == Kind.UNKNOWN)).tolist())
        controls |= ends | ({ids[name] for name in GAP_NAMES & ids.keys()} - plain)
        user_defined = set(np.flatnonzero(kinds == Kind.USER_DEFINED).tolist())
        return cls(
            metadata.path,
            texts,
            np.where(np.isin(kinds, list(Kind)), kinds, 0).astype(np.uint8).tobytes(),
            frozenset(controls),
            frozenset(user_defined - controls),
            frozenset(ends),
        )

    def __len__(self) -> int:
        return len(self.texts)

    def find(self, text: bytes) -> int | None:
        """The token that a text in UTF-8 may become; None for a control token's."""
        token = self.texts.find(text)
        return None if token in self.controls else token


def end_tokens(ids: dict[str, int]) -> set[int]:
    """Tokens of a vocabulary that are called what ends an answer."""
    names = END_NAMES & ids.keys()
    for name, companies in _NO_END.items():
        if any(company <= ids.keys() for company in companies):
            names -= {name}
    return {ids[name] for name in names}


def special_id(
    metadata: Metadata, n_tokens: int, name: str, default: int | None = None
) -> int | None:
    """The id of `tokenizer.ggml.{name}_token_id`; the default where it has one and can."""
    key = f"tokenizer.ggml.{name}_token_id"
    if key not in metadata:
        return default if default is not None and default < n_tokens else None
    token = metadata.integer(key)
    if not 0 <= token < n_tokens:
        raise InvalidFile(
            f"{metadata.path}: {key} is {token}, and the vocabulary has {n_tokens} tokens"
        )
    return token


def special_ids(metadata: Metadata, n_tokens: int, names: str) -> set[int]:
    tokens = (special_id(metadata, n_tokens, name) for name in names.split())
    return {token for token in tokens if token is not None}


def _kinds(metadata: Metadata, n_tokens: int) -> _Kinds:
    key = "tokenizer.ggml.token_type"
    if key not in metadata:
        return np.full(n_tokens, Kind.NORMAL, np.int64)
    kinds = metadata.numbers(key)
    if kinds.dtype.kind not in "iu" or len(kinds) != n_tokens:
        raise InvalidFile(
            f"{metadata.path}: {key} has {len(kinds)} values of {kinds.dtype}; it should have "
            f"{n_tokens} integers, one a token"
        )
    return kinds.astype(np.int64)


def _plain_words(ids: dict[str, int], kinds: _Kinds, merged: NDArray[np.int32] | None) -> set[int]:
    """Tokens that are called like an end and that merges make out of text, such as a tag `</s>`."""
    if merged is None:
        return set()
    named = (ids[name] for name in (END_NAMES | GAP_NAMES) & ids.keys())
    return {token for token in named if kinds[token] == Kind.NORMAL and (merged == token).any()}
