"""Vocabularies that are not what they say: one clear error each, and never a hang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import models

from arenite.errors import InvalidFile, NotSupported
from arenite.frontends.gguf import GgufFile
from arenite.generate.tokenizer import Tokenizer
from tests.frontends.gguf_files import Layout, array, text
from tests.generate.vocabularies import metadata_of, reference

KINDS: dict[str, dict[str, Any]] = reference()["vocabularies"]


def opened(folder: Path, kind: str, **changed: Any) -> Tokenizer:
    keys = {**KINDS[kind], **{f"ggml.{key}": value for key, value in changed.items()}}
    keys = {key: value for key, value in keys.items() if value is not None}
    return Tokenizer.of_gguf(metadata_of(folder / "vocabulary.gguf", keys))


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no model": ("bytes", {"model": None}, "no key"),
    "no tokens": ("bytes", {"tokens": None}, "no key"),
    "tokens that are numbers": ("bytes", {"tokens": [1, 2]}, "not text"),
    "two tokens alike": ("bytes", {"tokens": ["a", "b", "a"]}, "tokens 0 and 2 are both 'a'"),
    "a huge token": ("merged", {"tokens": ["a" * 5000]}, "at most 4096"),
    "too few kinds": ("bytes", {"token_type": [1, 1]}, "has 2 values"),
    "kinds that are no integers": ("words", {"token_type": [1.0] * 700}, "700 integers"),
    "no merges": ("bytes", {"merges": None}, "no key"),
    "a merge of an unknown token": ("bytes", {"merges": ["a zzzz"]}, "'zzzz' is no token"),
    "a merge into an unknown token": ("bytes", {"merges": ["Q Q"]}, "'QQ' is no token"),
    "a merge of one": ("bytes", {"merges": ["ab"]}, "no pair of tokens"),
    "a merge with nothing before its space": ("bytes", {"merges": [" a"]}, "no pair of tokens"),
    "a merge with nothing behind its space": ("bytes", {"merges": ["a "]}, "no pair of tokens"),
    "a merge far down": ("bytes", {"merges": ["a b"] * 20_000 + ["a zz"]}, "merge 20000 is 'a zz'"),
    "a merge into a control token": (
        "bytes",
        {"tokens": ["a", "b", "ab"], "token_type": [1, 1, 3], "merges": ["a b"]}
        | {"bos_token_id": 0, "eos_token_id": 1},
        "'ab' is no token",
    ),
    "a huge merge": ("bytes", {"merges": ["a " + "b" * 2**22]}, "is no token"),
    "all tokens alike": ("merged", {"tokens": ["a"] * 100_000}, "tokens 0 and 1 are both 'a'"),
    "bos outside": ("bytes", {"bos_token_id": 705}, "is 705, and the vocabulary has 705"),
    "eos outside": ("merged", {"eos_token_id": 2**32 - 1}, "4294967295"),
    "eot outside": ("merged", {"eot_token_id": 70_000}, "eot_token_id is 70000"),
    "unknown outside": ("words", {"unknown_token_id": 70_000}, "70000"),
    "an id that is text": ("merged", {"bos_token_id": "one"}, "an integer"),
    "a flag that is a number": ("merged", {"add_bos_token": 1}, "a flag"),
    "bos asked for and not there": (
        "bytes",
        {"bos_token_id": None, "add_bos_token": True},
        "to begin with a token",
    ),
    "scores too few": ("merged", {"scores": [1.0]}, "has 1 values"),
    "scores that are none": ("merged", {"scores": [float("nan")] * 700}, "NaN"),
    "scores that are text": ("merged", {"scores": ["a"] * 700}, "not numbers"),
    "words without an unknown one": (
        "words",
        {"tokens": ["a"], "token_type": [1], "unknown_token_id": None, "bos_token_id": 0}
        | {"seperator_token_id": 0, "cls_token_id": None},
        "unknown words",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_vocabulary_is_refused(tmp_path: Path, name: str) -> None:
    kind, changed, message = WRONG[name]
    with pytest.raises(InvalidFile, match=message) as caught:
        opened(tmp_path, kind, **changed)
    assert "vocabulary.gguf" in str(caught.value)
    assert len(str(caught.value)) < 500


def test_an_empty_vocabulary_is_refused(tmp_path: Path) -> None:
    keys = [
        ("tokenizer.ggml.model", 8, text("llama")),
        ("tokenizer.ggml.tokens", 9, array(8, 0, b"")),
    ]
    path = Layout(keys=[*keys]).write(tmp_path / "empty.gguf")
    with pytest.raises(InvalidFile, match="a vocabulary of 0 tokens"):
        Tokenizer.of_gguf(GgufFile.open(path).metadata)


def test_unknown_kinds_and_families_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="'rwkv'; Arenite has gpt2 and"):
        opened(tmp_path, "bytes", model="rwkv")
    with pytest.raises(NotSupported, match="'from-the-future' has it"):
        opened(tmp_path, "bytes", pre="from-the-future")


def test_a_file_that_does_not_say_how_words_are_cut_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="does not say how its words are cut"):
        found = opened(tmp_path, "bytes", pre=None)
    expected = opened(tmp_path, "bytes", pre="default")
    assert found.encode("it's 1234!") == expected.encode("it's 1234!")


def test_what_may_be_missing(tmp_path: Path) -> None:
    tokenizer = opened(tmp_path, "merged", token_type=None, scores=None, unknown_token_id=None)
    assert tokenizer.encode("stone", ends=False)
    tokens = ["<s>", "</s>", "", "\u2581", "x"]
    empty = opened(
        tmp_path, "merged", tokens=tokens, token_type=None, scores=None, unknown_token_id=0
    )
    assert empty.encode("x", ends=False) == [3, 4]


def test_a_byte_without_a_token_gives_none_and_parts_its_neighbours(tmp_path: Path) -> None:
    tokenizer = opened(
        tmp_path,
        "bytes",
        tokens=["a", "aa", "b"],
        token_type=[1, 1, 1],
        merges=["a a"],
        bos_token_id=None,
        eos_token_id=None,
    )
    assert tokenizer.encode("aa") == [1]
    assert tokenizer.encode("a\x01a") == [0, 0]
    assert tokenizer.encode("\U0001f600") == []


def test_a_character_without_any_token_is_one_unknown_token(tmp_path: Path) -> None:
    tokenizer = opened(
        tmp_path,
        "merged",
        tokens=["<unk>", "<s>", "</s>", "\u2581", "x"],
        token_type=[2, 3, 3, 1, 1],
        scores=[0.0] * 5,
    )
    assert tokenizer.encode("x\U0001f600x", ends=False) == [3, 4, 0, 4]


def test_of_two_merges_of_one_pair_the_first_counts(tmp_path: Path) -> None:
    """As llama.cpp has it."""
    keys = {"tokens": ["a", "b", "c", "ab", "bc"], "token_type": [1] * 5}
    keys |= {"bos_token_id": None, "eos_token_id": None}
    tokenizer = opened(tmp_path, "bytes", merges=["a b", "b c", "a b"], **keys)
    assert tokenizer.encode("abc") == [3, 2]
    tokenizer = opened(tmp_path, "bytes", merges=["b c", "a b", "b c"], **keys)
    assert tokenizer.encode("abc") == [0, 4]


def test_a_byte_that_is_a_control_token_is_no_text(tmp_path: Path) -> None:
    """Merges with its character are there, and do not happen."""
    keys = {"tokens": ["a", "b", "ab", "c"], "token_type": [1, 3, 1, 1], "merges": ["a b"]}
    tokenizer = opened(tmp_path, "bytes", bos_token_id=None, eos_token_id=None, **keys)
    assert tokenizer.encode("acb", special=False) == [0, 3]
    assert tokenizer.encode("acb", special=True) == [0, 3, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_long_texts_without_spaces_end(tmp_path: Path, kind: str) -> None:
    tokenizer = opened(tmp_path, kind)
    for part in ("aa", "ab", "  ", "\u0301", "<|"):
        assert isinstance(tokenizer.encode(part * 20_000, special=True), list)


@pytest.mark.parametrize(
    "model",
    [
        models.WordPiece({"a": 0}, unk_token="[UNK]"),
        models.BPE({"a": 0}, [], unk_token="<unk>"),
        models.Unigram([("a", 0.0)], None, False),
    ],
    ids=lambda model: type(model).__name__,
)
def test_an_unknown_token_that_is_not_there(tmp_path: Path, model: Any) -> None:
    LibraryTokenizer(model).save(str(tmp_path / "tokenizer.json"))
    words = Tokenizer.of_folder(tmp_path)
    assert words.encode("a") == [0]
    with pytest.raises(InvalidFile, match=r"tokenizer\.json can't encode this text: .*(?i:unk)"):
        words.encode("b")
