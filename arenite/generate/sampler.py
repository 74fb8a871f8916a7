"""Sampler: logits in, one token out. The same seed and logits give the same tokens.

The filters never sort a whole vocabulary where a few tokens decide: the largest logits are found
by the largest of each group first.

    values   . 3 1 . 7 2 . 5 | . 9 . . 1 6 . 8     rows of `n_groups` values
    maxima   . 9 1 . 7 6 . 8                       one a column: k columns reach the k-th of them,
    bar            ^ k-th largest of the maxima    so k values do: the k largest lie above it

What is left then are so few that arrays of them would cost more than the numbers in them.
"""

from __future__ import annotations

import math
import secrets
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arenite.errors import InvalidArgument, RunFailed
from arenite.generate.sampling import Sampling
from arenite.program.decoding import TokenChoice

Floats: TypeAlias = NDArray[np.floating[Any]]
Indices: TypeAlias = NDArray[np.intp]

FEW = 256  # candidates up to which plain numbers are quicker than arrays
FIRST_CANDIDATES = 64  # looked at before more are, where top_k sets no number
ROW = 512  # weights added up at once where one of many is drawn
UNIT = 2.0**-53  # 53 random bits to [0, 1)


class Sampler:
    """Chooses tokens as a Sampling says; each choice among several uses one number of the seed."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        self._random = np.random.Philox(key=self.seed)
        self._numbers: deque[float] = deque()  # drawn, and not used
        self._biased = np.array(list(sampling.logit_bias), np.intp)
        self._bias = np.array(list(sampling.logit_bias.values()), np.float32)

    def choose(
        self,
        logits: NDArray[np.float32],
        recent: Sequence[int] = (),
        allowed: NDArray[np.bool_] | None = None,
    ) -> int:
        """The next token after those in `recent`, among the `allowed` ones."""
        tokens, weights = self._weights(logits, recent, allowed)
        at = self._pick(weights) if len(weights) > 1 else 0
        return at if tokens is None else int(tokens[at])

    def _weights(
        self,
        logits: NDArray[np.float32],
        recent: Sequence[int],
        allowed: NDArray[np.bool_] | None,
    ) -> tuple[Indices | list[int] | None, Floats | list[float]]:
        """The tokens that are left and what each weighs; None for the tokens: all there are."""
        values = self._penalised(logits.astype(np.float32, copy=False), recent)
        if allowed is None:
            return self._filtered(values)
        tokens = np.flatnonzero(allowed[: values.size])
        if not tokens.size:
            raise RunFailed("no token is allowed to come next; the grammar leads nowhere")
        order, weights = self._filtered(values[tokens])
        return tokens if order is None else tokens[order], weights

    def _penalised(self, logits: NDArray[np.float32], recent: Sequence[int]) -> NDArray[np.float32]:
        """The logits with bias and penalties; the caller's array stays as it is."""
        sampling = self.sampling
        if not self._biased.size and not sampling.penalises:
            return logits
        values = logits.copy()
        if self._biased.size:
            if self._biased.max() >= values.size:
                raise InvalidArgument(
                    f"logit_bias names token {self._biased.max()}; there are {values.size} tokens"
                )
            values[self._biased] += self._bias
        if sampling.penalises and len(recent):
            window = recent if sampling.penalty_window < 0 else recent[-sampling.penalty_window :]
            seen = np.asarray(window, np.intp)
            tokens, counts = np.unique(seen[seen < values.size], return_counts=True)
            logit = values[tokens]
            logit = np.where(
                logit > 0, logit / sampling.repetition_penalty, logit * sampling.repetition_penalty
            )
            logit -= counts * sampling.frequency_penalty + sampling.presence_penalty
            values[tokens] = logit
        return values

    def _filtered(
        self, values: NDArray[np.float32]
    ) -> tuple[Indices | list[int] | None, Floats | list[float]]:
        """Indices of the values that the filters leave, and their weights; None: of all."""
        top = values.max()
        if not np.isfinite(top):
            raise RunFailed(
                f"the largest logit is {top}: the model's results are no numbers, or all tokens "
                "that may come are banned"
            )
        sampling = self.sampling
        if sampling.greedy:
            return [int(values.argmax())], [1.0]
        if 0 < sampling.top_k <= FEW:
            found = _few(values, float(top), sampling)
            if found is not None:
                return found
        if sampling.top_k or sampling.top_p < 1 or sampling.min_p > 0:
            order = survivors(values, sampling)
            return order, _tempered(values[order], top, sampling.temperature)
        return None, _tempered(values, top, sampling.temperature)

    def _pick(self, weights: Floats | list[float]) -> int:
        """An index, each as likely as its weight; uses up one random number."""
        number = self._number()
        if isinstance(weights, list):
            return _few_index_at(weights, number * sum(weights))
        return _index_at(weights, number * float(weights.sum(dtype=np.float64)))

    def _number(self) -> float:
        """The next random number, used up."""
        if self._numbers:
            return self._numbers.popleft()
        return (int(self._random.random_raw()) >> 11) * UNIT

    # For those who choose in its place.

    def numbers(self, count: int) -> NDArray[np.float64]:
        """The next random numbers, which are not used up by that."""
        n_new = count - len(self._numbers)
        if n_new > 0:
            self._numbers += ((self._random.random_raw(n_new) >> np.uint64(11)) * UNIT).tolist()
        return np.array([*islice(self._numbers, count)])

    def use_number(self) -> None:
        """Take the next one for used."""
        self._numbers.popleft()

    def choice(self, n_tokens: int) -> TokenChoice:
        """What it does with so many logits, as plain numbers; not what a grammar allows."""
        s = self.sampling
        return TokenChoice(
            n_tokens=n_tokens,
            temperature=0.0 if s.greedy else s.temperature,
            top_k=s.top_k,
            top_p=s.top_p,
            min_p=s.min_p,
            repetition_penalty=s.repetition_penalty,
            presence_penalty=s.presence_penalty,
            frequency_penalty=s.frequency_penalty,
            penalty_window=s.penalty_window if s.penalises else 0,
            bias=s.logit_bias,
        )


