"""LanguageModel: a model file that reads and writes text, in memory that is planned.

One program reads a block of tokens (one, while it writes) over one arena: packed weights, keys and
values of the context, work. Sizes of blocks are bound, not compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from arenite import locks
from arenite.device.cpu import give_back_heap
from arenite.dtype import BY_NAME, DType
from arenite.errors import InvalidArgument, NotCompiled, NotSupported, printable
from arenite.frontends.language import LanguageFile
from arenite.generate.bounds import whole
from arenite.generate.budget import DEFAULT_BLOCK, check_fits, chosen_context
from arenite.generate.session import Logits, Session, n_shared
from arenite.generate.slots import Slot, Slots
from arenite.memory.plan import HOST
from arenite.pipeline import compile_graph, plan_graph, saved_program
from arenite.pipeline.interface_cache import interface_of
from arenite.program.backend import backend_of
from arenite.program.closing import Closing
from arenite.program.options import USUAL, Options, parse_nbytes
from arenite.runtime.executable import Executable

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.generate.generation import Piece
    from arenite.generate.sampling import SamplingOptions
    from arenite.generate.tokenizer import Tokenizer
    from arenite.ir.graph import Graph
    from arenite.ir.interface import GraphInterface
    from arenite.memory.plan import MemoryPlan

#: What keys and values may be kept as.
KV_DTYPES = ("float16", "int8", "float32")

#: Texts that are kept at once, at the most.
MAX_SESSIONS = 4096

#: Long work that is told of, with how much of it is done.
COMPILING, PACKING = "compiling kernels", "packing weights"


class Settings:
    """What a model is loaded with, all of it decided; no weight has been read."""

    def __init__(
        self,
        file: LanguageFile,
        *,
        context: int | None = None,
        memory: int | str | None = None,
        kv: str = "float16",
        block: int = DEFAULT_BLOCK,
        sessions: int = 1,
        device: str = "cpu",
    ) -> None:
        self.file = file
        self.memory = parse_nbytes(memory)
        self.options = Options(device=device)
        #: Whether the program runs in memory that is not the host's.
        self.offloaded = backend_of(device).memory != HOST  # what there is none of is told now
        self.kv = _kv_dtype(kv)
        self.sessions = whole("sessions", sessions, 1, MAX_SESSIONS)
        if file.is_embedding and self.sessions > 1:
            raise InvalidArgument(
                f"sessions={sessions} was asked for; {file.path} is a model for embeddings, which "
                "keeps no text from one call to the next"
            )
        block = whole("block", block, 1)
        if context is not None:
            context = whole("context", context)
        elif file.is_embedding:
            context = file.description.context
        else:
            with self.refusals():
                context = chosen_context(
                    file,
                    self.memory,
                    self.kv,
                    block,
                    self.sessions,
                    self.options,
                    self.offloaded,
                )
        if not 1 <= context <= file.description.context:
            raise InvalidArgument(
                f"a context of {context} tokens was asked for; {file.path} was made for up to "
                f"{file.description.context}"
            )
        self.context = context
        self.block = context if file.is_embedding else min(block, context)

    @cached_property
    def interface(self) -> GraphInterface:
        """What a run needs to know of the graph; the graph is not built where it was once."""
        recipe = self.file.recipe(
            context=self.context,
            block=self.block,
            kv=self.kv,
            sessions=self.sessions,
            offloaded=self.offloaded,
        )
        return interface_of(recipe)

    @property
    def graph(self) -> Graph:
        """The graph of the model for these settings."""
        return self.interface.graph

    @cached_property
    def plan(self) -> MemoryPlan:
        """Every byte that will be needed; DoesNotFit where that is over the budget."""
        with self.refusals():
            return self.checked(plan_graph(self.interface, self.options))

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Around what plans or compiles the model: what its device can't do, said of the model."""
        try:
            yield
        except (NotCompiled, NotSupported) as problem:
            if self.options.device == USUAL.device:
                raise
            raise NotSupported(
                f"{self.file.path} can't run on device {self.options.device!r} yet: {problem}; "
                f"load it with device={USUAL.device!r}"
            ) from problem

    def arguments(self, tokens: Sequence[int], position: int) -> list[NDArray[Any]]:
        """What the program is called with for these tokens, the first of them at a position."""
        index = np.int32 if self.offloaded else np.int64
        given = [np.array(tokens, index)]
        if not self.file.is_embedding:
            given.append(np.array(position, index))
            if self.offloaded:
                given.append(np.empty((position + len(tokens), 0), np.uint8))
        return given

    def program(
        self, threads: int | None = None, on_progress: OnProgress | None = None
    ) -> Executable:
        """The program, from the cache or compiled now; no weight has been read."""
        tell = on_progress or (lambda what, done, total: None)
        tell("planning", 0, None)
        executable = saved_program(self.interface, self.options, threads=threads)
        if executable is not None:
            self.checked(executable.plan)
        else:
            if self.memory is not None:
                _ = self.plan
            with self.refusals():
                executable = compile_graph(
                    self.interface,
                    self.options,
                    threads=threads,
                    on_progress=lambda done, total: tell(COMPILING, done, total),
                )
        return executable

    def loaded(
        self, threads: int | None = None, on_progress: OnProgress | None = None
    ) -> Executable:
        """The program with its weights packed."""
        tell = on_progress or (lambda what, done, total: None)
        executable = self.program(threads, on_progress)
        try:
            executable.pack(lambda done, total: tell(PACKING, done, total))
        except BaseException:
            executable.close()
            raise
        return executable

    def checked(self, plan: MemoryPlan) -> MemoryPlan:
        """The plan; DoesNotFit where it is over the budget."""
        check_fits(self.file, plan, self.memory, self.context, self.kv)
        return plan


