"""Language models on WebGPU, from a file to text: they follow the CPU's.

Both compute in float32 and sum in another order. Where activations are quantised to 8 bits a sum
that is rounded otherwise may become another number, and layers make more of that. `BOUNDS` are the
greatest differences of a logit, given the same tokens; where greedy texts part, the CPU's two best
logits lie within twice of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite.backends.webgpu import recorder
from arenite.errors import BoundsError, DoesNotFit, IndexOutOfRange, RaceFound
from arenite.generate.model import LanguageModel
from tests.backends.webgpu.runner import loaded, webgpu
from tests.generate.gguf_models import TINY, write_model, write_tiny

#: By the file of `write_tiny`: their logits have a standard deviation of about 4.
BOUNDS = {"llama": 2e-3, "llama-f16": 2e-3, "qwen2-q4_0": 0.5}
CONTEXT = 48
TOKENS = [5, 17, 200, 31, 8, 99, 45]
N_WRITTEN = 12


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: write_tiny(name, folder) for name in BOUNDS}


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> Iterator[LanguageModel]:
    webgpu()
    with arenite.load(files["llama-f16"], context=CONTEXT, block=8, device="webgpu") as found:
        assert isinstance(found, LanguageModel)
        yield found


def fed(model: LanguageModel, tokens: list[int], n_first: int) -> NDArray[np.float32]:
    """The logits after the first tokens, read at once, and after each of the others."""
    session = model.session()
    parts = [tokens[:n_first], *([token] for token in tokens[n_first:])]
    return np.array([session.feed(part) for part in parts])


def written(model: LanguageModel, prompt: list[int], count: int) -> list[int]:
    """The likeliest tokens, one after another."""
    session = model.session()
    logits = session.feed(prompt)
    tokens = [int(np.argmax(logits))]
    while len(tokens) < count:
        tokens.append(int(np.argmax(session.feed(tokens[-1:]))))
    return tokens


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_its_logits_and_its_text_follow_the_cpus(files: dict[str, Path], name: str) -> None:
    webgpu()
    bound = BOUNDS[name]
    with (
        arenite.load(files[name], context=CONTEXT, device="webgpu") as on_gpu,
        arenite.load(files[name], context=CONTEXT) as on_cpu,
    ):
        assert isinstance(on_gpu, LanguageModel)
        assert isinstance(on_cpu, LanguageModel)
        text = written(on_gpu, TOKENS, N_WRITTEN)
        tokens = [*TOKENS, *text]
        found, wanted = (fed(one, tokens, len(TOKENS)) for one in (on_gpu, on_cpu))
    assert np.abs(found - wanted).max() < bound
    for logits, token in zip(wanted, text, strict=False):
        if int(np.argmax(logits)) != token:
            first, second = np.sort(logits)[-2:][::-1]
            assert first - second < 2 * bound
            break


def test_however_a_text_is_cut_it_says_the_same(model: LanguageModel) -> None:
    """Blocks of eight at the most: the longer text is read in two."""
    tokens = [*TOKENS, *TOKENS[::-1]]
    at_once, one_by_one = fed(model, tokens, len(tokens)), fed(model, tokens, 1)
    assert np.abs(at_once[-1] - one_by_one[-1]).max() < BOUNDS["llama-f16"]
    np.testing.assert_array_equal(fed(model, tokens, 1), one_by_one)


def test_the_same_seed_gives_the_same_text(model: LanguageModel) -> None:
    texts = [
        "".join(model.generate(TOKENS, seed=seed, max_tokens=8, temperature=1.5))
        for seed in (3, 3, 4)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_all_of_it_is_on_the_device_and_proven(model: LanguageModel) -> None:
    program = model.executable
    program.verify()
    assert {kernel.device for kernel in program.kernels} == {"webgpu"}
    regions = loaded(program).regions
    assert sum(one.buffer.nbytes for one in regions.weights) >= model.file.nbytes
    assert all(one.read_only for one in regions.weights)


def test_a_launch_writes_what_it_declares(model: LanguageModel) -> None:
    session = model.session()
    session.feed(TOKENS)
    before = session.feed([3])
    arguments = model.settings.arguments([3], len(TOKENS))
    [checked] = model.executable.run_checked(*arguments)
    np.testing.assert_array_equal(checked[-1], before)


def test_a_position_outside_of_the_context_is_an_error(model: LanguageModel) -> None:
    with pytest.raises(BoundsError):
        model.session().feed([1] * (CONTEXT + 1))
    tokens, position, keys = model.settings.arguments([1], CONTEXT - 1)
    with pytest.raises(IndexOutOfRange, match="computed_update"):
        model.executable(tokens, position + 1, keys)
    model.executable.reset()
    with pytest.raises(IndexOutOfRange, match="gather"):
        model.executable(tokens + 10**6, position, keys)
    model.executable.reset()


def test_a_budget_counts_the_memory_of_the_device(files: dict[str, Path]) -> None:
    webgpu()
    with pytest.raises(DoesNotFit):
        arenite.load(files["llama"], memory="100 KiB", device="webgpu")


def test_launches_that_wait_for_the_same_are_one_dispatch(tmp_path: Path) -> None:
    """Six a layer of twelve: queries, keys and values; what turns and keeps them; attention; what
    mixes heads; gate and up; down."""
    webgpu()
    counts = []
    for n_layers in (1, 2):
        path = tmp_path / f"{n_layers}.gguf"
        write_model(path, replace(TINY["llama-q4_0"], n_layers=n_layers))
        with arenite.load(path, context=CONTEXT, device="webgpu") as model:
            assert isinstance(model, LanguageModel)
            table = loaded(model.executable).bound_table({"tokens": 1, "keys": 9})
            launches = len(model.executable.compiled.launches)
            counts.append((table.n_dispatches, launches, table.n_barriers))
    (one, _, _), (two, launches, barriers) = counts
    assert two - one == 6 < 12 == launches - counts[0][1]
    assert barriers < two < launches


def test_the_next_token_is_recorded_ahead(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = loaded(model.executable)
    made: list[tuple[dict[str, int], bool]] = []
    record = program._record_run

    def noted(sizes: dict[str, int], arrays: Any) -> Any:
        made.append((dict(sizes), arrays is None))
        return record(sizes, arrays)

    monkeypatch.setattr(program, "_record_run", noted)
    found = fed(model, TOKENS, 1)
    # The third token goes on as the second did: from then on each is recorded by the one before.
    assert [sizes["keys"] for sizes, is_ahead in made if is_ahead] == [4, 5, 6, 7, 8]
    assert [sizes["keys"] for sizes, is_ahead in made if not is_ahead] == [1, 2, 3]
    program._expected = None  # and nothing is: the same
    monkeypatch.setattr(program, "_record_ahead", lambda sizes: None)
    np.testing.assert_array_equal(fed(model, TOKENS, 1), found)


def test_launches_are_recorded_alike_without_native_code(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fed(model, TOKENS, 3)
    called = recorder._called_walk()
    monkeypatch.setattr(recorder, "_walk", lambda: called)
    np.testing.assert_array_equal(fed(model, TOKENS, 3), found)


def test_a_set_of_launches_that_conflict_is_found(model: LanguageModel) -> None:
    program = loaded(model.executable)
    model.executable.verify()
    sets = program.order.sets
    at = len(sets) - 3  # the last norm, and the product that reads it
    broken = [*sets[:at], [*sets[at], *sets[at + 1]], *sets[at + 2 :]]
    backwards = [*sets[:at], sets[at + 1], sets[at], *sets[at + 2 :]]
    try:
        for wrong in (broken, backwards):
            vars(program.order)["sets"] = wrong
            with pytest.raises(RaceFound):
                model.executable.verify()
    finally:
        vars(program.order)["sets"] = sets


def test_a_profile_counts_dispatches_and_barriers(model: LanguageModel) -> None:
    profile = model.executable.profile(*model.settings.arguments([3], 0))
    assert len(profile.kernels) == len(model.executable.kernels)
    assert "dispatches in 1 passes" in str(profile)
    assert "behind a barrier" in str(profile)


def test_every_session_has_states_of_its_own(files: dict[str, Path]) -> None:
    webgpu()
    with arenite.load(files["llama-f16"], context=CONTEXT, sessions=2, device="webgpu") as model:
        assert isinstance(model, LanguageModel)
        alone = fed(model, TOKENS, 2)
        one, other = model.session(), model.session()
        for k, token in enumerate(TOKENS):
            found = one.feed([token])
            other.feed([TOKENS[-1 - k]])
        np.testing.assert_allclose(found, alone[-1], atol=BOUNDS["llama-f16"])