def _few(
    values: NDArray[np.float32], top: float, sampling: Sampling
) -> tuple[list[int], list[float]] | None:
    """What `survivors` leaves of the `top_k` values, and what each weighs; None where so many are
    alike that these are no longer few. `top` is the largest value."""
    above = _candidates(values, sampling.top_k)
    if above.size > 2 * FEW:
        return None
    pairs = sorted(zip((-values[above]).tolist(), above.tolist(), strict=True))[: sampling.top_k]
    weights = [math.exp(-value - top) for value, _ in pairs]
    least, enough = sampling.min_p * weights[0], math.inf
    if sampling.top_p < 1:
        enough = sampling.top_p * sum(weights)
    n_kept, reached = 0, 0.0
    for weight in weights:
        if weight < least or reached >= enough:
            break
        n_kept, reached = n_kept + 1, reached + weight
    del pairs[max(n_kept, 1) :]
    tempered = [math.exp((-value - top) / sampling.temperature) for value, _ in pairs]
    return [token for _, token in pairs], tempered


def _few_index_at(weights: list[float], place: float) -> int:
    """Where the running sum of the weights passes `place`: never at one that adds nothing."""
    reached, last = 0.0, 0
    for index, weight in enumerate(weights):
        if weight > 0:
            reached, last = reached + weight, index
            if reached > place:
                break
    return last


def survivors(values: NDArray[np.float32], sampling: Sampling) -> Indices:
    """Indices of the values that top_k, top_p and min_p leave, the largest value first.

    top_p and min_p each leave a beginning of that order, so it does not matter which is first;
    top_p adds up probabilities among the top_k.
    """
    top = values.max()
    if 0 < sampling.top_k < values.size:
        order = largest(values, sampling.top_k)
        weights = _tempered(values[order], top, 1.0)
        return order[: _n_kept(weights, float(weights.sum()), sampling)]
    total = float(np.exp(values - top).sum(dtype=np.float64))
    n_candidates = FIRST_CANDIDATES
    while True:
        order = largest(values, n_candidates)
        n_kept = _n_kept(_tempered(values[order], top, 1.0), total, sampling)
        if n_kept < order.size or order.size == values.size:
            return order[:n_kept]
        n_candidates *= 8


