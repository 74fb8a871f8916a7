"""Decoding: runs of a language model of which each chooses the token that the next one reads.

A device with memory of its own keeps the token there: the host begins with the next run while the
one before is under way, and reads tokens when they come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class TokenChoice(NamedTuple):
    """How a token is chosen among the first `n_tokens` logits, in this order: `bias` is added,
    recent tokens are penalised, then filters and temperature. What each means: `Sampling`."""

    n_tokens: int
    temperature: float  # 0: the likeliest
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int  # 0: nothing is penalised
    bias: Mapping[int, float]
    is_masked: bool = False  # which tokens may come at all is said for each choice


class ChosenToken(NamedTuple):
    """`is_drawn`: it was one of several, and took a random number."""

    token: int
    is_drawn: bool


class Decoding(Protocol):
    """A text in the making. Runs end in the order they began in."""

    @property
    def n_pending(self) -> int:
        """Runs that have begun and whose token was not asked for."""

    def start(self, arrays: Sequence[NDArray[Any]], sizes: Mapping[str, int]) -> None:
        """Begin a run whose first argument is the last token that was chosen, whatever is given in
        its place; the row of logits it ends with decides about the next. Where choices are masked
        the token before must be known: one run has begun at the most."""

    def result(self, allowed: NDArray[np.bool_] | None = None) -> ChosenToken | None:
        """Wait for the run that began first, and take its token; where choices are masked, one of
        those that are `allowed`. None: the device leaves this choice to the host, and runs that
        began behind it have no meaning."""
        ...


#: From a choice, the tokens of a text, and random numbers that are enough for all choices; None for
#: a choice that the device does not do.
Decoder = Callable[[TokenChoice, Sequence[int], NDArray[np.float64]], Decoding | None]
