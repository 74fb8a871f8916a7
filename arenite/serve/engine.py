"""Engine: many requests at once over one planned program, each as if it were alone.

    with Engine("model.gguf", slots=32, context=1024) as engine:
        stream = engine.submit("Once upon a time", max_tokens=50, seed=1)
        for chunk in stream:
            print(chunk.text, end="", flush=True)

One thread runs the program step by step; any thread may submit, cancel, and ask for `stats()`. All
memory is planned before the first request: one that does not fit now waits, in a queue of a given
length; Busy where that is full. A request that never fits is refused at once. The same request
with the same seed gives the same text whatever else runs, came before, or is in the cache.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from arenite import locks
from arenite.device.cpu import give_back_heap
from arenite.errors import AreniteError, BoundsError, Busy, InvalidArgument, RunFailed
from arenite.frontends.language import LanguageFile
from arenite.generate.bounds import whole
from arenite.generate.budget import DEFAULT_BLOCK
from arenite.generate.child_process import prepare_in_child
from arenite.generate.continuation import Continuation
from arenite.generate.generation import Stats, prompt_tokens
from arenite.generate.model import chat_tokens, tokenizer_of
from arenite.generate.sampler import logprobs_of
from arenite.generate.sampling import Sampling, SamplingOptions
from arenite.program.closing import Closing
from arenite.serve.batch import Batch, Text
from arenite.serve.settings import DEFAULT_SLOTS, EngineSettings
from arenite.serve.stats import Counts, EngineStats, SlotStats
from arenite.serve.stream import Chunk, Listener, Stream, Waker, hand_out, nobody

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.memory.plan import MemoryPlan
    from arenite.runtime.profile import Profile

T = TypeVar("T")

#: Requests that wait for a slot, at the most.
DEFAULT_QUEUE = 64
#: Seconds without a text after which memory that is not in use goes back to the system.
IDLE_SECONDS = 1.0
#: Likeliest tokens that are told beside the chosen one, at the most.
MOST_LOGPROBS = 20


class Request:
    """A text with the stream that it goes to."""

    def __init__(self, number: int, text: Text, stream: Stream, n_logprobs: int | None) -> None:
        self.number, self.text, self.stream = number, text, stream
        self.n_logprobs = n_logprobs
        self.submitted = perf_counter()
        self.first_token: float | None = None

    def stats(self) -> Stats:
        made, now = self.text.continuation, perf_counter()
        begun = now if self.first_token is None else self.first_token
        return Stats(
            made.n_prompt,
            self.text.n_reused,
            made.n_generated,
            begun - self.submitted,
            now - begun,
            made.sampler.seed,
        )


class Engine(Closing):
    """`slots` texts at once, each of up to `context` tokens, and `queue` that wait. `memory` is all
    that it may take: fewer pages of keys and values are then shared by the slots. `block` tokens
    of prompts are read in one step, `kv` is what keys and values are kept as."""

    def __init__(
        self,
        model: str | os.PathLike[str] | LanguageFile,
        *,
        slots: int = DEFAULT_SLOTS,
        context: int | None = None,
        memory: int | str | None = None,
        queue: int = DEFAULT_QUEUE,
        kv: str = "float16",
        block: int = DEFAULT_BLOCK,
        device: str = "cpu",
        threads: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.file = model if isinstance(model, LanguageFile) else LanguageFile.open(model)
        self.queue = whole("queue", queue, 0)
        options: dict[str, Any] = {
            "slots": slots,
            "context": context,
            "memory": memory,
            "kv": kv,
            "block": block,
            "device": device,
        }
        self.settings = EngineSettings(self.file, **options)
        prepare_in_child(self.file, options, on_progress, EngineSettings)
        self.tokenizer = tokenizer_of(self.file)
        self.executable = self.settings.loaded(threads, on_progress)
        self.batch = Batch(self.settings, self.executable)
        self._counts = Counts()
        self._changed = threading.Condition(locks.reentrant())
        self._waiting: deque[Request] = deque()
        self._active: dict[Text, Request] = {}
        self._asked: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._is_closing = False
        self._process = os.getpid()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="arenite engine", daemon=True)
        self._thread.start()
        # The thread is not to be in native code when Python ends.
        atexit.register(self.close)

    @property
    def plan(self) -> MemoryPlan:
        """Every byte: weights, pages of keys and values, work, inputs and outputs."""
        return self.executable.plan

    @property
    def context(self) -> int:
        """Tokens of a text at the most."""
        return self.settings.context

    # Requests, from any thread.

    def submit(
        self,
        prompt: str | Sequence[int],
        *,
        logprobs: int | None = None,
        listener: Listener | None = None,
        waker: Waker = nobody,
        **sampling: Unpack[SamplingOptions],
    ) -> Stream:
        """Text that goes on from a prompt; for options see `Sampling`. `logprobs`: with the
        logarithm of each token's probability, and those of so many of the likeliest. A `listener`
        is called with each chunk, on the engine's thread, and nothing is left to iterate over; the
        `waker` after it, once for all listeners of a step that share it."""
        given = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        tokens = prompt_tokens(given, self.context)
        n_known = self.file.description.n_tokens
        wrong = [token for token in tokens if not 0 <= token < n_known]
        if wrong:
            raise BoundsError(f"token {wrong[0]} is not within 0..{n_known - 1}")
        if logprobs is not None:
            logprobs = whole("logprobs", logprobs, 0, MOST_LOGPROBS)
        chosen = Sampling(**sampling)
        continuation = Continuation([*tokens], chosen, self.tokenizer, self.context)
        text = Text(continuation, self._most_tokens(tokens, chosen), self.settings.pool.page)
        stream = Stream(tokens, listener, waker)
        with self._changed:
            self._check_open()
            if len(self._active) + len(self._waiting) >= self.settings.slots + self.queue:
                self._counts.n_refused += 1
                raise Busy(
                    f"{len(self._active)} texts are in the making and {len(self._waiting)} wait, "
                    f"of {self.queue} at the most; try again later"
                )
            self._counts.n_requests += 1
            self._waiting.append(Request(self._counts.n_requests, text, stream, logprobs))
            self._changed.notify()
        return stream

    def chat_tokens(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """A conversation as the model reads it, up to where its answer begins, with the tools that
        it may call."""
        return chat_tokens(messages, self.tokenizer, self.file.path, tools)

    def _most_tokens(self, tokens: Sequence[int], sampling: Sampling) -> int:
        """Tokens of a text that are read, at the most; InvalidArgument where no pages hold them."""
        most = self.context
        if sampling.max_tokens is not None:
            # The last one is told, not read.
            most = min(most, len(tokens) + sampling.max_tokens - 1)
        pool = self.settings.pool
        if most > pool.n_pages * pool.page:
            raise InvalidArgument(
                f"a prompt of {len(tokens)} tokens and up to {most + 1 - len(tokens)} behind it "
                f"don't fit the {pool.n_pages * pool.page} tokens that there is memory for; ask "
                "for fewer, or give the engine more memory"
            )
        return most

    def stats(self) -> EngineStats:
        """What it does at the moment, and what it has done."""
        with self._changed:
            counts, pages = self._counts, self.batch.pages
            slots: list[SlotStats | None] = [None] * self.settings.slots
            for text, request in self._active.items():
                made, lease = text.continuation, text.lease
                slots[text.slot] = SlotStats(
                    number=text.slot,
                    text=request.number,
                    state="writing" if text.is_written else "reading",
                    prompt_tokens=made.n_prompt,
                    reused_tokens=text.n_reused,
                    read_tokens=text.n_read,
                    generated_tokens=made.n_generated,
                    pages=tuple(lease.pages),
                    shared_pages=text.n_reused // pages.page,
                )
            prompt_rate, rate = counts.rates()
            return EngineStats(
                slots=tuple(slots),
                n_waiting=len(self._waiting),
                n_pages=pages.n_pages,
                n_free_pages=pages.n_free,
                n_idle_pages=pages.n_idle,
                page_tokens=pages.page,
                n_requests=counts.n_requests,
                n_finished=counts.n_finished,
                n_cancelled=counts.n_cancelled,
                n_failed=counts.n_failed,
                n_refused=counts.n_refused,
                prompt_tokens=counts.prompt_tokens,
                reused_tokens=counts.reused_tokens,
                generated_tokens=counts.generated_tokens,
                n_steps=counts.n_steps,
                step_seconds=self.batch.run_seconds,
                busy_seconds=counts.busy_seconds,
                tokens_a_second=rate,
                prompt_tokens_a_second=prompt_rate,
                first_token_seconds=tuple(counts.first_token_seconds),
            )

    def profile(self) -> Profile:
        """A table of the kernels of a step, with what each costs: the last one, run once more. The
        first one measures what the machine can do, in memory beside the plan."""
        return self._between_steps(self.batch.profile)

    def kernel_seconds(self) -> dict[str, float]:
        """What each kernel of a step took, by its name: the last one, run once more."""
        return self._between_steps(self.batch.kernel_seconds)

    def _between_steps(self, work: Callable[[], T]) -> T:
        """What the engine's thread makes of it."""
        if threading.current_thread() is self._thread:  # a listener, between two steps
            return work()
        wanted: Future[Any] = Future()
        with self._changed:
            self._check_open()
            self._asked.append((wanted, work))
            self._changed.notify()
        made: T = wanted.result()
        return made

    def close(self) -> None:
        """End all texts, as cancelled ones, and give every byte back to the system."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        atexit.unregister(self.close)
        if self._thread is not threading.current_thread():
            self._thread.join()
        self.executable.close()

    def _check_open(self) -> None:
        if self._failure is not None:
            raise RunFailed(f"this engine has failed: {self._failure}") from self._failure
        if self._is_closing:
            raise RunFailed("this engine was closed")
        if self._process != os.getpid():
            raise RunFailed("this engine runs in the process that was forked; make one here")

    # The engine's thread.

    @cached_property
    def _room(self) -> NDArray[np.float64]:
        return np.empty(self.tokenizer.n_tokens)

    def _run(self) -> None:
        try:
            while self._admitted():
                started = perf_counter()
                self._step()
                self._counts.busy_seconds += perf_counter() - started
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._end_all()

    def _admitted(self) -> bool:
        """Let texts in and out; wait where there is nothing to do. False where it is closed."""
        with self._changed:
            while not self._is_closing:
                for one in [*self._active.values(), *self._waiting]:
                    if one.stream.is_cancelled:
                        self._end(one)
                while self._waiting and self.batch.admit(self._waiting[0].text):
                    request = self._waiting.popleft()
                    self._active[request.text] = request
                if self._active or self._asked:
                    return True
                if not self._changed.wait(IDLE_SECONDS):
                    give_back_heap()  # what many texts needed at once
                    self._changed.wait()
            return False

    def _step(self) -> None:
        """Read a block of tokens, and hand out what they give."""
        counts = self._counts
        before = sum(text.n_read - text.n_reused for text in self.batch.texts)
        try:
            ready = self.batch.step()
        except AreniteError as error:
            self._fail_all(error)
            return
        read = sum(text.n_read - text.n_reused for text in self.batch.texts) - before
        n_written = sum(self._active[text].first_token is not None for text, _ in ready)
        made: list[tuple[Stream, Chunk | BaseException]] = []
        begun = []
        for text, logits in ready:
            request = self._active[text]
            if request.first_token is None:
                request.first_token = perf_counter()
                begun.append(request)
            try:
                chunk = self._chunk(request, logits)
            except Exception as error:  # of this text alone: a grammar that leads nowhere
                counts.n_failed += 1
                self._release(request)
                # Its frames hold the text and all that its grammar has made.
                made.append((request.stream, error.with_traceback(None)))
                continue
            if chunk.finish:
                counts.n_finished += 1
                self._release(request)
            made.append((request.stream, chunk))
        with self._changed:
            counts.stepped(read - n_written, sum(isinstance(one, Chunk) for _, one in made))
            for request in begun:
                counts.begun(request.stats())
        hand_out(made)
        self._answer()

    def _chunk(self, request: Request, logits: NDArray[np.float32]) -> Chunk:
        made = request.text.continuation
        token, text = made.advance(logits)
        logprob: float | None = None
        top: tuple[tuple[int, float], ...] = ()
        if request.n_logprobs is not None:
            known = logits[: self.tokenizer.n_tokens]
            logprob, top = logprobs_of(known, token, request.n_logprobs, self._room)
        stats = request.stats() if made.finish else None
        return Chunk(token, text, logprob, top, made.finish, stats)

    def _end(self, request: Request) -> None:
        """End a text that somebody has cancelled."""
        self._counts.n_cancelled += 1
        if request.text in self._active:
            self._release(request)
        else:
            self._waiting.remove(request)
        text = request.text.continuation.end("cancelled")
        last = Chunk(None, text, finish="cancelled", stats=request.stats())
        hand_out([(request.stream, last)])

    def _release(self, request: Request) -> None:
        with self._changed:
            del self._active[request.text]
            self.batch.release(request.text)

    def _fail_all(self, error: AreniteError) -> None:
        """A step has failed: the texts in it end with the error, and pages hold nothing known."""
        with self._changed:
            failed = [*self._active.values()]
            self._active.clear()
            self.batch.forget()
            self.executable.reset()
        self._counts.n_failed += len(failed)
        hand_out([(request.stream, error) for request in failed])

    def _answer(self) -> None:
        with self._changed:
            asked, self._asked = self._asked, []
        for wanted, work in asked:
            try:
                wanted.set_result(work())
            except Exception as error:
                wanted.set_exception(error)

    def _end_all(self) -> None:
        with self._changed:
            for request in [*self._active.values(), *self._waiting]:
                if self._failure is not None:
                    error = RunFailed(f"the engine has failed: {self._failure}")
                    hand_out([(request.stream, error)])
                else:
                    self._end(request)
            for wanted, _ in self._asked:
                with suppress(Exception):
                    wanted.set_exception(RunFailed("the engine was closed"))

    def __repr__(self) -> str:
        return (
            f"<Engine of {self.file.description.name}: {len(self._active)} of "
            f"{self.settings.slots} slots in use, {len(self._waiting)} waiting>"
        )
