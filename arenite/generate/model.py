"""LanguageModel: a model file that reads and writes text, in memory that is planned.

One program reads a block of tokens (one, while it writes) over one arena: packed weights, keys and
values of the context, work. Sizes of blocks are bound, not compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite import locks
from arenite.device.cpu import give_back_heap
from arenite.dtype import BY_NAME, DType
from arenite.errors import InvalidArgument, NotSupported
from arenite.frontends.language import LanguageFile
from arenite.generate.bounds import whole
from arenite.generate.budget import DEFAULT_BLOCK, check_fits, chosen_context
from arenite.generate.session import Logits, Session, n_shared
from arenite.memory.amounts import parse_nbytes
from arenite.pipeline import compile_graph, plan_graph, saved_program
from arenite.pipeline.outlines import outline_of
from arenite.runtime.closing import Closing
from arenite.runtime.executable import Executable

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.generate.generation import Piece
    from arenite.generate.tokenizer import Tokenizer
    from arenite.ir.graph import Graph
    from arenite.ir.outline import Outline
    from arenite.memory.plan import MemoryPlan

#: What keys and values may be kept as.
KV_DTYPES = ("float16", "int8", "float32")

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
    ) -> None:
        self.file = file
        self.memory = parse_nbytes(memory)
        self.kv = _kv_dtype(kv)
        block = whole("block", block, 1)
        if context is not None:
            context = whole("context", context)
        elif file.is_embedding:
            context = file.description.context
        else:
            context = chosen_context(file, self.memory, self.kv, block)
        if not 1 <= context <= file.description.context:
            raise InvalidArgument(
                f"a context of {context} tokens was asked for; {file.path} was made for up to "
                f"{file.description.context}"
            )
        self.context = context
        self.block = context if file.is_embedding else min(block, context)

    @cached_property
    def outline(self) -> Outline:
        """What a run needs to know of the graph; the graph is not built where it was once."""
        return outline_of(self.file.recipe(context=self.context, block=self.block, kv=self.kv))

    @property
    def graph(self) -> Graph:
        return self.outline.graph

    @cached_property
    def plan(self) -> MemoryPlan:
        """Every byte that will be needed; DoesNotFit where that is over the budget."""
        return self.checked(plan_graph(self.outline))

    def checked(self, plan: MemoryPlan) -> MemoryPlan:
        """The plan; DoesNotFit where it is over the budget."""
        check_fits(self.file, plan, self.memory, self.context, self.kv)
        return plan


class LanguageModel(Closing):
    """Made by `arenite.load`. `with` it, or `close()` it, to give every byte back."""

    def __init__(
        self,
        settings: Settings,
        *,
        threads: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.settings = settings
        self.file = settings.file
        tell = on_progress or (lambda what, done, total: None)
        tell("planning", 0, None)
        found = saved_program(settings.outline, threads=threads)
        if found is not None:
            settings.checked(found.plan)
        else:
            if settings.memory is not None:
                _ = settings.plan
            found = compile_graph(
                settings.outline,
                threads=threads,
                on_progress=lambda done, total: tell(COMPILING, done, total),
            )
        self.executable: Executable = found
        try:
            self.executable.pack(lambda done, total: tell(PACKING, done, total))
        except BaseException:
            self.executable.close()
            raise
        #: What the states hold: keys and values of these tokens.
        self._held: list[int] = []
        self._turn = locks.Turn("this model")

    @property
    def name(self) -> str:
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
        from arenite.generate.tokenizer import Tokenizer

        if self.file.gguf is not None:
            made = Tokenizer.of_gguf(self.file.gguf.metadata)
            self.file.gguf.drop_headers()
        else:
            path = self.file.path
            made = Tokenizer.of_folder(path if os.path.isdir(path) else os.path.dirname(path))
        give_back_heap()  # of what it was made from
        return made

    # Text.

    def session(self) -> Session:
        """A new text."""
        self._need_text()
        return Session(self)

    def generate(self, prompt: str | Sequence[int], **sampling: Any) -> Iterator[str]:
        """Text that goes on from the prompt, piece by piece; for options see `Sampling`."""
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        return (piece.text for piece in self.pieces(tokens, **sampling) if piece.text)

    def chat(self, messages: Sequence[Mapping[str, Any]], **sampling: Any) -> Iterator[str]:
        """The answer to a conversation, piece by piece; for options see `Sampling`. A message has
        a "role" (system, user, assistant) and its "content"."""
        tokens = self.chat_tokens(messages)
        return (piece.text for piece in self.pieces(tokens, **sampling) if piece.text)

    def chat_tokens(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """A conversation as the model reads it, up to where its answer begins."""
        template = self.tokenizer.chat_template
        if template is None:
            raise NotSupported(
                f"{self.file.path} has no chat template; use generate with a prompt of your own"
            )
        return template.encode(messages, self.tokenizer)

    def pieces(
        self,
        tokens: Sequence[int],
        *,
        cancelled: Callable[[], bool] = lambda: False,
        **sampling: Any,
    ) -> Iterator[Piece]:
        """Text after tokens, with why it ended and what it took in the last piece. `cancelled` is
        asked between tokens whether to stop."""
        from arenite.generate.generation import generate
        from arenite.generate.sampling import Sampling

        chosen = Sampling(**sampling)
        return generate(self._last_session, tokens, chosen, self.tokenizer, cancelled=cancelled)

    @cached_property
    def _last_session(self) -> Session:
        """The one that `generate` and `chat` go on with, so that what they share is kept."""
        return self.session()

    def advance(self, before: Sequence[int], new: Sequence[int]) -> Logits:
        """The logits after tokens that were fed and new ones, of which those the states do not
        hold are computed."""
        with self._turn.take():
            self._recover()
            held = self._held
            known = n_shared(held, before)
            del held[known:]
            pending = [*before[known:], *new]
            logits = np.empty(0, np.float32)
            while pending:
                block = pending[: self.settings.block]
                position = np.int64(len(held))
                [rows] = self.executable(np.array(block, np.int64), position)
                logits = rows[-1]
                held += block
                del pending[: len(block)]
            return logits

    # Embeddings.

    def embed(self, texts: str | Sequence[str], *, truncate: bool = False) -> NDArray[np.float32]:
        """One row of length 1 for each text. A text longer than the context is refused, or with
        `truncate` cut to it."""
        if not self.file.is_embedding:
            raise NotSupported(
                f"{self.file.path} writes text; embed takes a model for embeddings, BERT for one"
            )
        given = (
            list(texts) if isinstance(texts, Sequence) and not isinstance(texts, str) else [texts]
        )
        encoded = [self.tokenizer.encode(text) for text in given]
        for number, tokens in enumerate(encoded):
            if len(tokens) > self.context and not truncate:
                raise InvalidArgument(
                    f"text {number} of {len(given)} has {len(tokens)} tokens and the context holds "
                    f"{self.context}; cut it into parts, or pass truncate=True to embed what its "
                    "first tokens say"
                )
        rows = [self._embedded(tokens) for tokens in encoded]
        return np.concatenate(rows) if rows else np.empty((0, self.file.description.width), "f4")

    def _embedded(self, tokens: list[int]) -> NDArray[np.float32]:
        if len(tokens) > self.context:
            # The last token ends every text.
            tokens = [*tokens[: self.context - 1], tokens[-1]]
        with self._turn.take():
            self._recover()
            [row] = self.executable(np.array(tokens, np.int64))
        return row

    def _recover(self) -> None:
        """In a process that was forked while another thread fed this model: what that thread was
        computing is not here, and what the states hold is not known."""
        if self._turn.was_cut_short:
            self._turn.was_cut_short = False
            self._held.clear()
            self.executable.reset()

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
        return f"<LanguageModel {self.name}: {self.file.path}, context {self.context}>"


def _kv_dtype(name: str) -> DType:
    if name not in KV_DTYPES:
        known = ", ".join(KV_DTYPES)
        raise InvalidArgument(f"keys and values can be kept as {known}; {name!r} is none of these")
    return BY_NAME[name]
