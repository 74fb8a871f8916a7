"""Requests together: each gets what it would alone, as sessions of the model have it; who does not
fit waits or is told, and nobody pays for one who leaves."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite import device
from arenite.errors import BoundsError, Busy, DoesNotFit, InvalidArgument, NotSupported, RunFailed
from arenite.frontends.language import LanguageFile
from arenite.frontends.language.recipe import Recipe
from arenite.generate import child_process
from arenite.serve import Chunk, Engine, Stream
from arenite.serve.settings import EngineSettings
from tests.generate.gguf_models import TINY, Shape, write_model
from tests.pipeline.loaded import loaded

CONTEXT = 160
PAGE = 32
MODELS = {
    "f32": TINY["llama"],
    "f16": TINY["llama-f16"],
    "bf16": TINY["llama-bf16"],
    "q4_0": TINY["llama-q4_0"],
    "q4_1": TINY["llama-q4_1"],
    "q8_0": TINY["llama-q8_0"],
    "q4_k": TINY["llama-q4_k"],
    "many": TINY["llama-many"],
    "window": Shape(weights=("Q8_0",), window=40),
    "experts": TINY["qwen3moe-q8_0"],
    "float experts": TINY["mixtral"],
    "int8 keys": TINY["llama-q8_0"],
}
#: Whose sessions add up rows of all products in one order too.
SAME_AS_SESSIONS = ("q4_0", "q4_1", "q8_0", "q4_k", "window", "int8 keys")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def file_of(name: str, folder: Path) -> Path:
    path = folder / f"{name}.gguf"
    if not path.exists():
        write_model(path, MODELS[name])
    return path


def engine_of(name: str, folder: Path, **options: Any) -> Engine:
    kv = "int8" if name == "int8 keys" else "float16"
    given: dict[str, Any] = {"slots": 32, "context": CONTEXT, "block": 24, "kv": kv} | options
    return Engine(file_of(name, folder), **given)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with engine_of("q8_0", folder, slots=4, queue=8) as made:
        yield made


def prompt_of(count: int, seed: int = 0, n_tokens: int = 320) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, n_tokens, count)]


def result_of(stream: Stream) -> list[tuple[int | None, str, float | None]]:
    """Tokens, texts, and the logarithms of probabilities to the last bit."""
    return [(chunk.token, chunk.text, chunk.logprob) for chunk in stream]


REQUEST: dict[str, Any] = {"max_tokens": 20, "seed": 5, "temperature": 1.5, "logprobs": 0}


@pytest.mark.parametrize("name", MODELS)
def test_a_seeded_request_is_the_same_alone_and_among_others(name: str, folder: Path) -> None:
    prompt = prompt_of(75)
    with engine_of(name, folder) as engine:
        alone = result_of(engine.submit(prompt, **REQUEST))
        # What it shares with the first is in the cache now; other prompts are of any length.
        others = [
            engine.submit(prompt_of(1 + 7 * k % 90, seed=k), max_tokens=5 + k, seed=k)
            for k in range(31)
        ]
        again = engine.submit(prompt, **REQUEST)
        assert result_of(again) == alone
        assert engine.stats().reused_tokens == 2 * PAGE
        for other in others:
            other.text()
    with engine_of(name, folder, slots=3, block=7) as engine:
        cut = [engine.submit(prompt_of(40, seed=k), max_tokens=9) for k in range(2)]
        assert result_of(engine.submit(prompt, **REQUEST)) == alone
        for other in cut:
            other.text()
        engine.executable.verify()


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_a_session(name: str, folder: Path) -> None:
    """To the last bit, where sessions have one order of sums as well."""
    kv = "int8" if name == "int8 keys" else "float16"
    prompts = [prompt_of(count, seed=count) for count in (1, 33, 64, 97, 130)]
    heard: dict[int, list[Any]] = {}
    with engine_of(name, folder) as engine:
        chosen: list[list[int]] = []
        advance = engine.batch.step

        def step() -> Any:
            made = advance()
            for text, logits in made:
                heard.setdefault(text.continuation.n_prompt, []).append(logits.copy())
            return made

        engine.batch.step = step  # type: ignore[method-assign]
        streams = [engine.submit(prompt, max_tokens=6, temperature=0) for prompt in prompts]
        for stream in streams:
            chosen.append([chunk.token for chunk in stream if chunk.token is not None])
    with arenite.load(file_of(name, folder), context=CONTEXT, kv=kv) as model:
        for prompt, tokens in zip(prompts, chosen, strict=True):
            session = model.session()
            logits = session.feed(prompt)
            for token, found in zip(tokens, heard[len(prompt)], strict=True):
                np.testing.assert_allclose(found, logits, rtol=0, atol=5e-3)
                if name in SAME_AS_SESSIONS:
                    np.testing.assert_array_equal(found, logits)
                assert token == int(np.argmax(found))
                if session.position < CONTEXT:
                    logits = session.feed([token])


def test_a_beginning_that_many_have_is_read_once(folder: Path) -> None:
    system = prompt_of(3 * PAGE + 5)
    with engine_of("q8_0", folder, slots=8, block=200) as engine:
        started = threading.Event()
        # All are there before the first step: a listener holds the engine's thread meanwhile.
        engine.submit([1], max_tokens=2, listener=lambda chunk: started.wait())
        streams = [engine.submit([*system, 7 + k], max_tokens=2, seed=k) for k in range(6)]
        started.set()
        texts = [stream.text() for stream in streams]
        stats = engine.stats()
        assert stats.reused_tokens == 5 * 3 * PAGE
        assert stats.prompt_tokens == 1 + 6 * len([*system, 0]) - stats.reused_tokens
        assert stats.n_free_pages + stats.n_idle_pages == stats.n_pages
        assert stats.n_idle_pages == 3
    with engine_of("q8_0", folder, slots=1) as engine:
        for k, text in enumerate(texts):
            assert engine.submit([*system, 7 + k], max_tokens=2, seed=k).text() == text


def test_a_conversation_goes_on_from_what_was_written(folder: Path) -> None:
    """Pages of answers are known too."""
    prompt = prompt_of(20)
    with engine_of("q8_0", folder, slots=2) as engine:
        made = [c.token for c in engine.submit(prompt, max_tokens=70, seed=1, logit_bias={2: -1e9})]
        first = [token for token in made if token is not None]
        assert len(first) == 70
        stream = engine.submit([*prompt, *first, 9, 9, 9], max_tokens=4, seed=2)
        *_, last = stream
        assert last.stats is not None
        # The last token was told, and never read.
        assert last.stats.reused_tokens == (20 + 69) // PAGE * PAGE


def test_who_leaves_frees_the_slot_within_a_step(engine: Engine) -> None:
    heard: list[Chunk | BaseException] = []
    ended, given = threading.Event(), threading.Event()
    streams: list[Stream] = []

    def listen(chunk: Chunk | BaseException) -> None:
        given.wait()
        heard.append(chunk)
        if len(heard) == 3:
            streams[0].cancel()
        if isinstance(chunk, Chunk) and chunk.finish:
            ended.set()

    streams.append(engine.submit([5, 6], max_tokens=100, listener=listen, logit_bias={2: -1e9}))
    given.set()
    assert ended.wait(60)
    assert len(heard) == 4
    last = heard[-1]
    assert isinstance(last, Chunk)
    assert (last.token, last.finish) == (None, "cancelled")
    stats = engine.stats()
    assert stats.slots == (None,) * 4
    assert stats.n_free_pages + stats.n_idle_pages == stats.n_pages
    # Who stops listening leaves too.
    before = stats.n_cancelled
    for _ in engine.submit([5, 6], max_tokens=100, logit_bias={2: -1e9}):
        break
    engine.submit([9], max_tokens=5, logit_bias={2: -1e9}).text()
    assert engine.stats().n_cancelled == before + 1


def test_who_does_not_fit_waits_or_is_told(folder: Path) -> None:
    with engine_of("q8_0", folder, slots=2, queue=3) as engine:
        held = threading.Event()
        first = engine.submit([4], max_tokens=2, listener=lambda chunk: held.wait())
        streams = [engine.submit([4 + k], max_tokens=2, seed=k) for k in range(4)]
        with pytest.raises(Busy, match="of 3 at the most"):
            engine.submit([9], max_tokens=2)
        assert engine.stats().n_waiting >= 3
        assert engine.stats().n_refused == 1
        held.set()
        assert all(stream.text() is not None for stream in streams)
        assert first.prompt == (4,)
        engine.submit([9], max_tokens=2).text()


def test_pages_are_fewer_than_all_slots_could_take(folder: Path) -> None:
    """A budget makes them so; texts wait for each other's pages, and are right."""
    file = LanguageFile.open(file_of("q8_0", folder))
    options: dict[str, Any] = {"slots": 8, "context": CONTEXT, "block": 24}
    whole = EngineSettings(file, **options)
    one = EngineSettings(file, **options | {"slots": 1})
    assert whole.pool.n_pages == 8 * 5
    page = whole.plan.regions["state"].nbytes // whole.pool.n_pages
    budget = whole.plan.total_nbytes - 31 * page
    few = EngineSettings(file, memory=budget, **options)
    assert few.pool.n_pages == 9
    assert few.plan.total_nbytes <= budget
    with pytest.raises(DoesNotFit):
        _ = EngineSettings(file, memory=one.plan.total_nbytes // 2, **options).pool
    requests = [(prompt_of(60, seed=k), {"max_tokens": 40, "seed": k}) for k in range(8)]
    with engine_of("q8_0", folder, memory=budget, slots=8) as engine:
        assert engine.plan.total_nbytes <= budget
        streams = [engine.submit(prompt, **sampling) for prompt, sampling in requests]  # type: ignore[arg-type]
        texts = [stream.text() for stream in streams]
        with pytest.raises(InvalidArgument, match="context holds 160"):
            engine.submit(prompt_of(161))
    with engine_of("q8_0", folder, slots=1) as engine:
        for (prompt, sampling), text in zip(requests, texts, strict=True):
            assert engine.submit(prompt, **sampling).text() == text  # type: ignore[arg-type]


def test_what_can_never_be_done_is_refused_at_once(engine: Engine) -> None:
    for wrong, error in (
        ([], InvalidArgument),
        ([0] * (CONTEXT + 1), InvalidArgument),
        ([320], BoundsError),
        ([-1], BoundsError),
        ([1.5], InvalidArgument),
    ):
        with pytest.raises(error):
            engine.submit(wrong)  # type: ignore[arg-type]
    for options in ({"logprobs": -1}, {"logprobs": 99}, {"temperature": -1.0}, {"max_tokens": 0}):
        with pytest.raises(InvalidArgument):
            engine.submit([1], **options)


def test_one_that_fails_fails_alone(engine: Engine) -> None:
    banned = dict.fromkeys(range(320), float("-inf"))
    others = [engine.submit([3, 4], max_tokens=6, seed=1) for _ in range(2)]
    with pytest.raises(RunFailed, match="banned"):
        engine.submit([3, 4], logit_bias=banned).text()
    assert len({other.text() for other in others}) == 1
    assert engine.stats().n_failed == 1


def test_a_step_that_fails_ends_its_texts_and_no_others(folder: Path) -> None:
    with engine_of("q8_0", folder, slots=2) as engine:
        text = engine.submit(prompt_of(70), max_tokens=5, seed=3).text()
        table = engine.batch._table
        table[...] = 10**6
        take = engine.batch._reach
        engine.batch._reach = lambda *given: None  # type: ignore[method-assign]
        with pytest.raises(IndexError):
            engine.submit(prompt_of(70), max_tokens=5, seed=3).text()
        engine.batch._reach = take  # type: ignore[method-assign]
        table[...] = 0
        stream = engine.submit(prompt_of(70), max_tokens=5, seed=3)
        *chunks, last = stream
        assert "".join(chunk.text for chunk in (*chunks, last)) == text
        assert last.stats is not None
        assert last.stats.reused_tokens == 0  # what the pages held is not known


def test_logprobs_are_those_of_the_logits(engine: Engine, folder: Path) -> None:
    prompt = prompt_of(12)
    [chunk] = engine.submit(prompt, max_tokens=1, logprobs=4, temperature=0)
    with arenite.load(file_of("q8_0", folder), context=CONTEXT) as model:
        logits = model.session().feed(prompt).astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum())
    best = np.argsort(-expected)[:4]
    assert [token for token, _ in chunk.top] == best.tolist()
    np.testing.assert_allclose([value for _, value in chunk.top], expected[best], rtol=1e-12)
    assert chunk.token == best[0]
    assert chunk.logprob == chunk.top[0][1]


