"""Vocabulary: the tokens of a GGUF file, what kind each is, and those with a part of their own.

In: the file's metadata. Out: texts by id and ids by text, checked: no two tokens alike, every list
as long as the vocabulary, every special id inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np

from arenite.errors import InvalidFile
from arenite.frontends.gguf import Metadata
from arenite.frontends.stored import quoted

MAX_TOKENS = 2**22
MAX_TOKEN_LENGTH = 4096  # characters


_Kinds: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


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


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens by id; `controls` are those that no text makes: control tokens and unknown ones."""

    path: str
    texts: list[str]
    ids: dict[str, int]
    kinds: list[int]
    controls: frozenset[int]
    user_defined: frozenset[int]
    end_tokens: frozenset[int]

    @classmethod
    def of(cls, metadata: Metadata, merges: Sequence[str] = ()) -> Vocabulary:
        """Read and check it; `merges` are those that make tokens, where the file has such."""
        path = metadata.path
        texts = metadata.texts("tokenizer.ggml.tokens")
        if not 0 < len(texts) <= MAX_TOKENS:
            raise InvalidFile(f"{path}: a vocabulary of {len(texts)} tokens; 1 to {MAX_TOKENS} go")
        if "" in texts:
            texts = [text or f"[EMPTY_{token}]" for token, text in enumerate(texts)]
        ids = {text: token for token, text in enumerate(texts)}
        if len(ids) != len(texts):
            raise InvalidFile(f"{path}: {_repeated(texts)}")
        longest = max(texts, key=len)
        if len(longest) > MAX_TOKEN_LENGTH:
            raise InvalidFile(
                f"{path}: token {ids[longest]} is {quoted(longest)}; at most {MAX_TOKEN_LENGTH} "
                "characters are read"
            )
        kinds = _kinds(metadata, len(texts))
        plain = _plain_words(ids, kinds, merges)
        ends = end_tokens(ids) - plain
        ends |= special_ids(metadata, len(texts), "eos eot eom")
        controls = set(np.flatnonzero((kinds == Kind.CONTROL) | (kinds == Kind.UNKNOWN)).tolist())
        controls |= ends | ({ids[name] for name in GAP_NAMES & ids.keys()} - plain)
        user_defined = set(np.flatnonzero(kinds == Kind.USER_DEFINED).tolist())
        return cls(
            path,
            texts,
            ids,
            kinds.tolist(),
            frozenset(controls),
            frozenset(user_defined - controls),
            frozenset(ends),
        )

    def __len__(self) -> int:
        return len(self.texts)


def end_tokens(ids: dict[str, int]) -> set[int]:
    """Tokens of a vocabulary that are called what ends an answer."""
    found = END_NAMES & ids.keys()
    for name, companies in _NO_END.items():
        if any(company <= ids.keys() for company in companies):
            found -= {name}
    return {ids[name] for name in found}


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
    found = (special_id(metadata, n_tokens, name) for name in names.split())
    return {token for token in found if token is not None}


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


def _plain_words(ids: dict[str, int], kinds: _Kinds, merges: Sequence[str]) -> set[int]:
    """Tokens that are called like an end and that merges make out of text, such as a tag `</s>`."""
    names = (END_NAMES | GAP_NAMES) & ids.keys()
    named = [text for text in names if kinds[ids[text]] == Kind.NORMAL]
    making = {f"{text[:k]} {text[k:]}": ids[text] for text in named for k in range(1, len(text))}
    return {making[merge] for merge in merges if merge in making}


def _repeated(texts: list[str]) -> str:
    seen: dict[str, int] = {}
    for token, text in enumerate(texts):
        first = seen.setdefault(text, token)
        if first != token:
            return f"tokens {first} and {token} are both {quoted(text)}"
    raise AssertionError("every text is there once")
