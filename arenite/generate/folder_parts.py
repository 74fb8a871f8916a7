"""Tokenizers in a folder as Hugging Face lays it out: tokenizer.json, run by its library in a
process of its own, with tokenizer_config.json, special_tokens_map.json and chat_template.jinja.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from arenite.errors import InvalidFile
from arenite.frontends.folder_files import read_inside
from arenite.frontends.json_text import parsed_object
from arenite.frontends.tokenizer_json.process import TokenizerProcess
from arenite.generate.bpe import bytes_of_characters
from arenite.generate.parts import Parts
from arenite.generate.sentencepiece import piece_bytes
from arenite.generate.specials import Specials
from arenite.generate.template import ChatTemplate
from arenite.generate.vocabulary import END_NAMES, end_tokens

#: Of the files beside tokenizer.json, which list tokens that were added: some have 30,000.
MAX_CONFIG_NBYTES = 2**24
MAX_CONFIG_VALUES = 2**20
MAX_CONFIG_KEYS = 2**19
MAX_TEMPLATE_NBYTES = 2**20


class LibraryEncoder:
    """Encodes text with a tokenizer of the library."""

    def __init__(self, process: TokenizerProcess) -> None:
        facts = process.facts
        self._process = process
        self._texts = facts.texts
        self._ends = np.cumsum(np.frombuffer(facts.lengths, np.uint32), dtype=np.uint32)
        self._is_byte_level = facts.is_byte_level
        self._has_bytes = facts.has_bytes
        self._continuing_prefix = facts.continuing_prefix
        self._added = frozenset(facts.added)
        self.specials = Specials.of({self._text(k): k for k in facts.controls}, facts.controls)

    def encode(self, pieces: Sequence[str | int]) -> list[int]:
        if all(isinstance(piece, str) for piece in pieces):
            return self._process.encode("".join(map(str, pieces)), special=False)
        texts = [self._text(piece) if isinstance(piece, int) else piece for piece in pieces]
        whole = "".join(texts)
        if self.specials.split(whole, controls=True) == list(pieces):
            return self._process.encode(whole, special=True)
        # Some piece of text reads like a special token and must not become one.
        tokens: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                tokens.append(piece)
            else:
                tokens += self._process.encode(piece, special=False)
        return tokens

    def token_bytes(self, token: int) -> bytes:
        text = self._text(token)
        if token in self._added:
            return text.encode()
        if self._is_byte_level:
            return bytes_of_characters(text)
        prefix = self._continuing_prefix
        if prefix is not None:
            goes_on = text.startswith(prefix)
            return (text[len(prefix) :] if goes_on else f" {text}").encode()
        return piece_bytes(text, self._has_bytes)

    def _text(self, token: int) -> str:
        start = self._ends[token - 1] if token else 0
        return self._texts[start : self._ends[token]].decode()


def read_folder(given: str | os.PathLike[str]) -> Parts:
    """Read a folder's files; tokenizer.json has to be there."""
    folder = os.fspath(given)
    config = _object(folder, "special_tokens_map.json")
    config |= _object(folder, "tokenizer_config.json")
    texts = {name: _token_text(config, name) for name in ("bos", "eos", "cls")}
    process = TokenizerProcess(folder, sorted({*END_NAMES, *texts.values()}))
    facts = process.facts
    named = {name: facts.ids.get(text) for name, text in texts.items()}
    ends = end_tokens({name: facts.ids[name] for name in END_NAMES & facts.ids.keys()})
    ends |= _listed_ends(folder, facts.n_tokens)
    encoder = LibraryEncoder(process)
    return Parts(
        encoder,
        encoder.specials,
        facts.n_tokens,
        named["bos"] if named["bos"] is not None else named["cls"],
        named["eos"],
        tuple(facts.prefix),
        tuple(facts.suffix),
        frozenset(ends | ({named["eos"]} if named["eos"] is not None else set())),
        _template(folder, config),
        facts.starts_with_space,
    )


def _listed_ends(folder: str, n_tokens: int) -> set[int]:
    """Tokens that end an answer by the settings of generation: one or a list."""
    path = os.path.join(folder, "generation_config.json")
    ends = _object(folder, "generation_config.json").get("eos_token_id")
    listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
    for token in listed:
        if type(token) is not int or not 0 <= token < n_tokens:
            raise InvalidFile(f"{path}: eos_token_id {token!r:.80} is no token of {n_tokens}")
    return set(listed)


def _template(folder: str, config: dict[str, Any]) -> ChatTemplate | None:
    name = "chat_template.jinja"
    raw = read_inside(folder, name, MAX_TEMPLATE_NBYTES)
    source: object = None if raw is None else _text(raw, os.path.join(folder, name))
    if source is None:
        name = "tokenizer_config.json"
        source = config.get("chat_template")
    path = os.path.join(folder, name)
    if isinstance(source, list):  # several, by name
        items = [item for item in source if isinstance(item, dict)]
        source = {item.get("name"): item.get("template") for item in items}.get("default")
    if source is None:
        return None
    if not isinstance(source, str):
        raise InvalidFile(f"{path}: the chat template should be text, not {type(source).__name__}")
    return ChatTemplate(
        source,
        path,
        bos_token=_token_text(config, "bos"),
        eos_token=_token_text(config, "eos"),
    )


def _token_text(config: dict[str, Any], name: str) -> str:
    """A special token's text, which a file gives as text or as an object with its `content`."""
    value = config.get(f"{name}_token")
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""


def _object(folder: str, name: str) -> dict[str, Any]:
    """The JSON object in a file; an empty one where there is no such file."""
    raw = read_inside(folder, name, MAX_CONFIG_NBYTES)
    if raw is None:
        return {}
    path = os.path.join(folder, name)
    return parsed_object(raw, path, MAX_CONFIG_VALUES, MAX_CONFIG_KEYS)


def _text(raw: bytes, path: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
