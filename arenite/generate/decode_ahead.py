"""Decoding ahead: tokens that the device chooses, a few runs ahead of whoever reads them.

The host submits runs whose token it does not know, and reads tokens when they come. Runs that were
begun behind the token that ends a text are undone by its length: what they wrote to the states lies
behind it, and is written anew by whoever goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from arenite.generate.session import n_shared

if TYPE_CHECKING:
    from arenite.generate.model import LanguageModel
    from arenite.generate.sampler import Sampler
    from arenite.generate.session import Session

#: Runs that have begun and whose token is not known yet: one the device works on, others that keep
#: it busy while the host reads, writes text and records.
DEPTH = 3


class DecodeAhead:
    """Goes on with the text of a session, until a token that the host has to choose."""

    def __init__(
        self,
        model: LanguageModel,
        session: Session,
        sampler: Sampler,
        n_tokens: int,
        tokens: Sequence[int],
        end: int,
        is_masked: bool,
    ) -> None:
        """After `tokens`, of which the session was fed all but the last; nothing is fed behind
        `end` of them. `n_tokens` are chosen from; where that `is_masked` by a grammar, which of
        them may come is known when the token before is, and one run is begun ahead of it."""
        self._model, self._session, self._sampler = model, session, sampler
        self._position = self._first = len(tokens) - 1
        self._end = end
        self._depth = 1 if is_masked else DEPTH
        choice = sampler.choice(n_tokens)._replace(is_masked=is_masked)
        numbers = sampler.numbers(end - self._position)
        with model.slot_of(session) as slot:
            self._slot, self._n_advances = slot, slot.n_advances
            del slot.tokens[n_shared(slot.tokens, tokens[:-1]) :]
            self._decoding = model.executable.decoding(choice, tokens, numbers)

    def next(
        self, tokens: Sequence[int], allowed: Callable[[], NDArray[np.bool_] | None] = lambda: None
    ) -> int | None:
        """Feed the last of these tokens, and choose another, one that is `allowed`, which is asked
        when the device is at work. None: the host is to do both."""
        model, decoding, n_fed = self._model, self._decoding, len(tokens) - 1
        if decoding is None:
            return None
        with model.slot_of(self._session) as slot:
            is_ours = slot is self._slot and slot.n_advances == self._n_advances
            if not is_ours or len(slot.tokens) != n_fed or n_fed >= self._end:
                return None
            # The first token need not wait until all are under way.
            depth = min(self._depth, n_fed - self._first + 2)
            while decoding.n_pending < depth and self._position < self._end:
                arguments = model.settings.arguments([0], self._position)
                model.executable.start_decoding(decoding, *arguments)
                self._position += 1
            chosen = model.executable.next_token(decoding, allowed())
            if chosen is None:
                return None
            slot.tokens.append(tokens[-1])
        self._session.extend(tokens[-1])
        if chosen.is_drawn:
            self._sampler.use_number()
        return chosen.token
