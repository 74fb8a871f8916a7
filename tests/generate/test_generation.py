"""The loop that makes text: what comes out, why it ends, what is fed and what is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from arenite.errors import InvalidArgument, RunCancelled, RunFailed
from arenite.generate import generation
from arenite.generate.generation import Piece, generate
from arenite.generate.sampling import Sampling
from tests.generate.fakes import (
    END,
    START,
    FakeSession,
    FakeTokenizer,
    Logits,
    only,
    rambling,
    saying,
    tokenizer,
)

PROMPT = [START, *b"go"]


def pieces_of(answer: Iterable[int], context: int = 1000, **options: Any) -> list[Piece]:
    session = FakeSession(saying(answer, len(PROMPT)), context)
    return list(generate(session, PROMPT, Sampling(temperature=0, **options), tokenizer()))


def text_of(pieces: Iterable[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def test_a_text_comes_piece_by_piece_and_ends_where_the_model_ends_it() -> None:
    pieces = pieces_of(b"hello")
    assert [piece.text for piece in pieces] == ["h", "e", "l", "l", "o", ""]
    assert [piece.finish for piece in pieces] == [None] * 5 + ["stop"]
    assert [piece.stats is not None for piece in pieces] == [False] * 5 + [True]


def test_a_character_is_never_cut() -> None:
    pieces = pieces_of("aé→😀z".encode())
    assert [piece.text for piece in pieces if piece.text] == list("aé→😀z")


def test_an_unfinished_character_is_shown_when_nothing_more_comes() -> None:
    assert text_of(pieces_of("é".encode()[:1])) == "\N{REPLACEMENT CHARACTER}"


def test_logits_without_a_token_are_not_chosen() -> None:
    def logits_after(tokens: list[int]) -> Logits:
        script = [*b"ab", END]
        padding = np.full(9, 50.0, np.float32)
        return np.concatenate([only(script[len(tokens) - len(prompt)]), padding])

    prompt = [*PROMPT, FakeTokenizer.n_tokens + 3]
    asked = Sampling(temperature=0, repetition_penalty=1.1)
    pieces = generate(FakeSession(logits_after), prompt, asked, tokenizer())
    assert text_of(pieces) == "ab"


def test_a_stop_string_ends_the_text_and_is_not_shown() -> None:
    pieces = pieces_of(b"one, two, three", stop=[", th", "zz"])
    assert text_of(pieces) == "one, two"
    assert pieces[-1].finish == "stop"
    assert [piece.text for piece in pieces if "," in piece.text] == [", tw"]  # held till then


def test_what_looked_like_a_stop_string_is_shown_after_all() -> None:
    assert text_of(pieces_of(b"a-b--", stop="---")) == "a-b--"


def test_max_tokens_are_made_and_no_more() -> None:
    pieces = pieces_of(b"hello", max_tokens=3)
    assert (text_of(pieces), pieces[-1].finish) == ("hel", "length")
    stats = pieces[-1].stats
    assert stats is not None
    assert stats.generated_tokens == 3


def test_the_context_is_filled_to_the_last_place() -> None:
    """Of a context of 6, three are the prompt's; the last token made needs no place."""
    pieces = pieces_of(b"hello there", context=6)
    assert (text_of(pieces), pieces[-1].finish) == ("hell", "context")
    pieces = pieces_of(b"hello there", context=3)
    assert (text_of(pieces), pieces[-1].finish) == ("h", "context")


def test_a_prompt_that_does_not_fit_is_named_before_anything_runs() -> None:
    session = FakeSession(rambling, context=2)
    with pytest.raises(InvalidArgument, match="3 tokens and the context holds 2"):
        generate(session, PROMPT, Sampling(), tokenizer())
    with pytest.raises(InvalidArgument, match="no tokens"):
        generate(session, [], Sampling(), tokenizer())
    assert session.fed == []


def test_what_the_session_holds_is_not_fed_again() -> None:
    session = FakeSession(saying(b"xy", 3))
    words = tokenizer()
    list(generate(session, PROMPT, Sampling(temperature=0), words))
    assert session.fed == [PROMPT, [ord("x")], [ord("y")]]
    session.fed.clear()
    longer = [*PROMPT, *b"x!"]
    last = list(generate(session, longer, Sampling(max_tokens=1), words))[-1]
    assert session.fed == [[ord("!")]]
    assert session.tokens == longer
    assert last.stats is not None
    assert (last.stats.prompt_tokens, last.stats.reused_tokens) == (5, 4)


def test_the_same_prompt_again_needs_no_feeding() -> None:
    session = FakeSession(rambling)
    asked = Sampling(seed=1, max_tokens=20)
    first = text_of(generate(session, PROMPT, asked, tokenizer()))
    session.fed.clear()
    pieces = list(generate(session, PROMPT, asked, tokenizer()))
    assert text_of(pieces) == first
    assert all(len(tokens) == 1 for tokens in session.fed)
    assert len(session.fed) == 19
    assert pieces[-1].stats is not None
    assert pieces[-1].stats.reused_tokens == len(PROMPT)


