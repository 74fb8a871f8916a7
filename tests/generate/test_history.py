"""Conversations: what is told of them when not everything fits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from arenite.errors import InvalidArgument
from arenite.generate.history import Conversation, Message


def encode(messages: Sequence[Message]) -> list[int]:
    """One token a character."""
    return list("".join(message["content"] for message in messages).encode())


def talk(n_turns: int, system: str | None = "S") -> Conversation:
    conversation = Conversation(system)
    for turn in range(n_turns):
        conversation.say("user", f"q{turn}")
        if turn < n_turns - 1:
            conversation.say("assistant", f"a{turn}")
    return conversation


def test_all_is_told_where_it_fits() -> None:
    assert talk(3).fitting(encode, 11) == (list(b"Sq0a0q1a1q2"), 0)


def test_the_oldest_turns_are_left_out_until_half_is_free() -> None:
    conversation = talk(5)  # 19 characters
    tokens, n_left_out = conversation.fitting(encode, 18)
    assert (bytes(tokens), n_left_out) == (b"Sq3a3q4", 6)


def test_what_was_left_out_stays_out_so_that_the_beginning_stays_the_same() -> None:
    conversation = talk(5)
    first, _ = conversation.fitting(encode, 18)
    conversation.say("assistant", "a4")
    conversation.say("user", "q5")
    second, n_left_out = conversation.fitting(encode, 18)
    assert second[: len(first)] == first
    assert n_left_out == 6
    assert len(conversation.messages) == 12  # nothing is lost


def test_the_last_turn_may_fill_all_the_place() -> None:
    conversation = Conversation("S")
    conversation.say("user", "before")
    conversation.say("user", "123456789")
    assert conversation.fitting(encode, 10) == (list(b"S123456789"), 1)


def test_a_last_message_that_does_not_fit_is_an_error() -> None:
    conversation = Conversation()
    conversation.say("user", "123456789")
    with pytest.raises(InvalidArgument, match="9 tokens and there is place for 8"):
        conversation.fitting(encode, 8)


def test_a_message_can_be_taken_back_and_all_forgotten() -> None:
    conversation = talk(2)
    conversation.take_back()
    assert [m["content"] for m in conversation.messages] == ["S", "q0", "a0"]
    conversation.clear()
    assert conversation.messages == [{"role": "system", "content": "S"}]