def largest(values: NDArray[np.float32], count: int) -> Indices:
    """Indices of the `count` largest values, the largest first; of equal ones the first."""
    above = _candidates(values, count)
    return above[_falling(values[above])[:count]]


def logprobs_of(
    logits: NDArray[np.float32], token: int, count: int, room: NDArray[np.float64]
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The logarithm of a token's probability, and the likeliest tokens with theirs. `room` is
    written over, and has a place for each logit: a large block for each token would be slow."""
    highest = np.float64(logits.max())
    np.subtract(logits, highest, out=room)
    total = float(highest + np.log(np.exp(room, out=room).sum()))
    top = largest(logits, count) if count else ()
    return float(logits[token]) - total, tuple((int(k), float(logits[k]) - total) for k in top)


def _candidates(values: NDArray[np.float32], count: int) -> Indices:
    """Indices of the `count` largest values, and of some more, in order."""
    pool = values
    n_groups = max(512, 8 * count)
    if n_groups <= values.size // 4:
        n_rows = values.size // n_groups
        pool = values[: n_rows * n_groups].reshape(n_rows, n_groups).max(axis=0)
    if count >= pool.size:
        return np.arange(values.size)
    bar = np.partition(pool, pool.size - count)[pool.size - count]
    return np.flatnonzero(values >= bar)


def _falling(values: NDArray[np.float32]) -> Indices:
    """Indices that sort values from the largest on; of equal ones the first.

    A number of 64 bits, value above index, sorts many times as fast as a stable sort of floats.
    """
    bits = (values + np.float32(0)).view(np.int32)  # without a minus before zero
    rising = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))  # integers in the order of the floats
    both = (~rising).astype(np.int64) << 32 | np.arange(values.size)
    both.sort()
    return both & 0xFFFFFFFF


def _n_kept(weights: Floats, total: float, sampling: Sampling) -> int:
    """How many of these falling weights top_p and min_p leave: at least one."""
    kept = weights.size
    if sampling.min_p > 0:
        kept = int((weights >= sampling.min_p * weights[0]).sum())
    if sampling.top_p < 1:
        reached = np.cumsum(weights)
        kept = min(kept, int(np.searchsorted(reached, sampling.top_p * total)) + 1)
    return max(kept, 1)


def _tempered(values: NDArray[np.float32], top: np.float32, temperature: float) -> Floats:
    """What each value weighs against the largest one, which weighs 1."""
    # Double precision where it costs nothing; a whole vocabulary takes a millisecond in it.
    exact: Floats = values.astype(np.float64) if values.size <= 4096 else values
    with np.errstate(over="ignore"):
        weights: Floats = np.exp((exact - top) / temperature)
    return weights


def _index_at(weights: Floats, place: float) -> int:
    """Where the running sum of the weights passes `place`; first by rows, if there are many."""
    if weights.size <= 8 * ROW:
        return _passed(np.cumsum(weights, dtype=np.float64), place)
    sums = np.add.reduceat(weights, np.arange(0, weights.size, ROW))
    reached = np.cumsum(sums, dtype=np.float64)
    row = _passed(reached, place)
    within = np.cumsum(weights[row * ROW : (row + 1) * ROW], dtype=np.float64)
    return row * ROW + _passed(within, place - float(reached[row] - sums[row]))


def _passed(reached: NDArray[np.float64], place: float) -> int:
    """The first index whose sum is over `place`: rounding never makes it one that adds nothing."""
    inside = min(max(place, 0.0), float(np.nextafter(reached[-1], 0)))
    return int(np.searchsorted(reached, inside, side="right"))