def test_a_prompt_within_what_was_said_feeds_its_last_token() -> None:
    session = FakeSession(saying(b"xyz", len(PROMPT)))
    words = tokenizer()
    list(generate(session, PROMPT, Sampling(temperature=0), words))
    session.fed.clear()
    list(generate(session, [*PROMPT, *b"xy"], Sampling(temperature=0, max_tokens=1), words))
    assert session.fed == [[ord("y")]]


def test_another_prompt_starts_over() -> None:
    session = FakeSession(rambling)
    list(generate(session, PROMPT, Sampling(max_tokens=2), tokenizer()))
    session.fed.clear()
    list(generate(session, [7, 8], Sampling(max_tokens=1), tokenizer()))
    assert session.fed == [[7, 8]]


def test_the_same_seed_gives_the_same_text() -> None:
    texts = [
        text_of(generate(FakeSession(rambling), PROMPT, Sampling(seed=s, max_tokens=40), words))
        for s, words in ((3, tokenizer()), (3, tokenizer()), (4, tokenizer()))
    ]
    assert texts[0] == texts[1] != texts[2]


def test_the_penalties_see_prompt_and_answer() -> None:
    """Each token costs itself the next place: with equal logits none comes a second time."""
    logits = only(0) * 0
    logits[256:] = -20
    session = FakeSession(lambda tokens: logits)
    prompt = [0, 1, 2]
    asked = Sampling(temperature=0, presence_penalty=1.0, penalty_window=-1, max_tokens=5)
    list(generate(session, prompt, asked, tokenizer()))
    assert session.tokens == [0, 1, 2, 3, 4, 5, 6]  # the last one made is not fed


def test_whoever_listens_can_stop_it() -> None:
    heard: list[str] = []
    session = FakeSession(saying(b"endless" * 100, len(PROMPT)))
    asked, words = Sampling(temperature=0), tokenizer()
    for piece in generate(session, PROMPT, asked, words, cancelled=lambda: len(heard) >= 3):
        heard.append(piece.text)
    assert "".join(heard) == "end"
    assert piece.finish == "cancelled"
    session.fed.clear()
    # The session is as good as before: what it read is kept.
    list(generate(session, PROMPT, Sampling(temperature=0, max_tokens=1), words))
    assert session.fed == []


def test_a_long_prompt_can_be_stopped_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "FEED_TOKENS", 4)
    session = FakeSession(rambling)
    prompt = list(range(11))
    run = generate(session, prompt, Sampling(), tokenizer(), cancelled=lambda: len(session.fed) > 1)
    (last,) = run
    assert (last.text, last.finish) == ("", "cancelled")
    assert session.fed == [prompt[:4], prompt[4:8]]


def test_a_run_that_was_cancelled_ends_the_text() -> None:
    def logits_after(tokens: list[int]) -> Logits:
        if len(tokens) == 5:
            raise RunCancelled("cancelled")
        return only(ord("a"))

    session = FakeSession(logits_after)
    pieces = list(generate(session, PROMPT, Sampling(temperature=0), tokenizer()))
    assert (text_of(pieces), pieces[-1].finish) == ("aa", "cancelled")


@pytest.mark.parametrize("other", [[*PROMPT, *b"on"], [START, *b"no"]])
def test_two_texts_in_one_session_at_once_are_refused(other: list[int]) -> None:
    session = FakeSession(rambling)
    first = generate(session, PROMPT, Sampling(seed=1), tokenizer())
    next(first)
    second = generate(session, other, Sampling(seed=1), tokenizer())
    next(second)
    with pytest.raises(InvalidArgument, match="a session of its own"):
        next(first)


def test_other_errors_come_through() -> None:
    session = FakeSession(lambda tokens: only(0) * float("nan"))
    with pytest.raises(RunFailed):
        list(generate(session, PROMPT, Sampling(), tokenizer()))


def test_stats_read_as_a_sentence() -> None:
    stats = generation.Stats(10, 4, 20, 2.0, 4.0, 9)
    assert (stats.prompt_tokens_a_second, stats.tokens_a_second) == (3.0, 5.0)
    for words in ("20 tokens in 4.00 s (5.0 a second)", "4 of them reused", "seed 9"):
        assert words in str(stats)
    assert generation.Stats(1, 0, 0, 0.0, 0.0, 9).tokens_a_second == 0


def test_the_fake_tokenizer_reads_what_it_writes() -> None:
    words = FakeTokenizer()
    assert words.decode(words.encode("né the ✓")) == "né the ✓"
