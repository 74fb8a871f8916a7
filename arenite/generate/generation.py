"""generate: a prompt's tokens in, pieces of text out, until something ends them.

What the session already holds of the prompt is kept and only the rest is fed. Text is handed out
as soon as it is certain. The last piece says why the text ended and what it took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from arenite.errors import InvalidArgument, RunCancelled
from arenite.generate.continuation import Continuation, Finish
from arenite.generate.sampling import Sampling
from arenite.generate.session import as_tokens, n_shared

if TYPE_CHECKING:
    from arenite.generate.decode_ahead import DecodeAhead
    from arenite.generate.sampler import Sampler
    from arenite.generate.tokenizer import Tokenizer

#: Tokens that the device has to choose at a stretch to be asked again.
WORTHWHILE = 8

#: Prompt tokens fed between two looks at whether someone asked to stop.
FEED_TOKENS = 512

#: The last prompt of each session and the logits after it. Computing the last token's by itself
#: would round otherwise than the whole prompt did: the same seed would give another text.
_after_prompt: WeakKeyDictionary[Session, tuple[list[int], NDArray[np.float32]]]
_after_prompt = WeakKeyDictionary()


class Session(Protocol):
    """What generating needs of a session: see `LanguageModel.session`."""

    @property
    def context(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def tokens(self) -> Sequence[int]: ...
    def feed(self, tokens: Sequence[int]) -> NDArray[np.float32]: ...
    def rewind(self, n_tokens: int) -> None: ...
    def ahead(
        self,
        sampler: Sampler,
        n_tokens: int,
        tokens: Sequence[int],
        n_most: int,
        is_masked: bool = False,
    ) -> DecodeAhead | None: ...


@dataclass(frozen=True, slots=True)
class Stats:
    """What a text took; the token that ends it is not counted."""

    prompt_tokens: int
    reused_tokens: int  # of the prompt, that the session held already
    generated_tokens: int
    prompt_seconds: float
    generation_seconds: float
    seed: int  # gives the same text again
    device_tokens: int = 0  # that the device chose, ahead of the host; all others the host chose

    @property
    def prompt_tokens_a_second(self) -> float:
        """Of those that were fed."""
        return _rate(self.prompt_tokens - self.reused_tokens, self.prompt_seconds)

    @property
    def tokens_a_second(self) -> float:
        """Of those that were made."""
        return _rate(self.generated_tokens, self.generation_seconds)

    def __str__(self) -> str:
        by_device = f", {self.device_tokens} chosen by the device," if self.device_tokens else ""
        return (
            f"{self.generated_tokens} tokens{by_device} in {self.generation_seconds:.2f} s "
            f"({self.tokens_a_second:.1f} a second); prompt {self.prompt_tokens} tokens, "
            f"{self.reused_tokens} of them reused, in {self.prompt_seconds:.2f} s "
            f"({self.prompt_tokens_a_second:.1f} a second); seed {self.seed}"
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text; the last piece has `finish` and `stats`."""

    text: str
    finish: Finish | None = None
    stats: Stats | None = None


def generate(
    session: Session,
    prompt: Sequence[int],
    sampling: Sampling,
    tokenizer: Tokenizer,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Piece]:
    """Text after the prompt. `cancelled` is asked between tokens whether to stop."""
    tokens = prompt_tokens(prompt, session.context)
    return _Generation(session, tokens, sampling, tokenizer, cancelled).pieces()


def prompt_tokens(prompt: Sequence[int], context: int) -> list[int]:
    """The tokens to go on from, if there are any and a context holds them."""
    tokens = as_tokens(prompt)
    if not tokens:
        raise InvalidArgument("the prompt has no tokens; there is nothing to go on from")
    if len(tokens) > context:
        raise InvalidArgument(
            f"the prompt has {len(tokens)} tokens and the context holds {context}; shorten it, or "
            f"load the model with context={len(tokens)} or more"
        )
    return tokens


