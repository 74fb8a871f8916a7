"""Session: a text that a model has read so far, and what it says comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from arenite.errors import BoundsError, InvalidArgument, printable
from arenite.generate.bounds import whole

if TYPE_CHECKING:
    from arenite.generate.decode_ahead import DecodeAhead
    from arenite.generate.generation import Piece
    from arenite.generate.model import LanguageModel
    from arenite.generate.sampler import Sampler
    from arenite.generate.sampling import SamplingOptions

Logits = NDArray[np.float32]


def n_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((k for k, (a, b) in pairs if a != b), min(len(one), len(other)))


def as_tokens(given: object) -> list[int]:
    """Tokens as whole numbers: of a list or the like, or of an array of integers in one row."""
    if isinstance(given, np.ndarray):
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise InvalidArgument(
                f"tokens are an array of {given.dtype} with shape {given.shape}; one row of "
                "integers is needed"
            )
        return [int(token) for token in given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        shown = f"{type(given).__name__} {given!r:.80}"
        raise InvalidArgument(f"tokens are a list of whole numbers, not the {shown}")
    return [token if type(token) is int else whole("a token", token) for token in given]


class Session:
    """A text of its own: tokens fed one after the other. Any number of sessions is right; a model
    loaded with `sessions=n` keeps what the n that fed last have computed; the rest is computed
    again. Of models with block-quantised weights the logits are the same to the last bit however a
    text was cut into feeds.

        session = lm.session()
        print("".join(session.generate("Once upon a time", max_tokens=20)))
        logits = session.feed(lm.tokenizer.encode(" and then"))
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._tokens: list[int] = []

    @property
    def tokens(self) -> Sequence[int]:
        """What was fed."""
        return tuple(self._tokens)

    @property
    def position(self) -> int:
        """How many tokens were fed."""
        return len(self._tokens)

    @property
    def context(self) -> int:
        """How many there is room for."""
        return self._model.context

    def feed(self, tokens: Sequence[int] | NDArray[np.integer]) -> Logits:
        """Append tokens; the logits after the last of them, one for each token there is."""
        new = as_tokens(tokens)
        if not new:
            raise InvalidArgument("no tokens were given; there is nothing to compute")
        n_tokens = self._model.file.description.n_tokens
        wrong = [token for token in new if not 0 <= token < n_tokens]
        if wrong:
            raise BoundsError(f"token {wrong[0]} is not within 0..{n_tokens - 1}")
        if len(self._tokens) + len(new) > self.context:
            raise BoundsError(
                f"{len(new)} tokens after {len(self._tokens)} are more than the context of "
                f"{self.context}; load the model with a longer one, or rewind"
            )
        logits = self._model.advance(self, self._tokens, new)
        self._tokens += new
        return logits

    def extend(self, token: int) -> None:
        """Count in a token that was fed by itself: see `ahead`."""
        self._tokens.append(token)

    def ahead(
        self,
        sampler: Sampler,
        n_tokens: int,
        tokens: Sequence[int],
        n_most: int,
        is_masked: bool = False,
    ) -> DecodeAhead | None:
        """Choices by the device behind `tokens`, of which all but the last were fed, up to a text
        of `n_most`; None where the host chooses. `is_masked`: a grammar says what may come."""
        from arenite.generate.decode_ahead import DecodeAhead

        end = min(n_most - 1, self.context)
        if not self._model.settings.offloaded or len(tokens) > end:
            return None
        return DecodeAhead(self._model, self, sampler, n_tokens, tokens, end, is_masked)

    def generate(
        self, prompt: str | Sequence[int], **sampling: Unpack[SamplingOptions]
    ) -> Iterator[str]:
        """Text that goes on from the prompt, piece by piece; see `LanguageModel.generate`. What the
        prompt shares with the session's text is not computed again."""
        tokens = self._model.prompt_of(prompt)
        return (piece.text for piece in self.pieces(tokens, **sampling) if piece.text)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], **sampling: Unpack[SamplingOptions]
    ) -> Iterator[str]:
        """The answer to a conversation, piece by piece; see `LanguageModel.chat`."""
        tokens = self._model.chat_tokens(messages)
        return (piece.text for piece in self.pieces(tokens, **sampling) if piece.text)

    def pieces(
        self,
        tokens: Sequence[int],
        *,
        cancelled: Callable[[], bool] = lambda: False,
        **sampling: Unpack[SamplingOptions],
    ) -> Iterator[Piece]:
        """Text after tokens, with why it ended and what it took in the last piece; see
        `LanguageModel.pieces`."""
        from arenite.generate.generation import generate
        from arenite.generate.sampling import Sampling

        model = self._model
        chosen = Sampling(**sampling)
        texts = generate(self, tokens, chosen, model.tokenizer, cancelled=cancelled)
        return model.claiming(self, texts)

    def rewind(self, n_tokens: int) -> None:
        """Go back to the first `n_tokens`: nothing is computed."""
        n_tokens = whole("n_tokens", n_tokens)
        if not 0 <= n_tokens <= len(self._tokens):
            raise InvalidArgument(
                f"there are {len(self._tokens)} tokens; a session cannot go back to {n_tokens}"
            )
        del self._tokens[n_tokens:]

    def reset(self) -> None:
        """Forget all tokens."""
        self.rewind(0)

    def __repr__(self) -> str:
        return (
            f"<Session of {printable(self._model.name)}: {self.position} of {self.context} tokens>"
        )
