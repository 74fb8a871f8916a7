"""Tokenizers of folders run in a child: whatever a file makes it do, it answers or is refused."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import models, pre_tokenizers

from arenite.errors import FileChanged, InvalidFile, RunFailed
from arenite.frontends.tokenizer_json import process as module
from arenite.frontends.tokenizer_json.frames import read_frame
from arenite.frontends.tokenizer_json.process import TokenizerProcess

WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2}, "unk_token": "[UNK]"}


def write(folder: Path, **parts: Any) -> str:
    empty = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
    whole = {"version": "1.0", "added_tokens": [], **empty, "model": WORDS, **parts}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    return str(folder)


def template(single: list[str], ids: list[int]) -> dict[str, Any]:
    special = {"id": "a", "ids": ids, "tokens": ["a"] * len(ids)}
    names: dict[str, Any] = {
        "$": {"Sequence": {"id": "A", "type_id": 0}},
        "a": {"SpecialToken": {"id": "a", "type_id": 0}},
    }
    parts = [names[part] for part in single]
    return {
        "type": "TemplateProcessing",
        "single": parts,
        "pair": [*parts, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"a": special},
    }


def doubling(times: int) -> dict[str, Any]:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {"type": "Sequence", "normalizers": [step] * times}


FILES: dict[str, tuple[dict[str, Any], str]] = {
    "a text doubled 40 times": ({"normalizer": doubling(40)}, "processor time|gave up"),
    "20,000 tokens before a text": (
        {"post_processor": template(["a"] * 20_000 + ["$"], [0])},
        "puts 20000 tokens around a text; at most 64 go|gave up",
    ),
    "a token that is 100,000": (
        {"post_processor": template(["a", "$"], [0] * 100_000)},
        "puts 100000 tokens around a text",
    ),
    "a token that is none": (
        {"post_processor": template(["a", "$"], [3])},
        "puts token 3 around a text; the vocabulary has 3",
    ),
    "chunks of nothing": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "non-zero"),
    "100,000 added tokens": (
        {"added_tokens": [{"id": k, "content": f"x{k}"} for k in range(3, 100_003)]},
        "has 100000 added tokens; at most 65536",
    ),
    "a damaged table": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}},
        "tokenizer.json",
    ),
    "an expression that is none": (
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": "(" * 9000},
                "behavior": "Removed",
            }
        },
        "is no tokenizer",
    ),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that are soon reached."""
    monkeypatch.setattr(module, "LEAST_SECONDS", 0)
    monkeypatch.setattr(module, "MAX_MEMORY_NBYTES", 2**29)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("lie", FILES)
def test_files_that_no_library_survives(lie: str, tmp_path: Path) -> None:
    parts, reason = FILES[lie]
    with pytest.raises(InvalidFile, match=reason) as caught:
        TokenizerProcess(write(tmp_path, **parts), [])
    assert str(tmp_path / "tokenizer.json") in str(caught.value)


UNIGRAM = {"type": "Unigram", "unk_id": 0}
PREFIX = {"unk_token": "[UNK]", "continuing_subword_prefix": "##"}
TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "pieces in pieces": (
        {"model": UNIGRAM | {"vocab": [["a" * k, -float(k)] for k in range(1, 2000)]}},
        "a" * 20_000,
    ),
    "a long word and a longer piece": (
        {
            "model": {"type": "WordPiece", "max_input_chars_per_word": 10**6}
            | PREFIX
            | {"vocab": {"[UNK]": 0, "a": 1, "##a": 2, "##" + "b" * 4000: 3}}
        },
        "a" * 15_000,
    ),
    "an expression that tries everything": (
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": "(a|aa)+$"},
                "behavior": "Isolated",
                "invert": False,
            }
        },
        "a" * 60 + "b",
    ),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("lie", TEXTS)
def test_texts_that_take_for_ever_end_and_others_follow(lie: str, tmp_path: Path) -> None:
    parts, text = TEXTS[lie]
    tokenizer = TokenizerProcess(write(tmp_path, **parts), [])
    with pytest.raises(InvalidFile, match=r"tokenizer\.json can't encode this text"):
        tokenizer.encode(text, special=False)
    assert len(tokenizer.encode("a", special=False)) == 1


@pytest.fixture
def words(tmp_path: Path) -> TokenizerProcess:
    library = LibraryTokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, "[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.save(str(tmp_path / "tokenizer.json"))
    return TokenizerProcess(str(tmp_path), ["b", "nothing"])


def child_of(tokenizer: TokenizerProcess) -> int:
    assert tokenizer._child is not None
    return tokenizer._child._process.pid


def test_a_child_that_died_is_replaced(words: TokenizerProcess) -> None:
    assert words.facts.ids == {"b": 1}
    assert words.encode("a b c", special=False) == [0, 1, 2]
    os.kill(child_of(words), signal.SIGKILL)
    os.waitid(os.P_PID, child_of(words), os.WEXITED | os.WNOWAIT)
    assert words.encode("a b c", special=False) == [0, 1, 2]


def test_closing_ends_the_child_and_a_later_text_starts_one(words: TokenizerProcess) -> None:
    child = child_of(words)
    words.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert words.encode("b", special=False) == [1]


def test_a_child_ends_with_its_tokenizer(tmp_path: Path) -> None:
    tokenizer = TokenizerProcess(write(tmp_path), [])
    child = child_of(tokenizer)
    del tokenizer
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_folder_is_found_again_from_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(write(tmp_path)).parent)
    tokenizer = TokenizerProcess(tmp_path.name, [])
    tokenizer.close()
    monkeypatch.chdir("/")
    assert tokenizer.encode("a", special=False) == [0]


def test_a_file_that_changed_is_not_taken_for_the_first(
    words: TokenizerProcess, tmp_path: Path
) -> None:
    words.close()
    write(tmp_path, model=WORDS | {"vocab": {"b": 0, "a": 1, "[UNK]": 2}})
    with pytest.raises(FileChanged, match=r"tokenizer\.json changed"):
        words.encode("b", special=False)


def test_a_system_that_starts_no_process_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(RunFailed, match=r"no process can be started .*: No such file"):
        TokenizerProcess(write(tmp_path), [])


def test_an_interrupted_text_does_not_answer_the_next(
    words: TokenizerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:

    def interrupted(descriptor: int) -> bytes | None:
        monkeypatch.setattr(module, "read_frame", read_frame)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "read_frame", interrupted)
    with pytest.raises(KeyboardInterrupt):
        words.encode("a a a a", special=False)
    assert words.encode("b", special=False) == [1]


def test_a_signal_handler_that_encodes_is_refused(
    words: TokenizerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[BaseException] = []

    def handled(descriptor: int) -> bytes | None:
        monkeypatch.setattr(module, "read_frame", read_frame)
        try:
            words.encode("b", special=False)
        except RunFailed as error:
            raised.append(error)
        return read_frame(descriptor)

    monkeypatch.setattr(module, "read_frame", handled)
    assert words.encode("a", special=False) == [0]
    assert len(raised) == 1


def test_both_sides_of_a_fork_encode(words: TokenizerProcess) -> None:
    """Also while another thread is at it."""
    goes_on = threading.Event()

    def encode() -> None:
        while not goes_on.is_set():
            assert words.encode("a b", special=False) == [0, 1]

    thread = threading.Thread(target=encode)
    thread.start()
    try:
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if words.encode("b b a", special=False) == [1, 1, 0] else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert words.encode("b a", special=False) == [1, 0]
    finally:
        goes_on.set()
        thread.join()
