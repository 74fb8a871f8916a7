"""Several texts of one model at the same time: each as if it were alone, all within the plan."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import arenite
from arenite.errors import DoesNotFit, InvalidArgument
from arenite.frontends.language import LanguageFile
from arenite.generate import LanguageModel, Settings, slots
from arenite.runtime.executable import Executable
from tests.generate.gguf_models import write_tiny

PROMPTS = ([1, 33, 5, 90], [1, 33, 7], [2, 64, 3, 77, 21], [9, 40])
LENGTH = 12


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny("llama", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module", params=[1, 2, 3])
def model(path: Path, request: pytest.FixtureRequest) -> Iterator[LanguageModel]:
    with arenite.load(path, context=64, block=8, sessions=request.param) as loaded:
        yield loaded


def tokens_made(model: LanguageModel, prompt: Sequence[int]) -> Iterator[int]:
    """The likeliest tokens after a prompt, from a session of its own."""
    session = model.session()
    logits = session.feed(prompt)
    for _ in range(LENGTH):
        token = int(np.argmax(logits))
        yield token
        logits = session.feed([token])


@pytest.fixture(scope="module")
def alone(path: Path) -> list[list[int]]:
    found = []
    for prompt in PROMPTS:
        with arenite.load(path, context=64, block=8) as loaded:
            found.append(list(tokens_made(loaded, prompt)))
    return found


def test_sessions_in_turns_give_what_each_gives_alone(
    model: LanguageModel, alone: list[list[int]]
) -> None:
    texts = [tokens_made(model, prompt) for prompt in PROMPTS]
    assert [list(one) for one in zip(*zip(*texts, strict=True), strict=True)] == alone


def test_calls_that_overlap_on_one_thread_each_have_a_text(model: LanguageModel) -> None:
    alone = [list(model.generate(prompt, temperature=0, max_tokens=9)) for prompt in PROMPTS]
    texts = [model.generate(prompt, temperature=0, max_tokens=9) for prompt in PROMPTS]
    found: list[list[str]] = [[] for _ in texts]
    going = list(range(len(texts)))
    while going:
        for k in going[:]:
            piece = next(texts[k], None)
            if piece is None:
                going.remove(k)
            else:
                found[k].append(piece)
    assert ["".join(one) for one in found] == ["".join(one) for one in alone]


def test_calls_of_many_threads_each_have_a_text(model: LanguageModel) -> None:
    alone = ["".join(model.generate(p, temperature=0, max_tokens=9)) for p in PROMPTS]
    found: dict[int, str] = {}

    def make(k: int) -> None:
        prompt = PROMPTS[k % len(PROMPTS)]
        found[k] = "".join(model.generate(prompt, temperature=0, max_tokens=9))

    threads = [threading.Thread(target=make, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[k] for k in range(8)] == alone * 2


def test_sessions_that_have_room_compute_each_token_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    run = Executable.__call__

    def counting(self: Executable, tokens: np.ndarray, position: np.int64) -> list[np.ndarray]:
        computed.append(len(tokens))
        return run(self, tokens, position)

    monkeypatch.setattr(Executable, "__call__", counting)
    for room, n_computed in ((2, 2 * (4 + 6)), (1, None)):
        with arenite.load(path, context=64, block=8, sessions=room) as model:
            computed.clear()
            sessions = [model.session(), model.session()]
            for session, prompt in zip(sessions, ([1, 2, 3, 4], [5, 6, 7, 8]), strict=True):
                session.feed(prompt)
            for token in range(6):
                for session in sessions:
                    session.feed([token])
            if n_computed is not None:
                assert sum(computed) == n_computed
            else:
                assert sum(computed) > 2 * (4 + 6)  # each takes the other's place


def test_a_text_that_rests_gives_way_to_one_of_another_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "PATIENCE_SECONDS", 0.01)
    with arenite.load(path, context=64, block=8) as model:
        alone = "".join(model.generate(PROMPTS[0], temperature=0, max_tokens=9))
        resting = model.generate(PROMPTS[0], temperature=0, max_tokens=9)
        text = next(resting)
        other: list[str] = []
        thread = threading.Thread(
            target=lambda: other.extend(model.generate(PROMPTS[2], temperature=0, max_tokens=9))
        )
        thread.start()
        thread.join(timeout=60)
        assert other
        assert text + "".join(resting) == alone


def test_a_session_talks_and_goes_on(model: LanguageModel) -> None:
    session = model.session()
    text = "".join(session.generate(PROMPTS[0], temperature=0, max_tokens=5))
    assert text == "".join(model.generate(PROMPTS[0], temperature=0, max_tokens=5))
    assert list(session.tokens[: len(PROMPTS[0])]) == PROMPTS[0]
    *_, last = session.pieces(PROMPTS[0], max_tokens=1)
    assert last.stats is not None
    assert last.stats.reused_tokens == len(PROMPTS[0])


def test_every_session_is_in_the_plan(path: Path) -> None:
    file = LanguageFile.open(path)
    plans = [Settings(file, context=64, block=8, sessions=n).plan for n in (1, 2, 5)]
    state = [plan.regions["state"].nbytes for plan in plans]
    assert state == [state[0], 2 * state[0], 5 * state[0]]
    assert len({plan.total_nbytes - plan.regions["state"].nbytes for plan in plans}) == 1
    budget = plans[1].total_nbytes
    assert Settings(file, context=64, block=8, sessions=2, memory=budget).plan == plans[1]
    with pytest.raises(DoesNotFit):
        _ = Settings(file, context=64, block=8, sessions=3, memory=budget).plan
    longer = file._replace(description=file.description._replace(context=2**16))
    contexts = [Settings(longer, block=8, sessions=n, memory=budget * 8).context for n in (1, 4)]
    assert contexts[0] > 2 * contexts[1]


def test_all_sets_of_states_are_proven(path: Path) -> None:
    with arenite.load(path, context=64, block=8, sessions=2) as model:
        for session in (model.session(), model.session()):
            session.feed([1, 2, 3])
        model.executable.verify()
        assert model.executable.n_state_sets == 2
        with pytest.raises(InvalidArgument, match="sets 0 to 1"):
            model.executable.use_state_set(2)


def test_numbers_of_sessions_that_make_no_sense_are_refused(path: Path) -> None:
    for wrong in (0, -1, 10**9):
        with pytest.raises(InvalidArgument, match="sessions"):
            arenite.load(path, context=64, sessions=wrong)