class _Generation:
    """One text in the making."""

    def __init__(
        self,
        session: Session,
        prompt: list[int],
        sampling: Sampling,
        tokenizer: Tokenizer,
        cancelled: Callable[[], bool],
    ) -> None:
        self.session, self.cancelled = session, cancelled
        self.made = Continuation(prompt, sampling, tokenizer, session.context)
        self.ahead: DecodeAhead | None = None
        self.asks_device = True
        self.n_ahead = self.n_at_once = 0  # tokens of the device, and those since it was asked

    def pieces(self) -> Iterator[Piece]:
        made, started = self.made, perf_counter()
        n_reused = _reuse(self.session, made.tokens)
        if n_reused < made.n_prompt:
            logits = self.feed(made.tokens[n_reused:])
            if logits is not None:
                _after_prompt[self.session] = (made.tokens.copy(), logits.copy())
        else:
            logits = _after_prompt[self.session][1]
        fed = perf_counter()
        text = ""
        token = None if logits is None else made.choose(logits)
        while token is not None:
            text = made.accept(token)
            if made.finish:
                break
            if text:
                yield Piece(text)
            token = self.following()
        if token is None:
            text = made.end("cancelled")
        stats = Stats(
            made.n_prompt,
            n_reused,
            made.n_generated,
            fed - started,
            perf_counter() - fed,
            made.sampler.seed,
            self.n_ahead,
        )
        yield Piece(text, made.finish, stats)

    def following(self) -> int | None:
        """The token after all there are; None where someone asked to stop."""
        if self.cancelled():
            return None
        try:
            token = self.from_device()
        except RunCancelled:
            return None
        if token is None:
            logits = self.feed(self.made.tokens[-1:])
            token = None if logits is None else self.made.choose(logits)
        return token

    def from_device(self) -> int | None:
        """The next token, if the device chooses it."""
        if not self.asks_device:
            return None
        made = self.made
        self.check_session(len(made.tokens) - 1)
        if self.ahead is None:
            most = made.sampling.max_tokens
            n_most = self.session.context + 1 if most is None else made.n_prompt + most
            self.n_at_once = 0
            self.ahead = self.session.ahead(
                made.sampler, made.n_tokens, made.tokens, n_most, made.has_grammar
            )
        token = None if self.ahead is None else self.ahead.next(made.tokens, made.allowed)
        if token is None:
            # Where the device leaves every few choices to the host it is no help.
            self.asks_device = self.ahead is not None and self.n_at_once >= WORTHWHILE
            self.ahead = None
        else:
            self.n_ahead += 1
            self.n_at_once += 1
        return token

    def check_session(self, n_fed: int) -> None:
        """InvalidArgument unless the session has so many tokens, and those of this text."""
        if list(self.session.tokens) != self.made.tokens[:n_fed]:
            raise InvalidArgument(
                "the session was used for another text while this one was made; end one "
                "before the next begins, or give each a session of its own: lm.session()"
            )

    def feed(self, tokens: Sequence[int]) -> NDArray[np.float32] | None:
        """The logits after the last tokens of all; None where someone asked to stop."""
        logits = None
        for start in range(0, len(tokens), FEED_TOKENS):
            if self.cancelled():
                return None
            self.check_session(len(self.made.tokens) - len(tokens) + start)
            try:
                logits = self.session.feed(tokens[start : start + FEED_TOKENS])
            except RunCancelled:
                return None
        return logits


def _reuse(session: Session, prompt: Sequence[int]) -> int:
    """Take the session back to what it shares with the prompt: how many tokens need no feeding.

    The last one does, for its logits, unless this prompt was the session's last one.
    """
    n_kept = n_shared(session.tokens, prompt)
    if n_kept == len(prompt) and _after_prompt.get(session, ([],))[0] != prompt:
        n_kept -= 1
    if n_kept < session.position:
        session.rewind(n_kept)
    return n_kept


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
