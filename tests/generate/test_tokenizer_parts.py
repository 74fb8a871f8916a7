"""What tokenizers are built of, each against a judge: llama.cpp for what a character is, the
tokenizers library for words and merges, a dict for texts, brute force for merging."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from arenite.generate.hashed import MAX_NBYTES, Hashed, hash_of
from arenite.generate.merges import WordCache, merge
from arenite.generate.pretokens import RULES, WordRule
from arenite.generate.texts import Texts
from arenite.generate.tokenizer import Tokenizer
from arenite.generate.words import WordCutter, category
from tests.generate.vocabularies import metadata_of, reference

REFERENCE = Path(__file__).parent / "characters_reference.json"
KEYS: dict[str, Any] = reference()["vocabularies"]["bytes"]
#: One name of each rule that cuts bytes.
FAMILIES = {rule: name for name, rule in RULES.items() if not rule.as_text}

#: Characters that this Python and the library both know, and many of those that decide.
characters = st.one_of(
    st.characters(exclude_categories=("Cs", "Cn")),
    st.sampled_from("\t\n\v\f\r \x85\xa0\u2003\u3000\u200b\u2028\u2029\x1c\x1f\x00"),
    st.sampled_from("0123456789\u0663\u096a\u00bd\u00b2\u2163\u4e00"),
    st.sampled_from("\U0001f600\U0001f44d\U0001f3fd\u200d\ufe0f\U0001f1e9\U0001f1ea\u2764"),
    st.sampled_from("aEo\u00e9\u00d6\u01c5\u02b0\u00aa\u0301\u0308\u0327\u05b4\u3051\uac00\u0e01"),
    st.sampled_from("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\u2026\u3002\uff0c\u3001\u0964\u06d4"),
)
parts = st.one_of(
    st.text(characters, max_size=8),
    st.sampled_from(["'s", "'S", "'ll", "'RE", "it's", " the", "HTTPServer", "  \n\n ", "2024"]),
    st.sampled_from(["<|im_start|>", "<|im_end|>", "<tool>", "    ", "</s>", "<0x0A>"]),
)
texts = st.lists(parts, max_size=8).map("".join)


def test_characters_are_what_llama_cpp_takes_them_for() -> None:
    """All of Unicode, with what Python does not know yet; of planes without characters a part."""
    names = {"N": "number", "space": "space", "Lu": "letter", "Ll": "letter", "Lt": "letter"}
    names |= {"Lm": "letter", "Lo": "letter"}
    runs = [*json.loads(REFERENCE.read_text()), (0x110000, "end")]
    for (start, name), (end, _) in pairwise(runs):
        step = 13 if end - start > 50_000 else 1
        codes = (code for code in range(start, end, step) if not 0xD800 <= code < 0xE000)
        found = {names.get(category(chr(code)), "sign") for code in codes}
        assert found == {name}, hex(start)


def library_words(rule: WordRule, text: str) -> list[str]:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    return [word for word, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


@pytest.mark.parametrize("family", FAMILIES.values())
@given(text=texts)
def test_words_are_those_of_the_library(family: str, text: str) -> None:
    assert [*_cutter(family).words(text)] == library_words(RULES[family], text)


@cache
def _cutter(family: str) -> WordCutter:
    return WordCutter(RULES[family].patterns)


def test_characters_are_cut_by_the_newest_unicode_whatever_python_knows() -> None:
    young = "\U000323af"  # an ideograph of Unicode 15
    assert [*_cutter("gpt-2").words(f"a{young}!")] == [f"a{young}", "!"]
    assert category("\U0001e4f0") == "N"
    assert category("\u2ffc") == "S"
    assert category("\U000e0fff") == "other"


@cache
def library_tokenizer(family: str) -> LibraryTokenizer:
    """The vocabulary of bytes without its control tokens."""
    ids = {text: token for token, text in enumerate(KEYS["ggml.tokens"])}
    for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        del ids[text]
    rule = RULES[family]
    merges = [tuple(merge.split(" ")) for merge in KEYS["ggml.merges"]]
    library = LibraryTokenizer(models.BPE(ids, merges, ignore_merges=rule.whole_words))
    steps: list[Any] = [pre_tokenizers.Split(Regex(p), "isolated") for p in rule.patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    library.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return library


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    path = tmp_path_factory.mktemp("families") / "vocabulary.gguf"
    return {
        family: Tokenizer.of_gguf(metadata_of(path, {**KEYS, "ggml.pre": family}))
        for family in ("gpt-2", "llama3", "deepseek-v3")
    }


@pytest.mark.parametrize("family", ["gpt-2", "llama3", "deepseek-v3"])
@given(text=texts)
def test_tokens_are_those_of_the_library(
    family: str, text: str, ours: dict[str, Tokenizer]
) -> None:
    pieces = ours[family].specials.split(text, controls=False)
    expected: list[int] = []
    for piece in pieces:
        library = library_tokenizer(family)
        expected += [piece] if isinstance(piece, int) else library.encode(piece).ids
    assert ours[family].encode(text, ends=False, special=False) == expected


# Merging


@given(
    tokens=st.lists(st.integers(0, 3), max_size=30),
    pairs=st.dictionaries(
        st.tuples(st.integers(0, 9), st.integers(0, 9)),
        st.tuples(st.integers(0, 5), st.integers(4, 9)),
        max_size=20,
    ),
)
def test_merging_is_one_pair_after_the_other(
    tokens: list[int], pairs: dict[tuple[int, int], tuple[int, int]]
) -> None:
    expected: list[tuple[int, ...]] = [(token,) for token in tokens]
    named = list(tokens)
    while True:
        found = [(pairs[pair][0], at) for at, pair in enumerate(pairwise(named)) if pair in pairs]
        if not found:
            break
        _, at = min(found)
        named[at : at + 2] = [pairs[named[at], named[at + 1]][1]]
        expected[at : at + 2] = [expected[at] + expected[at + 1]]
    merged = list(tokens)
    starts = merge(merged, lambda left, right, _: pairs.get((merged[left], merged[right])))
    assert [merged[start] for start in starts] == named
    assert starts == [sum(map(len, expected[:at])) for at in range(len(expected))]


def test_a_cache_of_words_stays_small() -> None:
    asked: list[str] = []

    def encode(word: str) -> list[int]:
        asked.append(word)
        return [len(word)]

    cached = WordCache(encode)
    for number in range(20_000):
        assert [*cached[f"{number}"]] == [len(f"{number}")]
    assert len(cached) <= 4096
    assert [*cached["x" * 100]] == [100]
    assert "x" * 100 not in cached
    n_asked = len(asked)
    assert cached["19999"] == (5,)
    assert len(asked) == n_asked


# Texts


@given(st.lists(st.text(max_size=20), unique=True, min_size=1), st.lists(st.text(max_size=20)))
def test_texts_are_found(known: list[str], asked: list[str]) -> None:
    found = Texts.of(known)
    assert [*found] == known == [found[token] for token in range(len(found))]
    assert found.repeated is None
    assert found.n_characters().tolist() == [*map(len, known)]
    ids = {text: token for token, text in enumerate(known)}
    for text in [*known, *asked]:
        assert found.find(text.encode()) == ids.get(text)
    raw = [text.encode() for text in [*known, *asked]]
    places = np.cumsum([0, *map(len, raw)], dtype=np.int64)
    hashed = Hashed.of(b"".join(raw), places[:-1], places[1:])
    expected = [ids.get(text, -1) for text in [*known, *asked]]
    assert found.find_all(hashed).tolist() == expected
    assert [key & 0xFFFF_FFFF for key in hashed.keys.tolist()] == [*map(hash_of, raw)]


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), min_size=1))
def test_hashes_of_two_in_a_row_come_from_both(pairs: list[tuple[bytes, bytes]]) -> None:
    def hashed(given: list[bytes]) -> Hashed:
        places = np.cumsum([0, *map(len, given)], dtype=np.int64)
        return Hashed.of(b"".join(given), places[:-1], places[1:])

    left, right = (hashed([pair[side] for pair in pairs]) for side in (0, 1))
    joined = hashed([a + b for a, b in pairs])
    assert left.then(right).keys.tolist() == joined.keys.tolist()


def test_texts_differ_by_length_and_place() -> None:
    known = ["\0", "\0\0", "a", "\0a", "a\0", "ab", "ba", "abcd", "abcde", "bcdea"]
    found = Texts.of(known)
    assert [found.find(text.encode()) for text in known] == [*range(len(known))]


def test_repeated_texts_are_the_first_two() -> None:
    assert Texts.of(["a", "b", "c", "b", "a"]).repeated == (1, 3)
    assert Texts.of(["x"] * 10_000).repeated == (0, 1)


def test_long_texts_are_hashed_in_part() -> None:
    raw = b"x" * (MAX_NBYTES + 10)
    ends = np.array([len(raw), len(raw) - 1])
    keys = Hashed.of(raw, np.zeros(2, np.int64), ends).keys
    assert keys[0] != keys[1]
