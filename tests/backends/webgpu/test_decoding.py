"""Texts whose tokens the device chooses: the same as if the host did, wherever they end, and what
was computed ahead of the end is as if it had never been."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.backends.webgpu import decoding, sampling
from arenite.errors import InvalidArgument
from arenite.generate import decode_ahead
from arenite.generate.continuation import Continuation
from arenite.generate.generation import Piece
from arenite.generate.model import LanguageModel
from arenite.generate.session import Session
from tests.backends.webgpu.runner import loaded, webgpu
from tests.generate.gguf_models import write_tiny

CONTEXT = 48
TOKENS = [5, 17, 200, 31, 8, 99, 45]
HOT: dict[str, Any] = {"temperature": 1.5, "seed": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    webgpu()
    path = write_tiny("llama-f16", tmp_path_factory.mktemp("models"))
    with arenite.load(path, context=CONTEXT, sessions=2, device="webgpu") as found:
        assert isinstance(found, LanguageModel)
        yield found


def told(model: LanguageModel, by_host: bool = False, **options: Any) -> tuple[Session, Piece, str]:
    """The session of a new text, its last piece, and all of it."""
    model._slots.forget()  # logits of a prompt that is read in other parts are rounded otherwise
    session = model.session()
    with pytest.MonkeyPatch.context() as patch:
        if by_host:
            patch.setattr(Session, "ahead", lambda *_: None)
        pieces = [*session.pieces(TOKENS, **options)]
    return session, pieces[-1], "".join(piece.text for piece in pieces)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0, "max_tokens": 20},
        {"seed": 1, "max_tokens": 20},
        {**HOT, "max_tokens": 20},
        {**HOT, "max_tokens": 1},
        {**HOT, "max_tokens": 2},
        {**HOT},  # to the end of the context
        {**HOT, "repetition_penalty": 1.5, "penalty_window": 4, "max_tokens": 20},
        {**HOT, "logit_bias": {7: 5.0}, "top_k": 0, "min_p": 0.0, "top_p": 1.0, "max_tokens": 20},
    ],
    ids=str,
)
def test_the_text_is_the_one_that_the_host_chooses(
    model: LanguageModel, options: dict[str, Any]
) -> None:
    one, last, text = told(model, **options)
    other, last_of_host, text_of_host = told(model, by_host=True, **options)
    assert (text, one.tokens, last.finish) == (text_of_host, other.tokens, last_of_host.finish)
    assert last.stats is not None
    assert last_of_host.stats is not None
    assert last_of_host.stats.device_tokens == 0
    assert last.stats.generated_tokens == last_of_host.stats.generated_tokens
    # The first is chosen from the logits of the prompt, and one that ends the text is not counted.
    most = last.stats.generated_tokens
    assert most - 1 <= last.stats.device_tokens <= most


def test_a_stop_string_ends_it_and_the_session_goes_on_as_if_nothing_were_ahead(
    model: LanguageModel,
) -> None:
    _, _, text = told(model, **HOT, max_tokens=20)
    stop = text[len(text) // 2 :][:2]
    session, last, short = told(model, **HOT, max_tokens=20, stop=stop)
    assert last.finish == "stop"
    assert short == text[: text.index(stop)]
    wanted = session.feed([3, 4])
    tokens = [*session.tokens]
    model._slots.forget()
    np.testing.assert_allclose(model.session().feed(tokens), wanted, atol=2e-3)


def test_runs_begin_before_the_token_before_them_is_known(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable, counts = model.executable, []
    wait = executable.next_token

    def noted(decoding: Any, *allowed: Any) -> Any:
        counts.append(decoding.n_pending)
        return wait(decoding, *allowed)

    monkeypatch.setattr(executable, "next_token", noted)
    told(model, **HOT, max_tokens=8)
    # The first does not wait for the third, and none begins that nobody would ask for.
    assert counts == [2] + [decode_ahead.DEPTH] * 4 + [2, 1]


def test_a_run_that_was_recorded_with_other_rows_is_recorded_again(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**HOT, "max_tokens": 8}
    wanted = told(model, **options)[2]
    submit, n_recorded = decoding.WebGpuDecoding.start, 0
    record = decoding.WebGpuDecoding._record

    def of_other_rows(own: Any, *given: Any) -> None:
        own._ahead = deque(one._replace(key=b"") for one in own._ahead)
        submit(own, *given)

    def counted(own: Any, *given: Any) -> Any:
        nonlocal n_recorded
        n_recorded += 1
        return record(own, *given)

    monkeypatch.setattr(decoding.WebGpuDecoding, "start", of_other_rows)
    monkeypatch.setattr(decoding.WebGpuDecoding, "_record", counted)
    assert told(model, **options)[2] == wanted
    assert n_recorded > 2 * options["max_tokens"]


def test_a_text_begins_with_runs_that_were_recorded_for_the_one_before(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [told(model, **HOT, max_tokens=n)[2] for n in (9, 4)]
    events: list[str] = []
    program = loaded(model.executable)
    assert [one.recorded.result() for one in program.ahead]
    record, submit = decoding.WebGpuDecoding._record, program.submit

    def recorded(own: Any, *given: Any) -> Any:
        events.append("record")
        return record(own, *given)

    def submitted(commands: Any) -> Any:
        events.append("submit")
        return submit(commands)

    monkeypatch.setattr(decoding.WebGpuDecoding, "_record", recorded)
    monkeypatch.setattr(program, "submit", submitted)
    assert told(model, **HOT, max_tokens=4)[2] == wanted[1]
    assert events[:2] == ["submit", "submit"]  # the prompt, and the first run behind it
    assert told(model, **HOT, max_tokens=9)[2] == wanted[0]


def test_texts_that_are_made_in_turns_are_those_made_alone(model: LanguageModel) -> None:
    options: list[Any] = [{"temperature": 1.5, "seed": seed, "max_tokens": 15} for seed in (3, 4)]
    alone = [told(model, **one)[2] for one in options]
    model._slots.forget()
    both = [model.session().pieces(TOKENS, **one) for one in options]
    texts = ["", ""]
    going = [0, 1]
    while going:
        for k in [*going]:
            piece = next(both[k])
            texts[k] += piece.text
            if piece.finish is not None:
                going.remove(k)
    assert texts == alone


def test_a_text_whose_states_were_taken_is_right_all_the_same(tmp_path: Path) -> None:
    """One slot for two sessions: what the other feeds overwrites what was computed, ahead of the
    text too, where it is the same text up to there."""
    webgpu()
    path = write_tiny("llama-f16", tmp_path)
    with arenite.load(path, context=CONTEXT, device="webgpu") as model:
        assert isinstance(model, LanguageModel)
        _, _, wanted = told(model, by_host=True, **HOT, max_tokens=15)
        model._slots.forget()
        text, session, other = "", model.session(), model.session()
        for k, piece in enumerate(session.pieces(TOKENS, **HOT, max_tokens=15)):
            text += piece.text
            if k in (2, 5):
                other.reset()
                other.feed([*session.tokens, 1, 2, 3, 4])
                if k == 2:
                    other.rewind(session.position - 1)
                    other.feed(session.tokens[-1:])
    assert text == wanted


def test_another_text_on_the_same_session_is_told(model: LanguageModel) -> None:
    session = model.session()
    pieces = session.pieces(TOKENS, **HOT, max_tokens=20)
    next(pieces)
    session.feed([1])
    with pytest.raises(InvalidArgument, match="used for another text"):
        next(pieces)


def test_it_can_be_cancelled(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    executable, waits = model.executable, 0
    wait = executable.next_token

    def cancelled(decoding: Any, *allowed: Any) -> Any:
        nonlocal waits
        waits += 1
        if waits == 4:
            other = threading.Thread(target=model.cancel)
            other.start()
            other.join()
        return wait(decoding, *allowed)

    monkeypatch.setattr(executable, "next_token", cancelled)
    _, last, _ = told(model, **HOT, max_tokens=20)
    assert last.finish == "cancelled"
    assert waits == 4
    _, last, _ = told(model, **HOT, max_tokens=20)
    assert last.finish == "length"


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


@pytest.mark.parametrize(
    "options",
    [
        {**HOT, "regex": "[0-9]{3}[a-f]{4}"},
        {"temperature": 0, "regex": "(yes|no|perhaps)"},
        {**HOT, "json_schema": SCHEMA},
        {**HOT, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "regex": "[a-z]{12}"},
        {**HOT, "repetition_penalty": 1.5, "grammar": 'start: ("ab" | "cd")+'},
    ],
    ids=str,
)
def test_what_a_grammar_allows_is_chosen_by_the_device_as_by_the_host(
    model: LanguageModel, options: dict[str, Any]
) -> None:
    one, last, text = told(model, **options, max_tokens=25)
    other, last_of_host, text_of_host = told(model, by_host=True, **options, max_tokens=25)
    assert (text, one.tokens, last.finish) == (text_of_host, other.tokens, last_of_host.finish)
    assert last.stats is not None
    most = last.stats.generated_tokens
    assert most - 1 <= last.stats.device_tokens <= most
    if "regex" in options:
        assert re.fullmatch(options["regex"], text)


def test_the_mask_is_found_while_the_run_is_under_way(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable, order = model.executable, []
    begin, allowed = executable.start_decoding, Continuation.allowed

    def begun(*given: Any) -> None:
        order.append("run")
        begin(*given)

    def asked(made: Continuation) -> Any:
        order.append("mask")
        return allowed(made)

    monkeypatch.setattr(executable, "start_decoding", begun)
    monkeypatch.setattr(Continuation, "allowed", asked)
    told(model, **HOT, regex="[0-9]{6}", max_tokens=5)
    assert order == ["mask", *["run", "mask"] * 4]  # the first token is the prompt's


def test_choices_that_the_device_leaves_to_the_host_change_nothing(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no more than 16 candidates here: most choices of a hot text have more."""
    options: Any = {"temperature": 2.0, "seed": 5, "top_k": 0, "min_p": 0.0, "top_p": 0.9}
    _, _, wanted = told(model, by_host=True, **options, max_tokens=30)
    monkeypatch.setattr(sampling, "CANDIDATES", 16)
    monkeypatch.setattr(decoding, "shader", sampling.shader.__wrapped__)
    _, last, text = told(model, **options, max_tokens=30)
    assert last.stats is not None
    assert text == wanted
    assert last.stats.device_tokens < 29


def test_more_than_the_device_orders_is_the_hosts(model: LanguageModel) -> None:
    _, last, _ = told(model, **HOT, top_k=sampling.CANDIDATES + 1, max_tokens=10)
    assert last.stats is not None
    assert last.stats.device_tokens == 0


def test_what_is_read_back_is_a_token_and_errors(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, taken = loaded(model.executable), []
    take = program.staging.take

    def noted(nbytes: int) -> Any:
        taken.append(nbytes)
        return take(nbytes)

    told(model, **HOT, max_tokens=3)
    monkeypatch.setattr(program.staging, "take", noted)
    told(model, **HOT, max_tokens=10)
    assert taken[-1] == 4 * (len(program.names) + 1)
