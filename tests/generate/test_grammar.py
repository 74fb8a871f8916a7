"""Grammars: every text that comes out fulfils what was asked, by other judges than llguidance."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from arenite.errors import InvalidArgument, NotSupported, RunFailed
from arenite.generate.generation import generate
from arenite.generate.grammar import Grammar, grammar_of
from arenite.generate.sampling import Sampling
from arenite.generate.tokenizer import Tokenizer
from tests.generate.fakes import (
    END,
    N_TOKENS,
    FakeSession,
    FakeTokenizer,
    Logits,
    rambling,
    tokenizer,
)
from tests.generate.vocabularies import metadata_of, reference

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "kinds": {"type": "array", "items": {"enum": ["a", "b", "né"]}, "maxItems": 3},
        "good": {"type": "boolean"},
    },
    "required": ["name", "size", "kinds", "good"],
    "additionalProperties": False,
}


def said(seed: int, **shape: Any) -> tuple[str, str | None]:
    """What a model that rambles says under a grammar, and why it stopped."""
    asked = Sampling(seed=seed, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, **shape)
    words = tokenizer()
    pieces = list(generate(FakeSession(rambling), words.encode(f"{seed}"), asked, words))
    return "".join(piece.text for piece in pieces), pieces[-1].finish


@pytest.mark.parametrize("seed", range(8))
def test_a_schema_is_fulfilled(seed: int) -> None:
    text, finish = said(seed, json_schema=SCHEMA)
    assert finish == "stop"
    check(json.loads(text))


def check(value: Any) -> None:
    """By hand, what SCHEMA asks for."""
    assert value.keys() == {"name", "size", "kinds", "good"}
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 8
    assert type(value["size"]) is int
    assert 0 <= value["size"] <= 99
    assert len(value["kinds"]) <= 3
    assert set(value["kinds"]) <= {"a", "b", "né"}
    assert type(value["good"]) is bool


@pytest.mark.parametrize("schema", [True, "true", {}, "{}"], ids=repr)
def test_any_json_is_json(schema: Any) -> None:
    text, finish = said(3, json_schema=schema, max_tokens=900)
    assert finish == "stop"
    json.loads(text)


@pytest.mark.parametrize("seed", range(8))
def test_a_regex_is_matched_from_end_to_end(seed: int) -> None:
    pattern = r"(ab|né|[0-9]{2,4})+-(true|x{3}) the"
    text, finish = said(seed, regex=pattern)
    assert finish == "stop"
    assert re.fullmatch(pattern, text)


@pytest.mark.parametrize("kind", ["bytes", "merged", "likely"])
@pytest.mark.parametrize("seed", range(3))
def test_the_tokenizers_of_files_are_understood(kind: str, seed: int, tmp_path: Path) -> None:
    """Byte pairs and both kinds of SentencePiece; the words and blanks are theirs to choose."""
    keys = reference()["vocabularies"][kind]
    words = Tokenizer.of_gguf(metadata_of(tmp_path / "words.gguf", keys))

    def noise(tokens: list[int]) -> Logits:
        return np.random.default_rng(tokens).normal(0, 3, words.n_tokens).astype(np.float32)

    asked = Sampling(seed=seed, json_schema=SCHEMA, top_k=0)
    pieces = list(generate(FakeSession(noise), words.encode("né"), asked, words))
    assert pieces[-1].finish == "stop"
    check(json.loads("".join(piece.text for piece in pieces)))
    pattern = "( ?[a-z]{1,9}){4} ?[.!]"
    asked = Sampling(seed=seed, regex=pattern, top_k=0)
    pieces = list(generate(FakeSession(noise), words.encode("x"), asked, words))
    assert re.fullmatch(pattern, "".join(piece.text for piece in pieces))


LARK = """
start: sum
sum: item ("+" item)*
item: NUMBER | "(" sum ")"
NUMBER: /[1-9][0-9]{0,3}/
"""
GBNF = """
root ::= item ("+" item)*
item ::= [1-9] [0-9]? | "(" [1-9] ")"
"""


@pytest.mark.parametrize("grammar", [LARK, GBNF], ids=["Lark", "GBNF"])
@pytest.mark.parametrize("seed", range(4))
def test_a_grammar_is_followed(seed: int, grammar: str) -> None:
    text, finish = said(seed, grammar=grammar, max_tokens=400)
    assert re.fullmatch(r"[0-9+()]+", text)
    if finish == "stop":
        assert compile(text, "", "eval")  # Python reads it too


def test_what_is_allowed_is_what_can_still_match() -> None:
    """Against brute force: of all tokens, those after which some text of a finite set remains."""
    texts = [b"abc", b"abd", b"a true", "né".encode(), b"b"]
    asked = Sampling(regex="|".join(re.escape(text.decode()) for text in texts))
    words = FakeTokenizer()
    open_states: list[tuple[bytes, list[int]]] = [(b"", [])]
    while open_states:
        text, tokens = open_states.pop()
        grammar = Grammar(asked, tokenizer())
        for token in tokens:
            grammar.accept(token)
        expected = {
            token
            for token in range(N_TOKENS)
            if (word := words.token_bytes(token)) and any(t.startswith(text + word) for t in texts)
        } | ({END} if text in texts else set())
        allowed = set(np.flatnonzero(grammar.allowed()).tolist())
        nexts = {t[len(text) : len(text) + 1] for t in texts if t.startswith(text)}
        if len(nexts) > 1:
            assert allowed == expected, text
        else:  # what must come may come in one way only: as the tokenizer would cut it
            assert allowed, text
            assert allowed <= expected, text
        assert grammar.complete == (text in texts), text
        if len(tokens) < 3:
            open_states += [(text + words.token_bytes(t), [*tokens, t]) for t in allowed - {END}]


def test_a_text_that_may_end_need_not() -> None:
    grammar = Grammar(Sampling(regex="a+"), tokenizer())
    assert not grammar.allowed()[END]
    grammar.accept(ord("a"))
    assert grammar.allowed()[END]
    assert not grammar.complete


def test_a_tokenizer_without_an_end_ends_where_nothing_may_follow() -> None:
    words = FakeTokenizer()
    words.end_tokens = frozenset()
    grammar = Grammar(Sampling(regex="ab?"), words)  # type: ignore[arg-type]
    grammar.accept(ord("a"))
    assert np.flatnonzero(grammar.allowed()).tolist() == [ord("b")]
    grammar.accept(ord("b"))
    assert grammar.complete


def test_a_tokenizer_that_changes_texts_is_not_followed() -> None:
    class Lowering(FakeTokenizer):
        def encode(self, text: str, *, special: bool = False, ends: bool = True) -> list[int]:
            return super().encode(text.lower(), special=special, ends=ends)

    words = cast(Tokenizer, Lowering())
    asked = Sampling(regex="NO truelength abc(d|E)", seed=1)
    pieces = list(generate(FakeSession(rambling), [1, 2], asked, words))
    assert "".join(piece.text for piece in pieces)[:-1] == "NO truelength abc"


def test_blanks_in_json_are_bounded() -> None:
    grammar = Grammar(Sampling(json_schema={"type": "array"}), tokenizer())
    grammar.accept(ord("["))
    for _ in range(100):
        blank = next((b for b in b" \t\n" if grammar.allowed()[b]), None)
        if blank is None:
            return
        grammar.accept(blank)
    pytest.fail("blanks never end")


def test_a_grammar_takes_a_bounded_number_of_states() -> None:
    """Here each token is a state more; what they take is not in any plan."""
    grammar = Grammar(Sampling(regex="a{0,100000}[^b]{0,100000}"), tokenizer())

    def go_on() -> None:
        for _ in range(100_000):
            grammar.allowed()
            grammar.accept(ord("a"))

    with pytest.raises(InvalidArgument, match="too many states"):
        go_on()


def test_a_token_that_is_not_allowed_is_an_error() -> None:
    grammar = Grammar(Sampling(regex="abc"), tokenizer())
    with pytest.raises(RunFailed, match="grammar can't go on"):
        grammar.accept(ord("x"))


@pytest.mark.parametrize(
    "shape",
    [
        {"regex": "a("},
        {"regex": "a{3,1}"},
        {"grammar": "start: nowhere"},
        {"grammar": "root ::= ("},
        {"grammar": ""},
        {"json_schema": {"type": "nonsense"}},
        {"json_schema": {"$ref": "#/nowhere"}},
        {"json_schema": {"type": "array", "minItems": 5, "maxItems": 2}},
    ],
    ids=str,
)
def test_what_can_not_be_used_is_named(shape: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"{next(iter(shape))} can't be used") as caught:
        Grammar(Sampling(**shape), tokenizer())
    assert "\n" not in str(caught.value)


def test_nothing_asked_is_no_grammar() -> None:
    assert grammar_of(Sampling(), tokenizer()) is None


def test_without_the_extra_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(NotSupported, match=r'pip install "arenite\[grammar\]"'):
        Grammar(Sampling(regex="a"), tokenizer())