def test_serving_allocates_nothing(folder: Path) -> None:
    with engine_of("q8_0", folder, slots=4) as engine:
        allocator = device.get("cpu")

        def serve(seed: int) -> None:
            lengths = (3, 50, 90, 20, 7, 33)
            streams = [engine.submit(prompt_of(n, seed), max_tokens=9, seed=n) for n in lengths]
            for stream in streams:
                stream.text()

        serve(0)
        before, arena = allocator.stats, loaded(engine.executable).binder.arena
        for seed in range(1, 6):
            serve(seed)
        assert allocator.stats == before
        assert loaded(engine.executable).binder.arena is arena


def test_closing_ends_all_texts(folder: Path) -> None:
    engine = engine_of("q8_0", folder, slots=1, context=128)
    streams = [engine.submit([5], max_tokens=100, logit_bias={2: -1e9}) for _ in range(3)]
    next(iter(streams[0]))
    engine.close()
    assert [list(stream)[-1].finish for stream in streams[1:]] == ["cancelled"] * 2
    with pytest.raises(RunFailed, match="closed"):
        engine.submit([5])
    with pytest.raises(RunFailed, match="closed"):
        engine.profile()
    engine.close()


def test_what_it_does_can_be_seen(engine: Engine) -> None:
    held, seen = threading.Event(), threading.Event()

    def listen(chunk: Chunk | BaseException) -> None:
        seen.set()
        held.wait()

    engine.submit(prompt_of(40, seed=9), max_tokens=3, listener=listen, logit_bias={2: -1e9})
    assert seen.wait(60)
    [slot] = [slot for slot in engine.stats().slots if slot is not None]
    assert (slot.state, slot.prompt_tokens, slot.generated_tokens) == ("writing", 40, 1)
    assert slot.read_tokens == 40
    assert len(slot.pages) == 2
    assert "1 of 4 slots" in repr(engine)
    held.set()
    engine.submit([7], max_tokens=2).text()
    assert "attention_pages" in str(engine.profile())
    seconds = engine.kernel_seconds()
    assert seconds.keys() == {kernel.name for kernel in engine.profile().kernels}
    assert all(took > 0 for took in seconds.values())
    stats = engine.stats()
    assert len(stats.first_token_seconds) >= 2
    assert 0 < stats.step_seconds < stats.busy_seconds


