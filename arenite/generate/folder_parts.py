"""Tokenizers in a folder as Hugging Face lays it out: tokenizer.json, read and run by its library,
with tokenizer_config.json, special_tokens_map.json and chat_template.jinja beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arenite import locks
from arenite.errors import FileMissing, InvalidFile
from arenite.generate.bpe import bytes_of_characters
from arenite.generate.folder_check import check_tokenizer
from arenite.generate.parts import Parts
from arenite.generate.sentencepiece import piece_bytes
from arenite.generate.specials import Specials
from arenite.generate.template import ChatTemplate
from arenite.generate.vocabulary import END_NAMES, end_tokens

if TYPE_CHECKING:
    import tokenizers

MAX_FILE_NBYTES = 2**28
MAX_MESSAGE = 400  # characters quoted of what the library says


class LibraryEncoder:
    """Encodes text with a tokenizer of the library."""

    def __init__(self, library: tokenizers.Tokenizer, specials: Specials, path: Path) -> None:
        self._library = library
        self._path = path
        self._specials = specials
        # Whether special tokens are looked for is a state of the library's.
        self._lock = locks.reentrant()
        steps = _steps(library.decoder)
        self._is_byte_level = "ByteLevel" in steps
        self._has_bytes = "ByteFallback" in steps
        self._continues = steps.get("WordPiece", {}).get("prefix")
        self._added = {
            token: added.content for token, added in library.get_added_tokens_decoder().items()
        }
        #: Whether a text that stands alone is decoded with a space that was not in it.
        self.starts_with_space = self._continues is not None or (
            "Strip" in steps or steps.get("Metaspace", {}).get("prepend_scheme", "never") != "never"
        )

    def encode(self, pieces: Sequence[str | int]) -> list[int]:
        if all(isinstance(piece, str) for piece in pieces):
            return self._run("".join(map(str, pieces)), special=False)
        texts = [self._text(piece) if isinstance(piece, int) else piece for piece in pieces]
        whole = "".join(texts)
        if self._specials.split(whole, controls=True) == list(pieces):
            return self._run(whole, special=True)
        # Some piece of text reads like a special token and must not become one.
        tokens: list[int] = []
        for piece in pieces:
            tokens += [piece] if isinstance(piece, int) else self._run(piece, special=False)
        return tokens

    def token_bytes(self, token: int) -> bytes:
        text = self._text(token)
        if token in self._added:
            return text.encode()
        if self._is_byte_level:
            return bytes_of_characters(text)
        if self._continues is not None:
            goes_on = text.startswith(self._continues)
            return (text[len(self._continues) :] if goes_on else f" {text}").encode()
        return piece_bytes(text, self._has_bytes)

    def _text(self, token: int) -> str:
        return self._added.get(token) or self._library.id_to_token(token) or ""

    def _run(self, text: str, *, special: bool) -> list[int]:
        with self._lock, _faults_of(self._path, "can't encode this text"):
            library = self._library
            before = library.encode_special_tokens
            try:
                library.encode_special_tokens = not special
                return list(library.encode(text, add_special_tokens=False).ids)
            finally:
                # This may be a signal handler, in the middle of another text on the same thread.
                library.encode_special_tokens = before


@contextmanager
def _faults_of(path: Path, fault: str) -> Iterator[None]:
    """Whatever the library raises inside is a fault of the file."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # what the library raises in a panic is no Exception
        raise InvalidFile(f"{path} {fault}: {str(error)[:MAX_MESSAGE]}") from None


def read_folder(given: str | os.PathLike[str]) -> Parts:
    """Read a folder's files; tokenizer.json has to be there."""
    from tokenizers import Tokenizer as LibraryTokenizer

    folder = Path(given)
    path = folder / "tokenizer.json"
    raw = _read(path)
    if raw is None:
        raise FileMissing(f"{folder} has no tokenizer.json, which a tokenizer is read from")
    check_tokenizer(raw, str(path))
    with _faults_of(path, "is no tokenizer"):
        library = LibraryTokenizer.from_str(raw)
        library.no_truncation()
        library.no_padding()
        probe = library.encode("a", add_special_tokens=True)
    added = library.get_added_tokens_decoder()
    controls = {token: item.content for token, item in added.items() if item.special}
    highest = max(library.get_vocab(with_added_tokens=True).values(), default=-1)
    specials = Specials.of({text: token for token, text in controls.items()}, controls)
    config = _object(folder / "special_tokens_map.json")
    config |= _object(folder / "tokenizer_config.json")
    named = {name: library.token_to_id(_token_text(config, name)) for name in ("bos", "eos", "cls")}
    is_added = [*probe.special_tokens_mask, 0]
    n_before, n_after = is_added.index(0), is_added[-2::-1].index(0) if 0 in is_added[:-1] else 0
    bos = named["bos"] if named["bos"] is not None else named["cls"]
    found = {name: library.token_to_id(name) for name in END_NAMES}
    ends = end_tokens({name: token for name, token in found.items() if token is not None})
    ends |= _listed_ends(folder / "generation_config.json", highest + 1)
    encoder = LibraryEncoder(library, specials, path)
    return Parts(
        encoder,
        specials,
        highest + 1,
        bos,
        named["eos"],
        tuple(probe.ids[:n_before]),
        tuple(probe.ids[len(probe.ids) - n_after :]),
        frozenset(ends | ({named["eos"]} if named["eos"] is not None else set())),
        _template(folder, config),
        encoder.starts_with_space,
    )


def _listed_ends(path: Path, n_tokens: int) -> set[int]:
    """Tokens that end an answer by the settings of generation: one or a list."""
    found = _object(path).get("eos_token_id")
    listed = found if isinstance(found, list) else [] if found is None else [found]
    for token in listed:
        if not isinstance(token, int) or not 0 <= token < n_tokens:
            raise InvalidFile(f"{path}: eos_token_id {token!r} is no token of {n_tokens}")
    return set(listed)


def _template(folder: Path, config: dict[str, Any]) -> ChatTemplate | None:
    path = folder / "chat_template.jinja"
    source: object = _read(path)
    if source is None:
        path = folder / "tokenizer_config.json"
        source = config.get("chat_template")
    if isinstance(source, list):  # several, by name
        items = [item for item in source if isinstance(item, dict)]
        source = {item.get("name"): item.get("template") for item in items}.get("default")
    if source is None:
        return None
    if not isinstance(source, str):
        raise InvalidFile(f"{path}: the chat template should be text, not {type(source).__name__}")
    return ChatTemplate(
        source,
        str(path),
        bos_token=_token_text(config, "bos"),
        eos_token=_token_text(config, "eos"),
    )


def _token_text(config: dict[str, Any], name: str) -> str:
    """A special token's text, which a file gives as text or as an object with its `content`."""
    value = config.get(f"{name}_token")
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""


def _steps(decoder: Any) -> dict[str, dict[str, Any]]:
    """A decoder's steps by type."""
    if decoder is None:
        return {}
    state = json.loads(decoder.__getstate__())
    return {step["type"]: step for step in state.get("decoders", [state])}


def _object(path: Path) -> dict[str, Any]:
    raw = _read(path)
    if raw is None:
        return {}
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidFile(f"{path} should hold a JSON object; it holds a {type(found).__name__}")
    return found


def _read(path: Path) -> str | None:
    """A file's text; None where there is no such file."""
    try:
        if path.stat().st_size > MAX_FILE_NBYTES:
            raise InvalidFile(f"{path} has over {MAX_FILE_NBYTES} bytes, which no tokenizer has")
        return path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise FileMissing(f"{path} can't be read: {error.strerror}") from None
