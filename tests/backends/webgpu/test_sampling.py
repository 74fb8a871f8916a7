"""A token chosen on the device is the one that the host's sampler chooses.

The device computes in float32 where the host has float64: a choice may differ where the random
number, or a bound of a filter, lies within `NEAR` of where the host would choose otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.backends.webgpu import sampling
from arenite.backends.webgpu.dispatch import Bound, dispatches_of, submit
from arenite.backends.webgpu.memory import Region
from arenite.device import Buffer
from arenite.dtype import uint8
from arenite.generate.sampler import Sampler
from arenite.generate.sampling import Sampling
from tests.backends.webgpu.runner import webgpu

Logits = NDArray[np.float32]

NEAR = 1e-5
N_STEPS = 5
RECENT = [3, 7, 7, 100, 3, 3, 250]
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "usual": {},
    "hot": {"temperature": 3.0, "top_k": 200, "top_p": 1.0, "min_p": 0.0},
    "one": {"top_p": 0.0},
    "no top_k": {"top_k": 0},
    "top_p": {"top_k": 0, "min_p": 0.0, "top_p": 0.5},
    "min_p": {"top_k": 0, "min_p": 0.1, "top_p": 1.0},
    "plain": {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 0.7},
    "penalties": {"repetition_penalty": 1.4, "frequency_penalty": 0.3, "presence_penalty": 0.2},
    "short window": {"repetition_penalty": 3.0, "penalty_window": 3},
    "endless window": {"temperature": 0, "repetition_penalty": 3.0, "penalty_window": -1},
    "bias": {"logit_bias": {5: 9.0, 9: -np.inf, 11: -3.0}, "temperature": 2.0},
}


class OnDevice:
    """The memory of a text, and what is chosen from one row of logits after another."""

    def __init__(
        self, sampler: Sampler, tokens: Sequence[int], n_tokens: int, is_masked: bool = False
    ) -> None:
        self.gpu = webgpu()
        self.choice = choice = sampler.choice(n_tokens)._replace(is_masked=is_masked)
        numbers = sampler.numbers(N_STEPS)
        memory = sampling.contents(choice, tokens, numbers, len(tokens) + N_STEPS)
        self.memory = Buffer.allocate(self.gpu, uint8, (memory.nbytes,))
        self.memory.copyin(memory.view(np.uint8))

    def allow(self, allowed: NDArray[np.bool_]) -> None:
        """Of what is chosen next."""
        bits, kind = sampling.masked(self.choice, allowed)
        self.memory.view(self.memory.nbytes - bits.nbytes, bits.nbytes).copyin(bits.view(np.uint8))
        self.memory.view(sampling.KIND_AT, 4).copyin(np.array([kind], np.uint32).view(np.uint8))

    def choose(self, logits: Logits, threads: int = 256) -> int:
        """The token, and above it what is said of it."""
        row = Buffer.allocate(self.gpu, uint8, (logits.nbytes,))
        row.copyin(logits.view(np.uint8))
        places = [(Region.of("logits", row), 0), (Region.of("sampler", self.memory), 0)]
        bound = Bound("sample", sampling.shader(threads), places, (), 1, 0)
        submit(self.gpu, dispatches_of(self.gpu, [bound], None))
        word = self.memory.view(sampling.CHOICE_AT, 4).copyout()
        return int.from_bytes(word, "little")


def choices_near(
    options: Sampling,
    numbers: Sequence[float],
    logits: Logits,
    recent: Sequence[int],
    allowed: NDArray[np.bool_] | None = None,
) -> tuple[set[int], set[bool]]:
    """What the host chooses if random number and bounds are a little off, and whether it uses a
    number for that."""
    tokens, drawn = set(), set()
    for by in (-NEAR, 0.0, NEAR):
        for other in (-NEAR, 0.0, NEAR):
            near = options
            if 0 < options.top_p < 1:
                near = replace(near, top_p=min(max(options.top_p + by, 0), 1))
            if options.min_p > 0:
                near = replace(near, min_p=min(max(options.min_p * (1 + by), 0), 1))
            sampler = Sampler(near)
            sampler._numbers.extend(min(max(one + other, 0.0), 1.0) for one in numbers)
            tokens.add(sampler.choose(logits, recent, allowed))
            drawn.add(len(sampler._numbers) < len(numbers))
    return tokens, drawn


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("n_tokens", [7, 320, 6000])
def test_the_device_chooses_as_the_host_does(name: str, n_tokens: int) -> None:
    rng = np.random.default_rng(n_tokens)
    for seed in range(2):
        given = dict(OPTIONS[name])
        bias = given.get("logit_bias", {})
        given["logit_bias"] = {token: by for token, by in bias.items() if token < n_tokens}
        options = Sampling(seed=seed, **given)
        tokens = [token % n_tokens for token in RECENT]
        sampler = Sampler(options)
        device = OnDevice(sampler, tokens, n_tokens)
        for _ in range(N_STEPS):
            logits = rng.normal(0, 4, n_tokens).astype(np.float32)
            found = device.choose(logits)
            assert not found & sampling.UNDECIDED
            token, is_drawn = found & (sampling.DRAWN - 1), bool(found & sampling.DRAWN)
            near, drawn = choices_near(options, [*sampler._numbers], logits, tokens)
            assert token in near
            assert is_drawn in drawn
            if is_drawn:
                sampler.use_number()
            tokens.append(token)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("n_allowed", [1, 2, 40, 319])
def test_among_the_tokens_that_may_come_it_chooses_as_the_host_does(
    name: str, n_allowed: int
) -> None:
    n_tokens, rng = 320, np.random.default_rng(n_allowed)
    options = Sampling(seed=3, **OPTIONS[name])
    tokens, sampler = [*RECENT], Sampler(options)
    device = OnDevice(sampler, tokens, n_tokens, is_masked=True)
    for _ in range(N_STEPS):
        logits = rng.normal(0, 4, n_tokens).astype(np.float32)
        allowed = np.zeros(n_tokens, np.bool_)
        allowed[rng.permutation(n_tokens)[:n_allowed]] = True
        if options.logit_bias:
            allowed[9] = n_allowed == 319  # of which alone there would be nothing to choose
            allowed[5] = True
        logits[~allowed] += 50  # what may not come would come else
        device.allow(allowed)
        found = device.choose(logits)
        assert not found & sampling.UNDECIDED
        token, is_drawn = found & (sampling.DRAWN - 1), bool(found & sampling.DRAWN)
        near, drawn = choices_near(options, [*sampler._numbers], logits, tokens, allowed)
        assert allowed[token]
        assert token in near
        assert is_drawn in drawn
        if is_drawn:
            sampler.use_number()
        tokens.append(token)


def test_where_no_token_may_come_it_is_left_to_the_host() -> None:
    for name in ("greedy", "usual", "plain"):
        device = OnDevice(Sampler(Sampling(**OPTIONS[name])), [1], 500, is_masked=True)
        device.allow(np.zeros(500, np.bool_))
        assert device.choose(np.ones(500, np.float32)) & sampling.UNDECIDED


def test_of_equal_logits_the_first_is_the_likeliest() -> None:
    logits = np.full(700, -1.0, np.float32)
    logits[[40, 41, 650]] = 2.5
    greedy = OnDevice(Sampler(Sampling(temperature=0)), [1], 700)
    assert greedy.choose(logits) == 40
    two = Sampling(seed=1, top_k=2, top_p=1.0, min_p=0.0, temperature=1e6)
    sampler = Sampler(two)
    wanted = [Sampler(replace(two, seed=seed)).choose(logits) for seed in range(N_STEPS)]
    found = []
    for seed in range(N_STEPS):
        sampler = Sampler(replace(two, seed=seed))
        found.append(OnDevice(sampler, [1], 700).choose(logits) & (sampling.DRAWN - 1))
    assert found == wanted
    assert {*wanted} == {40, 41}


def test_minus_zero_is_zero() -> None:
    logits = np.array([-1.0, -0.0, 0.0, -2.0], np.float32)
    assert OnDevice(Sampler(Sampling(temperature=0)), [1], 4).choose(logits) == 1


@pytest.mark.parametrize("wrong", [np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("name", ["greedy", "usual", "plain"])
def test_what_is_no_number_is_left_to_the_host(name: str, wrong: float) -> None:
    logits = np.zeros(500, np.float32)
    logits[3] = wrong
    device = OnDevice(Sampler(Sampling(**OPTIONS[name])), [1], 500)
    assert device.choose(logits) & sampling.UNDECIDED


@pytest.mark.parametrize("name", ["greedy", "usual", "plain"])
def test_logits_that_are_all_banned_are_left_to_the_host(name: str) -> None:
    device = OnDevice(Sampler(Sampling(**OPTIONS[name])), [1], 500)
    assert device.choose(np.full(500, -np.inf, np.float32)) & sampling.UNDECIDED


def test_more_candidates_than_there_is_room_for_are_left_to_the_host() -> None:
    alike = np.zeros(3 * sampling.ROOM, np.float32)
    device = OnDevice(Sampler(Sampling(seed=1)), [1], alike.size)
    assert device.choose(alike) & sampling.UNDECIDED


def test_a_filter_that_leaves_all_that_was_looked_at_is_left_to_the_host() -> None:
    flat = np.linspace(0, 1e-3, 9000, dtype=np.float32)
    device = OnDevice(Sampler(Sampling(seed=1, top_k=0, min_p=0.0, top_p=0.9)), [1], flat.size)
    assert device.choose(flat) & sampling.UNDECIDED