def test_who_waits_is_woken_once_a_step(engine: Engine) -> None:
    """After all chunks of the step were heard, however many listeners share a waker."""
    heard: list[Any] = []
    heard_when_woken: list[int] = []
    reached, gate, done = threading.Event(), threading.Event(), threading.Event()

    def hold(_: object) -> None:
        reached.set()
        gate.wait()

    def wake() -> None:
        heard_when_woken.append(len(heard))
        if sum(chunk.finish is not None for chunk in heard) == 4:
            done.set()

    engine.submit([5], max_tokens=1, listener=hold)
    assert reached.wait(30)
    goes_on = {2: -1e9}
    for token in range(4):  # all are there before the next step begins
        engine.submit([5, token], max_tokens=6, listener=heard.append, waker=wake,
                      logit_bias=goes_on)  # fmt: skip
    gate.set()
    assert done.wait(30)
    assert heard_when_woken == [4, 8, 12, 16, 20, 24]


def test_a_listener_that_fails_ends_its_own_text(engine: Engine) -> None:
    before = engine.stats().n_cancelled

    def listen(chunk: Chunk | BaseException) -> None:
        raise ValueError("gone")

    engine.submit([5, 6], max_tokens=100, listener=listen, logit_bias={2: -1e9})
    assert engine.submit([3, 4], max_tokens=6, seed=1).text()
    assert engine.stats().n_cancelled == before + 1