class LanguageModel(Closing):
    """A model that reads and writes text, planned and loaded by `arenite.load`. `with` it, or
    `close()` it, to give every byte back."""

    def __init__(
        self,
        settings: Settings,
        *,
        threads: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.settings = settings
        self.file = settings.file
        self.executable = settings.loaded(threads, on_progress)
        self._slots = Slots(settings.sessions)
        #: Those that `generate` and `chat` go on with, so that what they share is kept.
        self._idle: list[Session] = []
        self._turn = locks.Turn("this model")

    @property
    def name(self) -> str:
        """What its file calls it."""
        return self.file.description.name

    @property
    def context(self) -> int:
        """Tokens of a text at the most."""
        return self.settings.context

    @property
    def plan(self) -> MemoryPlan:
        """Every byte: weights, states, work, inputs and outputs."""
        return self.executable.plan

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Texts to tokens and back; read when it is asked for first."""
        return tokenizer_of(self.file)

    # Text.

    def session(self) -> Session:
        """A new text."""
        self._need_text()
        return Session(self)

    def generate(
        self, prompt: str | Sequence[int], **sampling: Unpack[SamplingOptions]
    ) -> Iterator[str]:
        """Text that goes on from the prompt, piece by piece; for options see `Sampling`. Calls may
        overlap: each is a text of its own (`sessions` of `arenite.load`).

            for piece in lm.generate("Once upon a time", temperature=0.7, max_tokens=100):
                print(piece, end="", flush=True)
        """
        tokens = self.prompt_of(prompt)
        return (piece.text for piece in self.pieces(tokens, **sampling) if piece.text)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], **sampling: Unpack[SamplingOptions]
    ) -> Iterator[str]:
        """The answer to a conversation, piece by piece; for options see `Sampling`. A message has
        a "role" (system, user, assistant) and its "content".

            talk = [{"role": "user", "content": "Why is the sky blue?"}]
            answer = "".join(lm.chat(talk, seed=1))
        """
        tokens = self.chat_tokens(messages)
        return (piece.text for piece in self.pieces(tokens, **sampling) if piece.text)

    def chat_tokens(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """A conversation as the model reads it, up to where its answer begins."""
        return chat_tokens(messages, self.tokenizer, self.file.path)

    def prompt_of(self, prompt: str | Sequence[int]) -> Sequence[int]:
        """A text as tokens; tokens as they are."""
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt

    def pieces(
        self,
        tokens: Sequence[int],
        *,
        cancelled: Callable[[], bool] = lambda: False,
        **sampling: Unpack[SamplingOptions],
    ) -> Iterator[Piece]:
        """Text after tokens, with why it ended and what it took in the last piece. `cancelled` is
        asked between tokens whether to stop."""
        from arenite.generate.generation import prompt_tokens
        from arenite.generate.sampling import Sampling

        self._need_text()
        Sampling(**sampling)  # what is wrong is told now, not with the first piece
        prompt = prompt_tokens(tokens, self.context)

        def made() -> Iterator[Piece]:
            session = self._session_for(prompt)
            try:
                yield from session.pieces(prompt, cancelled=cancelled, **sampling)
            finally:
                self._idle.append(session)
                del self._idle[: -self.settings.sessions]

        return made()

    def _session_for(self, prompt: Sequence[int]) -> Session:
        """Of the sessions that no call uses the one that begins most like the prompt; a new one
        where they have nothing in common and there is room for more, or none is left."""
        idle = [*self._idle]
        shared = [n_shared(session.tokens, prompt) for session in idle]
        if idle and (max(shared) > 0 or len(idle) >= self.settings.sessions):
            best = idle[shared.index(max(shared))]
            with suppress(ValueError):  # another thread was quicker
                self._idle.remove(best)
                return best
        return self.session()

    def claiming(self, session: Session, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """The pieces, made while the session keeps its place among the states."""
        with self._slots.claimed(session):
            yield from pieces

    @contextmanager
    def slot_of(self, session: Session) -> Iterator[Slot]:
        """Alone with the model, whose states are those of the session's slot."""
        with self._turn.take():
            self._recover()
            slot = self._slots.obtain(session)
            self.executable.use_state_set(slot.number)
            try:
                yield slot
            finally:
                if self.executable.failure is not None:
                    self._slots.forget()

    def advance(self, session: Session, before: Sequence[int], new: Sequence[int]) -> Logits:
        """The logits after the tokens that a session was fed before and new ones; those that the
        states do not hold are computed."""
        with self.slot_of(session) as slot:
            slot.n_advances += 1
            held = slot.tokens
            known = n_shared(held, before)
            del held[known:]
            pending = [*before[known:], *new]
            logits = np.empty(0, np.float32)
            while pending:
                block = pending[: self.settings.block]
                [rows] = self.executable(*self.settings.arguments(block, len(held)))
                logits = rows[-1]
                held += block
                del pending[: len(block)]
            return logits

    # Embeddings.

    def embed(self, texts: str | Sequence[str], *, truncate: bool = False) -> NDArray[np.float32]:
        """One row of length 1 for each text. A text longer than the context is refused, or with
        `truncate` cut to it."""
        self._need_embeddings()
        given = (
            list(texts) if isinstance(texts, Sequence) and not isinstance(texts, str) else [texts]
        )
        encoded = [self.tokenizer.encode(text) for text in given]
        return self.embed_tokens(encoded, truncate=truncate)

    def embed_tokens(
        self, texts: Sequence[Sequence[int]], *, truncate: bool = False
    ) -> NDArray[np.float32]:
        """`embed` for texts that are tokens already."""
        self._need_embeddings()
        if not truncate:
            self.check_lengths(texts)
        rows = [self._embedded(list(tokens)) for tokens in texts]
        return np.concatenate(rows) if rows else np.empty((0, self.file.description.width), "f4")

    def check_lengths(self, texts: Sequence[Sequence[int]]) -> None:
        """InvalidArgument where a text, given as tokens, is longer than the context."""
        for number, tokens in enumerate(texts):
            if len(tokens) > self.context:
                raise InvalidArgument(
                    f"text {number} of {len(texts)} has {len(tokens)} tokens and the context holds "
                    f"{self.context}; cut it into parts, or pass truncate=True to embed what its "
                    "first tokens say"
                )

    def _embedded(self, tokens: list[int]) -> NDArray[np.float32]:
        if len(tokens) > self.context:
            # The last token ends every text.
            tokens = [*tokens[: self.context - 1], tokens[-1]]
        with self._turn.take():
            self._recover()
            [row] = self.executable(*self.settings.arguments(tokens, 0))
        return row

    def _recover(self) -> None:
        """After a run that failed, and in a process that was forked while another thread fed this
        model: what that thread was computing is not here, and what the states hold is not known."""
        if self._turn.was_cut_short:
            self._turn.was_cut_short = False
            self._slots.forget()
            self.executable.reset()
        elif self.executable.failure is not None:
            self.executable.reset()

    def _need_embeddings(self) -> None:
        if not self.file.is_embedding:
            raise NotSupported(
                f"{self.file.path} writes text; embed takes a model for embeddings, BERT for one"
            )

    def _need_text(self) -> None:
        if self.file.is_embedding:
            raise NotSupported(f"{self.file.path} is a model for embeddings: use embed")

    def cancel(self) -> None:
        """End the run in progress, from another thread."""
        self.executable.cancel()

    def close(self) -> None:
        self.executable.close()
        vars(self).pop("tokenizer", None)  # the process that runs it ends with it

    def __repr__(self) -> str:
        name = printable(f"{self.name}: {self.file.path}")
        return f"<LanguageModel {name}, context {self.context}>"


def chat_tokens(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: Tokenizer,
    path: str,
    tools: Sequence[Mapping[str, Any]] = (),
) -> list[int]:
    """A conversation as the model of a file reads it, with the tools that it may call."""
    template = tokenizer.chat_template
    if template is None:
        raise NotSupported(f"{path} has no chat template; use generate with a prompt of your own")
    return template.encode(messages, tokenizer, variables={"tools": list(tools) or None})


def tokenizer_of(file: LanguageFile) -> Tokenizer:
    """The tokenizer of a model, read from its file or folder."""
    from arenite.generate.tokenizer import Tokenizer

    if file.gguf is not None:
        result = Tokenizer.of_gguf(file.gguf.metadata)
        file.gguf.drop_headers()
    else:
        folder = file.path if os.path.isdir(file.path) else os.path.dirname(file.path)
        result = Tokenizer.of_folder(folder)
    give_back_heap()  # of what it was made from
    return result


def _kv_dtype(name: str) -> DType:
    if name not in KV_DTYPES:
        known = ", ".join(KV_DTYPES)
        raise InvalidArgument(f"keys and values can be kept as {known}; {name!r} is none of these")
    return BY_NAME[name]
