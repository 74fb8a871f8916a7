"""The child process that runs the tokenizers library over one tokenizer.json.

The library trusts such files: some abort the process, some make it compute for hours or take all
memory. So it runs here, where limits of processor time and memory end it, and nothing else.

    parent -> child    the file, and what is asked about it     a text
    child -> parent    what is wrong, or Facts                  what is wrong, or its tokens
"""

from __future__ import annotations

import json
import os
import resource
import time
from array import array
from contextlib import suppress
from typing import Any

from tokenizers import Tokenizer

from arenite.errors import AreniteError, InvalidFile, NotSupported
from arenite.frontends.tokenizer_json.check import check_tokenizer
from arenite.frontends.tokenizer_json.frames import Facts, read_frame, write_frame

MAX_MESSAGE = 400  # characters quoted of what the library says
#: Tokens that are put around a text at the most.
MAX_AROUND = 64


def main() -> None:
    """Read a file and answer, until the parent has gone."""
    _limit(resource.RLIMIT_CORE, 0)
    given, answers = 0, os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # nobody else writes to the parent
    asked, raw = read_frame(given), read_frame(given)
    if asked is None or raw is None:
        return
    wanted = json.loads(asked)
    path = wanted["path"]
    _limit(resource.RLIMIT_AS, wanted["memory_nbytes"])
    try:
        _allow_seconds(wanted["seconds"])
        library = _read(raw, path)
        del raw
        frames = _facts(library, path, wanted["names"]).frames()
    except BaseException as error:  # what the library raises in a panic is no Exception
        _refuse(answers, error, f"{path} is no tokenizer")
        return
    write_frame(answers, b"")
    for frame in frames:
        write_frame(answers, frame)
    del frames
    _serve(library, path, given, answers)


def _serve(library: Tokenizer, path: str, given: int, answers: int) -> None:
    while (asked := read_frame(given)) is not None:
        wanted = json.loads(asked)
        _allow_seconds(wanted["seconds"])
        try:
            library.encode_special_tokens = not wanted["special"]
            tokens = library.encode(wanted["text"], add_special_tokens=False).ids
        except BaseException as error:
            _refuse(answers, error, f"{path} can't encode this text")
            continue
        write_frame(answers, b"")
        write_frame(answers, array("I", tokens).tobytes())


def _refuse(answers: int, error: BaseException, fault: str) -> None:
    kind = NotSupported if isinstance(error, NotSupported) else InvalidFile
    message = str(error) if isinstance(error, AreniteError) else f"{fault}: {_shown(error)}"
    write_frame(answers, json.dumps([kind.__name__, message]).encode())


def _shown(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return f"that takes more than {resource.getrlimit(resource.RLIMIT_AS)[0]} bytes of memory"
    return str(error)[:MAX_MESSAGE]


def _read(raw: bytes, path: str) -> Tokenizer:
    try:
        text = str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    check_tokenizer(text, path)
    library = Tokenizer.from_str(text)
    library.no_truncation()
    library.no_padding()
    return library


def _facts(library: Tokenizer, path: str, names: list[str]) -> Facts:
    probe = library.encode("a", add_special_tokens=True)
    is_added = [*probe.special_tokens_mask, 0]
    n_before, n_after = is_added.index(0), is_added[-2::-1].index(0) if 0 in is_added[:-1] else 0
    if n_before + n_after > MAX_AROUND:
        raise InvalidFile(
            f"{path} puts {n_before + n_after} tokens around a text; at most {MAX_AROUND} go"
        )
    added = library.get_added_tokens_decoder()
    n_tokens = 1 + max(library.get_vocab(with_added_tokens=True).values(), default=-1)
    if any(token >= n_tokens for token in probe.ids):
        raise InvalidFile(
            f"{path} puts token {max(probe.ids)} around a text; the vocabulary has {n_tokens}"
        )
    texts = [
        (added[token].content if token in added else library.id_to_token(token) or "").encode()
        for token in range(n_tokens)
    ]
    ids = {name: library.token_to_id(name) for name in names}
    steps = _steps(library.decoder)
    continuing = steps.get("WordPiece", {}).get("prefix")
    prepends = steps.get("Metaspace", {}).get("prepend_scheme", "never") != "never"
    return Facts(
        n_tokens=n_tokens,
        added=list(added),
        controls=[token for token, item in added.items() if item.special],
        prefix=list(probe.ids[:n_before]),
        suffix=list(probe.ids[len(probe.ids) - n_after :]),
        ids={name: token for name, token in ids.items() if token is not None},
        is_byte_level="ByteLevel" in steps,
        has_bytes="ByteFallback" in steps,
        continuing_prefix=continuing,
        starts_with_space=continuing is not None or "Strip" in steps or prepends,
        texts=b"".join(texts),
        lengths=array("I", map(len, texts)).tobytes(),
    )


def _steps(decoder: Any) -> dict[str, dict[str, Any]]:
    """A decoder's steps by type."""
    if decoder is None:
        return {}
    state = json.loads(decoder.__getstate__())
    return {step["type"]: step for step in state.get("decoders", [state])}


def _allow_seconds(seconds: int) -> None:
    """The system ends this process when it has computed for so long from here on."""
    _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + seconds)


def _limit(kind: int, value: int) -> None:
    """Where the system has such a limit; macOS has none on memory."""
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(kind, (value, hard))
