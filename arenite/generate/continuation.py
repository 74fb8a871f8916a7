"""Continuation: a text that goes on token by token, from logits, until something ends it.

In: the logits after the last token. Out: the next token, and the text that is certain with it: not
within a character, not within what may become a stop string.

StopText: passes text on and ends it before a stop string, however the text is cut.

In: pieces of text. Out: what can't be the beginning of a stop string any more. The stop string
that is complete first ends the text; of several that end together, the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenite.generate.grammar import grammar_of
from arenite.generate.sampler import Sampler
from arenite.generate.sampling import Sampling

if TYPE_CHECKING:
    from arenite.generate.tokenizer import Tokenizer


class StopText:
    def __init__(self, stops: Sequence[str]) -> None:
        self.stopped = False
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> str:
        """What may be shown now; `stopped` says whether a stop string was met."""
        if self.stopped:
            return ""
        text = self._held + text
        stops = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if stops:
            self.stopped = True
            self._held = ""
            return text[: min(stops)[1]]
        n_held = max((_n_begun(text, stop) for stop in self._stops), default=0)
        shown = len(text) - n_held
        self._held = text[shown:]
        return text[:shown]

    def finish(self) -> str:
        """The text that was held back: no more comes, so it was no stop string."""
        held, self._held = self._held, ""
        return held


def _n_begun(text: str, stop: str) -> int:
    """Characters at the end of `text` that a stop string could begin with."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


#: stop: the model, a stop string or the grammar ended it; length: max_tokens were made; context:
#: there is no place for another token; cancelled: someone asked to stop.
Finish: TypeAlias = Literal["stop", "length", "context", "cancelled"]


class Continuation:
    """One text in the making, in a context of so many tokens."""

    def __init__(
        self, prompt: list[int], sampling: Sampling, tokenizer: Tokenizer, context: int
    ) -> None:
        self.sampling = sampling
        self.sampler = Sampler(sampling)
        self.n_prompt = len(prompt)
        self.tokens = prompt  # and what comes after it
        self.finish: Finish | None = None
        self._grammar = grammar_of(sampling, tokenizer)
        self.n_tokens = tokenizer.n_tokens  # that a choice is among
        self._ends = tokenizer.end_tokens
        self._characters = tokenizer.stream()
        self._text = StopText(sampling.stop)
        self._context = context

    @property
    def n_generated(self) -> int:
        """Tokens after the prompt; the one that ends a text is not counted."""
        return len(self.tokens) - self.n_prompt

    @property
    def has_grammar(self) -> bool:
        """Whether what may come next depends on each token before it."""
        return self._grammar is not None

    def advance(self, logits: NDArray[np.float32]) -> tuple[int, str]:
        """The token that comes next, and the text that it makes certain. `finish` says whether it
        is the last."""
        token = self.choose(logits)
        return token, self.accept(token)

    def choose(self, logits: NDArray[np.float32]) -> int:
        """The token that comes next."""
        # Some models have more logits than tokens: rows that were added for a round number.
        return self.sampler.choose(logits[: self.n_tokens], self.tokens, self.allowed())

    def allowed(self) -> NDArray[np.bool_] | None:
        """Which tokens may come next, as the grammar has it; None: all of them."""
        return self._grammar.allowed() if self._grammar else None

    def accept(self, token: int) -> str:
        """Go on with a token that was chosen: the text that it makes certain."""
        if token in self._ends:
            return self.end("stop")
        self.tokens.append(token)
        if self._grammar:
            self._grammar.accept(token)
        text = self._text.push(self._characters.push(token))
        finish = self._finish()
        return text + self.end(finish) if finish else text

    def end(self, finish: Finish) -> str:
        """The text that was held back, of one that ends here."""
        self.finish = finish
        return self._text.push(self._characters.finish()) + self._text.finish()

    def _finish(self) -> Finish | None:
        """Why the text ends with the token that was just added, if it does."""
        if self._text.stopped or (self._grammar and self._grammar.complete):
            return "stop"
        if self.n_generated == self.sampling.max_tokens:
            return "length"
        # The last token has a place only where it need not be fed.
        return "context" if len(self.tokens) > self._context else None
