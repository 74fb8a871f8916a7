"""Checks of a tokenizer.json before the library sees it: ids, texts and merges fit each other.

The library trusts such files and ends its process on some that contradict themselves; what is
checked here gets a message that says what is wrong.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from arenite.errors import InvalidFile, NotSupported

MAX_TOKENS = 2**22
MAX_TOKEN_LENGTH = 4096  # characters
#: Tokens that stand for themselves, which are looked for in every text one by one.
MAX_ADDED_TOKENS = 2**16


def check_tokenizer(raw: str, path: str) -> None:
    """Raise InvalidFile for a file that is not what it should be."""
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{path} is not JSON: {error}") from None
    model = parsed.get("model") if isinstance(parsed, dict) else None
    if not isinstance(model, dict):
        _fail(path, "has no model")
    if isinstance(model.get("vocab"), list):
        _check_likely(model, path)
    else:
        _check_ids(model.get("vocab"), path)
        _check_merges(model, path)
    added = parsed.get("added_tokens", [])
    if isinstance(added, list) and len(added) > MAX_ADDED_TOKENS:
        _fail(path, f"has {len(added)} added tokens; at most {MAX_ADDED_TOKENS} are read")
    for item in added if isinstance(added, list) else [added]:
        token, text = (item.get("id"), item.get("content")) if isinstance(item, dict) else (0, 0)
        if not _is_id(token) or not _is_text(text):
            _fail(path, f"has an added token {_shown(item)}")


def _check_ids(vocab: Any, path: str) -> None:
    """Texts with their ids, each id once."""
    if not isinstance(vocab, dict):
        _fail(path, "has no vocabulary")
    if not all(map(_is_id, vocab.values())) or len({*vocab.values()}) != len(vocab):
        _fail(path, f"has an id that is none from 0 to {MAX_TOKENS - 1}, or one twice")
    if max(map(len, vocab), default=0) > MAX_TOKEN_LENGTH:
        _fail(path, f"has a token of over {MAX_TOKEN_LENGTH} characters")


def _check_likely(model: dict[str, Any], path: str) -> None:
    """Pairs of a text and how likely it is; an unknown token among them."""
    vocab, unknown = model["vocab"], model.get("unk_id")
    for item in vocab:
        is_pair = isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)
        if not is_pair or not isinstance(item[1], int | float):
            _fail(path, f"has a piece {_shown(item)}")
    if unknown is not None and not (_is_id(unknown) and unknown < len(vocab)):
        _fail(path, f"has an unknown token {unknown!r} in a vocabulary of {len(vocab)}")


def _check_merges(model: dict[str, Any], path: str) -> None:
    """Pairs of tokens that make a token."""
    if model.get("merges") is None:
        return
    if not isinstance(model["merges"], list):
        _fail(path, "has merges that are no list")
    if model.get("continuing_subword_prefix"):
        raise NotSupported(f"{path}: merges of tokens with a prefix are not read")
    vocab = model["vocab"]
    for rank, merge in enumerate(model["merges"]):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(map(_is_text, pair))
        if not is_pair or not {pair[0], pair[1], pair[0] + pair[1]} <= vocab.keys():
            _fail(path, f"has a merge {rank}, {_shown(merge)}, of what are no tokens")


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_TOKENS


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TOKEN_LENGTH


def _shown(item: Any) -> str:
    return f"{str(item)[:80]!r}"


def _fail(path: str, reason: str) -> NoReturn:
    raise InvalidFile(f"{path} is no tokenizer: it {reason}")