def test_a_stream_is_read_once(engine: Engine) -> None:
    stream = engine.submit([5, 6], max_tokens=2)
    assert len(list(stream)) == 2
    heard: list[Chunk | BaseException] = []
    for other in (stream, engine.submit([5, 6], max_tokens=2, listener=heard.append)):
        with pytest.raises(InvalidArgument, match="once"):
            other.text()


def test_a_listener_may_ask_for_a_profile(engine: Engine) -> None:
    """It is called on the thread that makes profiles, which can't wait for itself."""
    profiles = []

    def listen(chunk: Chunk | BaseException) -> None:
        profiles.append(engine.profile())

    engine.submit([5, 6], max_tokens=2, listener=listen)
    assert engine.submit([5, 6], max_tokens=4).text() is not None
    assert len(profiles) == 2


def test_clients_that_come_and_go_leave_nothing_behind(folder: Path) -> None:
    """Some read all, some leave, some never read, some ask for rubbish; each finished text is the
    one that its request gives alone."""
    with engine_of("q8_0", folder, slots=5, queue=4, block=16) as engine:
        finished: dict[int, list[str]] = {}

        def client(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(12):
                number = int(rng.integers(6))
                prompt = prompt_of(10 + 21 * number, seed=number % 3)
                way = rng.integers(5)
                try:
                    if way == 0:
                        with pytest.raises((InvalidArgument, BoundsError)):
                            engine.submit([10**6] * int(rng.integers(300)))
                        continue
                    stream = engine.submit(prompt, max_tokens=6 + number, seed=number)
                except Busy:
                    continue
                if way == 1:
                    stream.cancel()
                elif way == 2:
                    for _ in zip(stream, range(int(rng.integers(1, 4))), strict=False):
                        pass
                elif way > 2:
                    finished.setdefault(number, []).append(stream.text())

        clients = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        for number, texts in sorted(finished.items()):
            prompt = prompt_of(10 + 21 * number, seed=number % 3)
            alone = engine.submit(prompt, max_tokens=6 + number, seed=number).text()
            assert set(texts) == {alone}
        stats = engine.stats()
        assert stats.slots == (None,) * 5
        assert stats.n_waiting == 0
        assert stats.n_free_pages + stats.n_idle_pages == stats.n_pages
        assert stats.n_requests == stats.n_finished + stats.n_cancelled
        assert stats.n_failed == 0


def test_a_process_that_never_closes_its_engine_ends_well(folder: Path) -> None:
    code = (
        "from arenite.serve import Engine\n"
        f"engine = Engine({str(file_of('q8_0', folder))!r}, slots=2, context=160)\n"
        "stream = engine.submit([5], max_tokens=150, logit_bias={2: -1e9})\n"
        "print(next(iter(stream)).token is not None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_a_child_prepares_what_an_engine_needs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process no graph is built."""
    path = file_of("q8_0", folder)
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(child_process, "LEAST_TENSORS", len(LanguageFile.open(path).tensors))
    built: list[Recipe] = []
    monkeypatch.setattr(Recipe, "build", lambda recipe: built.append(recipe))
    with engine_of("q8_0", folder, slots=2) as engine:
        assert engine.submit([3, 4], max_tokens=6, seed=1).text()
    assert not built


def test_text_fits_a_schema(engine: Engine) -> None:
    pytest.importorskip("llguidance")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    options: dict[str, Any] = {"json_schema": schema, "seed": 4, "max_tokens": 120}
    others = [engine.submit([7, 8], max_tokens=30, seed=k) for k in range(2)]
    *chunks, last = engine.submit([5, 6], **options)
    if last.finish == "stop":
        assert isinstance(json.loads("".join(c.text for c in (*chunks, last)))["n"], int)
    assert all(other.text() for other in others)
    alone = engine.submit([5, 6], **options).text()
    assert alone == "".join(chunk.text for chunk in (*chunks, last))


def test_models_for_embeddings_are_refused(folder: Path) -> None:
    path = folder / "bert.gguf"
    write_model(path, TINY["bert"])
    with pytest.raises(NotSupported, match="embeddings"):
        Engine(path)


def test_a_forked_process_has_no_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread stays behind: nobody would ever answer."""
    stream = engine.submit([5, 6], max_tokens=1)
    with monkeypatch.context() as patched:
        patched.setattr("os.getpid", lambda: -1)
        with pytest.raises(RunFailed, match="forked"):
            engine.submit([5, 6], max_tokens=1)
        with pytest.raises(RunFailed, match="forked"):
            stream.text()
    assert len(list(stream)) == 1
