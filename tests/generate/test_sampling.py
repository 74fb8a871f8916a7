"""Choosing tokens: filters against their definitions, choices against exact probabilities."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arenite.errors import InvalidArgument, RunFailed
from arenite.generate.sampler import Sampler, _index_at, largest, survivors
from arenite.generate.sampling import Sampling

EPSILON = 1e-6
REFERENCE = json.loads(Path(__file__).with_name("samplers_reference.json").read_text())
PLAIN: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


def sampling(**changes: Any) -> Sampling:
    """No filters but those named."""
    return Sampling(**{**PLAIN, **changes})


def by_definition(values: list[float], asked: Sampling, slack: float) -> list[int]:
    """The filters one after the other in exact words: sort, cut, normalise, cut, cut."""
    order = sorted(range(len(values)), key=lambda k: (-values[k], k))
    if asked.top_k:
        order = order[: asked.top_k]
    weights = [math.exp(values[k] - values[order[0]]) for k in order]
    total = math.fsum(weights)
    kept: list[tuple[int, float]] = []
    reached = 0.0
    for token, weight in zip(order, weights, strict=True):
        if asked.top_p < 1 and kept and reached >= asked.top_p + slack:
            break
        kept.append((token, weight))
        reached += weight / total
    likeliest = kept[0][1]
    return [token for token, weight in kept if weight >= (asked.min_p - slack) * likeliest]


def logits_of(seed: int, count: int, spread: float) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, spread, count).astype(np.float32)


@settings(deadline=None, max_examples=200)
@given(
    seed=st.integers(0, 10_000),
    count=st.one_of(st.integers(1, 60), st.integers(2000, 6000)),
    spread=st.sampled_from([0.01, 1.0, 5.0]),
    top_k=st.sampled_from([0, 2, 40, 300, 5999]),
    top_p=st.sampled_from([0.001, 0.3, 0.95, 0.9999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
)
def test_filters_leave_what_their_definitions_leave(
    seed: int, count: int, spread: float, top_k: int, top_p: float, min_p: float
) -> None:
    values = logits_of(seed, count, spread)
    asked = sampling(top_k=top_k, top_p=top_p, min_p=min_p)
    kept = survivors(values, asked).tolist()
    exact = [float(value) for value in values]
    # A sum that meets top_p within rounding may fall on either side of it.
    fewest, most = (by_definition(exact, asked, slack) for slack in (-EPSILON, EPSILON))
    assert kept == most[: len(kept)]
    assert len(fewest) <= len(kept)


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 10_000),
    count=st.sampled_from([1, 100, 5000, 20_000]),
    n_distinct=st.sampled_from([1, 3, 1000]),
    k=st.sampled_from([1, 7, 40, 600]),
)
def test_the_largest_are_those_of_a_full_sort(
    seed: int, count: int, n_distinct: int, k: int
) -> None:
    values = np.random.default_rng(seed).integers(0, n_distinct, count).astype(np.float32)
    values[:: max(1, seed % 11)] = -np.inf
    expected = sorted(range(count), key=lambda at: (-values[at], at))[:k]
    assert largest(values, k).tolist() == expected


def exact_probabilities(values: NDArray[np.float32], asked: Sampling) -> NDArray[np.float64]:
    kept = by_definition([float(v) for v in values], asked, 0.0)
    scaled = np.array([float(values[k]) / asked.temperature for k in kept])
    weights = np.exp(scaled - scaled.max())
    chances = np.zeros(values.size)
    chances[kept] = weights / weights.sum()
    return chances


@pytest.mark.parametrize(
    "asked",
    [
        sampling(),
        sampling(temperature=0.5),
        sampling(temperature=3.0, top_k=5),
        sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
        sampling(top_p=0.6),
    ],
    ids=["plain", "cold", "hot top_k", "defaults", "top_p"],
)
@pytest.mark.parametrize("count", [8, 5000], ids=["few tokens", "many tokens"])
def test_tokens_come_as_often_as_their_probabilities_say(asked: Sampling, count: int) -> None:
    values = logits_of(3, count, 1.0)
    values[:3] = 6.0, 5.6, 5.2
    chances = exact_probabilities(values, asked)
    n_draws = 8_000
    sampler = Sampler(Sampling(**{**fields(asked), "seed": 11}))
    counts = np.bincount([sampler.choose(values) for _ in range(n_draws)], minlength=count)
    assert not counts[chances == 0].any()
    # Cells of at least ten expected draws each; the rest together are one more, if it has them.
    large = chances * n_draws >= 10
    expected = np.append(chances[large], chances[~large].sum()) * n_draws
    found = np.append(counts[large], counts[~large].sum())
    cells = expected >= 10
    chi_square = float(((found - expected)[cells] ** 2 / expected[cells]).sum())
    freedom = int(cells.sum()) - 1
    # Wilson and Hilferty's bound for a chance of about one in a million.
    bound = freedom * (1 - 2 / (9 * freedom) + 4.75 * math.sqrt(2 / (9 * freedom))) ** 3
    assert chi_square < bound


def test_rounding_never_chooses_a_banned_token() -> None:
    weights = np.zeros(10_000, np.float32)
    weights[[5, 600, 7000]] = 1.0, 0.1, 0.7
    total = float(weights.sum(dtype=np.float64))
    places = [-1e-9, 0.0, 1.0, np.nextafter(1.0, 0), 1.1, total - 1e-9, total, total + 1e-6]
    chosen = [_index_at(weights[:n], place) for n in (8000, 4096) for place in places]
    assert set(chosen) == {5, 600, 7000}


def chances_of(asked: Sampling, logits: NDArray[np.float32], recent: list[int]) -> Any:
    """The tokens that a sampler would choose from and how likely each is."""
    tokens, weights = Sampler(asked)._weights(logits, recent, None)
    exact = np.asarray(weights, np.float64)
    return np.arange(exact.size) if tokens is None else np.asarray(tokens), exact / exact.sum()


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=range(len(REFERENCE["cases"])))
def test_llama_cpp_leaves_the_same_tokens_with_the_same_chances(case: dict[str, Any]) -> None:
    options = case["options"] | {"logit_bias": dict(case["options"]["logit_bias"])}
    logits = np.array(case["logits"], np.float32)
    tokens, chances = chances_of(Sampling(**options), logits, case["recent"])
    order = np.argsort(tokens)
    expected_tokens, expected = zip(*case["chances"], strict=True)
    assert tokens[order].tolist() == list(expected_tokens)
    np.testing.assert_allclose(chances[order], expected, rtol=2e-5, atol=2e-7)


def test_the_defaults_are_those_that_llama_cpp_was_asked_with() -> None:
    first = REFERENCE["cases"][0]["options"]
    assert {name: getattr(Sampling(), name) for name in first} == first | {"logit_bias": {}}


def fields(asked: Sampling) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in Sampling.__dataclass_fields__}


def test_the_same_seed_chooses_the_same_tokens() -> None:
    rows = [logits_of(k, 3000, 1.0) for k in range(50)]
    runs = []
    for seed in (7, 7, 8):
        sampler = Sampler(Sampling(seed=seed, temperature=1.5, top_k=0, min_p=0.0))
        runs.append([sampler.choose(row) for row in rows])
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_the_seed_that_was_made_up_gives_the_same_tokens_again() -> None:
    row = logits_of(0, 3000, 0.1)
    first = Sampler(sampling())
    again = Sampler(sampling(seed=first.seed))
    assert [first.choose(row) for _ in range(20)] == [again.choose(row) for _ in range(20)]
    assert Sampler(sampling()).seed != first.seed


@pytest.mark.parametrize("asked", [sampling(temperature=0), sampling(top_k=1)])
def test_greedy_is_the_likeliest_and_of_equals_the_first(asked: Sampling) -> None:
    values = logits_of(5, 4000, 1.0)
    values[[700, 300, 2100]] = 50.0
    assert Sampler(asked).choose(values) == 300


def test_the_coldest_temperatures_are_no_special_case() -> None:
    values = np.array([0.0, 5.0, 4.9], np.float32)
    for temperature in (1e-300, 1e-9, 1e-6, 1e-4):
        assert Sampler(sampling(temperature=temperature, seed=1)).choose(values) == 1


def test_penalties_follow_their_definition() -> None:
    values = np.array([2.0, -2.0, 1.0, 0.0, 3.0], np.float32)
    asked = sampling(
        repetition_penalty=2.0,
        presence_penalty=0.25,
        frequency_penalty=0.5,
        penalty_window=4,
    )
    recent = [4, 4, 0, 1, 0, 3]  # 4 has left the window; 0 came twice
    expected = [
        2.0 / 2 - 0.25 - 2 * 0.5,
        -2.0 * 2 - 0.25 - 0.5,
        1.0,
        0.0 - 0.25 - 0.5,
        3.0,
    ]
    tokens, chances = chances_of(asked, values, recent)
    assert tokens.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(chances, np.exp(expected) / np.exp(expected).sum(), rtol=1e-5)
    assert values.tolist() == [2.0, -2.0, 1.0, 0.0, 3.0]  # the caller's stay


def test_a_window_of_all_and_one_of_nothing() -> None:
    values = np.array([2.0, 1.9, 0.0], np.float32)
    for window, expected in ((-1, 1), (0, 0), (1, 0), (2, 1)):
        asked = sampling(temperature=0, repetition_penalty=1.5, penalty_window=window)
        assert Sampler(asked).choose(values, [0, 2]) == expected


def test_a_bias_bans_and_raises() -> None:
    values = np.array([1.0, 3.0, 2.0], np.float32)
    asked = sampling(temperature=0, logit_bias={1: -math.inf})
    assert Sampler(asked).choose(values) == 2
    assert Sampler(sampling(temperature=0, logit_bias={0: 5})).choose(values) == 0
    with pytest.raises(InvalidArgument, match="token 3; there are 3 tokens"):
        Sampler(sampling(logit_bias={3: 1.0})).choose(values)


def test_only_what_is_allowed_is_chosen() -> None:
    values = logits_of(2, 100, 1.0)
    allowed = np.zeros(90, np.bool_)  # the model has more tokens than the tokenizer
    allowed[[3, 50, 89]] = True
    sampler = Sampler(sampling(seed=4, temperature=100.0))
    assert {sampler.choose(values, (), allowed) for _ in range(200)} == {3, 50, 89}
    with pytest.raises(RunFailed, match="no token is allowed"):
        sampler.choose(values, (), np.zeros(90, np.bool_))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_an_error(bad: float) -> None:
    values = logits_of(2, 100, 1.0)
    values[7] = bad
    with pytest.raises(RunFailed, match="largest logit"):
        Sampler(Sampling()).choose(values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1}, r"temperature is -1; a number from 0 is needed"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": 10**400}, r"temperature is 10{59}\.\.\.; a number from 0"),
        ({"top_p": -(10**5000)}, "top_p is a number of thousands of digits"),
        ({"seed": 10**5000}, "seed is a number of thousands of digits"),
        ({"logit_bias": {1: 10**400}}, "logit_bias of token 1 is 10{59}"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_k": 1.5}, r"top_k is 1.5; a whole number from 0 is needed"),
        ({"top_k": True}, "top_k is True"),
        ({"top_p": 1.1}, r"top_p is 1.1; a number from 0 to 1 is needed"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0"),
        ({"penalty_window": -2}, "penalty_window is -2"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"max_tokens": 0}, "max_tokens is 0; a whole number from 1 is needed"),
        ({"stop": ["a", ""]}, "stop: ''"),
        ({"logit_bias": {-1: 0.0}}, "token is -1"),
        ({"logit_bias": {1: math.inf}}, "logit_bias of token 1 is inf"),
        ({"logit_bias": {1: 1e300}}, "logit_bias of token 1 is 1e.300"),
        ({"logit_bias": {10**30: 1.0}}, "token is 10{30}; a whole number from 0 to"),
        ({"logit_bias": [1]}, r"logit_bias is \[1\]; a dict"),
        ({"logit_bias": None}, "logit_bias is None; a dict"),
        ({"repetition_penalty": 1e300}, "repetition_penalty is 1e.300"),
        ({"presence_penalty": 1e300}, "presence_penalty is 1e.300"),
        ({"frequency_penalty": -1e300}, "frequency_penalty is -1e.300"),
        ({"stop": None}, "stop: None"),
        ({"stop": 5}, "stop: 5"),
        ({"regex": 5}, "regex is 5; a text"),
        ({"grammar": ["a"]}, "grammar is .*; a text"),
        ({"json_schema": "{"}, "json_schema is not JSON"),
        ({"json_schema": "3"}, "json_schema is 3"),
        ({"json_schema": False}, "json_schema is False"),
        ({"json_schema": {"a": {1, 2}}}, "json_schema is not JSON"),
        ({"json_schema": True, "regex": "a"}, "json_schema and regex are given"),
    ],
)
def test_nonsense_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Sampling(**changes)


def test_one_stop_string_may_be_given_without_a_list() -> None:
    assert Sampling(stop="END").stop == ("END",)


def test_numbers_of_numpy_are_numbers() -> None:
    values = np.array([1.0, 3.0, 2.0], np.float32)
    bias: Any = {values.argmax(): -np.inf, np.int32(0): np.float32(0.5)}
    given: Any = {"temperature": np.float32(0), "top_k": np.int64(7), "seed": np.uint64(2**64 - 1)}
    asked = Sampling(logit_bias=bias, **given)
    assert Sampler(asked).choose(values) == 2
    assert asked == Sampling(
        logit_bias={1: -math.inf, 0: 0.5}, temperature=0, top_k=7, seed=2**64 - 1
    )


@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_the_largest_penalties_leave_a_choice(name: str) -> None:
    values = np.array([2.0, -2.0, 1.0], np.float32)
    sampler = Sampler(sampling(temperature=0, penalty_window=-1, **{name: 1e9}))
    assert sampler.choose(values, [0, 1] * 1000) == 2


@settings(deadline=None, max_examples=200)
@given(
    seed=st.integers(0, 10_000),
    count=st.one_of(st.integers(2, 60), st.integers(2000, 6000)),
    spread=st.sampled_from([0.0, 0.01, 1.0, 5.0, 1e6]),
    top_k=st.sampled_from([2, 40, 256]),
    top_p=st.sampled_from([0.001, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    temperature=st.sampled_from([1e-5, 0.8, 3.0]),
)
def test_few_candidates_weigh_what_arrays_of_them_do(
    seed: int,
    count: int,
    spread: float,
    top_k: int,
    top_p: float,
    min_p: float,
    temperature: float,
) -> None:
    asked = Sampling(top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature, seed=seed)
    values = logits_of(seed, count, spread)
    tokens, weights = Sampler(asked)._weights(values, (), None)
    assert tokens is not None
    order = survivors(values, asked)
    kept = min(len(tokens), len(order))
    assert list(tokens)[:kept] == order[:kept].tolist()
    chances = np.asarray(weights) / np.sum(weights)
    exact = np.exp((values[order].astype(np.float64) - values.max()) / temperature)
    expected = np.zeros(max(len(tokens), len(order)))
    expected[: len(order)] = exact / exact.sum()
    # Where a running sum ends just at a bound, one of the two may keep one more.
    assert abs(len(tokens) - len(order)) <= 1
    if len(tokens) == len(order):
        np.testing.assert_allclose(chances, expected, rtol=1e-9, atol=1e-300)
    token = Sampler(asked).choose(values)
    assert token in list(tokens)
    assert weights[list(tokens).index(token)] > 0
