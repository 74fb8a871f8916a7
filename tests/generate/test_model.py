"""Language models from files: sessions, contexts within budgets, plans before weights are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import arenite
from arenite import fetch
from arenite.backends.c.backend import CBackend
from arenite.errors import (
    BoundsError,
    DeviceUnavailable,
    DoesNotFit,
    FileMissing,
    InvalidArgument,
    InvalidFile,
    NotCompiled,
    NotSupported,
)
from arenite.frontends.language import LanguageFile
from arenite.generate import LanguageModel, Settings
from arenite.generate.budget import STEP
from arenite.pipeline import plan_graph
from arenite.program.options import Options
from arenite.runtime.executable import Executable
from tests.backends.c.executables import needs_compiler
from tests.generate.gguf_models import write_tiny

TOKENS = [1, 33, 5, 90, 12, 7, 64, 3, 77, 21, 9, 40]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny("llama", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[LanguageModel]:
    with arenite.load(path, context=96, block=8, threads=2) as loaded:
        yield loaded


def counted(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the blocks that are computed from now on."""
    sizes: list[int] = []
    run = Executable.__call__

    def counting(self: Executable, tokens: np.ndarray, position: np.int64) -> list[np.ndarray]:
        sizes.append(len(tokens))
        return run(self, tokens, position)

    monkeypatch.setattr(Executable, "__call__", counting)
    return sizes


def test_blocks_of_any_size_give_the_same_logits(model: LanguageModel) -> None:
    whole = model.session().feed(TOKENS)
    assert whole.shape == (model.file.description.n_tokens,)
    for cuts in ((1, 2, 3, 6), (4, 4, 4), (11, 1)):
        session, at = model.session(), 0
        session.reset()
        for n in cuts:
            logits = session.feed(TOKENS[at : at + n])
            at += n
        np.testing.assert_allclose(logits, whole, atol=2e-2)
        assert session.position == len(TOKENS)
        assert list(session.tokens) == TOKENS


def test_a_prefix_is_computed_once(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    first = model.session()
    expected = first.feed(TOKENS[:9])
    sizes = counted(model, monkeypatch)
    first.rewind(6)
    np.testing.assert_allclose(first.feed(TOKENS[6:9]), expected, atol=1e-3)
    assert sizes == [3]
    # A new session computes all its tokens; one that comes back what is not there any more.
    model.session().feed([*TOKENS[:4], 2])
    assert sizes == [3, 5]
    sizes.clear()
    first.feed([5])
    assert sizes == [6]


def test_sessions_do_not_disturb_each_other(model: LanguageModel) -> None:
    alone = model.session()
    alone.feed(TOKENS[:5])
    expected = alone.feed(TOKENS[5:7])
    one, other = model.session(), model.session()
    one.feed(TOKENS[:5])
    other.feed([3, 2, 1])
    np.testing.assert_allclose(one.feed(TOKENS[5:7]), expected, atol=2e-2)
    with pytest.raises(InvalidArgument, match="cannot go back to 9"):
        other.rewind(9)


def test_what_cannot_be_fed_is_refused_and_nothing_changes(model: LanguageModel) -> None:
    session = model.session()
    session.feed(TOKENS[:2])
    for tokens in ([model.file.description.n_tokens], [-1], [0] * 95):
        with pytest.raises(BoundsError):
            session.feed(tokens)
    no_tokens: tuple[Any, ...] = ([], np.array([]), [1.5], np.array([1.0]), ["a"], "a", b"a", None)
    for wrong in (*no_tokens, 5, [None], [True], np.array([[1, 2]]), np.array(3)):
        with pytest.raises(InvalidArgument, match="token"):
            session.feed(wrong)
        with pytest.raises(InvalidArgument, match="token"):
            model.pieces(wrong)
    places: tuple[Any, ...] = (3, -1, 1.5, "a", None)
    for wrong in places:
        with pytest.raises(InvalidArgument):
            session.rewind(wrong)
    assert session.position == 2
    again = model.session()
    again.feed(np.array(TOKENS[:2], np.uint8))
    assert again.tokens == session.tokens
    session.feed([0] * 94)
    with pytest.raises(BoundsError, match="context of 96"):
        session.feed([0])


def test_threads_and_runs_agree_bit_for_bit(path: Path) -> None:
    found = []
    for threads in (1, 2, 2):
        with arenite.load(path, context=96, block=8, threads=threads) as loaded:
            session = loaded.session()
            found.append([session.feed(TOKENS), session.feed([4]), session.feed([5, 6])])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_the_plan_is_known_before_weights_are_read(path: Path) -> None:
    settings = Settings(LanguageFile.open(path), context=96, block=8)
    before = settings.plan
    with arenite.load(path, context=96, block=8) as loaded:
        loaded.session().feed(TOKENS)
        assert loaded.plan.total_nbytes == before.total_nbytes
        d = loaded.file.description
        kv = 2 * d.n_layers * 96 * d.n_kv_heads * d.head_size * 2
        assert loaded.plan.regions["state"].nbytes == kv
        loaded.executable.verify()


def test_loading_tells_what_it_does(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path))
    for steps in (
        ["planning", "compiling kernels", "packing weights"],
        ["planning", "packing weights"],
    ):
        heard: list[tuple[str, int, int | None]] = []
        tell = heard.append
        with arenite.load(path, context=40, on_progress=lambda *step, to=tell: to(step)) as loaded:
            assert loaded.executable.load_ns is not None
        last = {what: (done, total) for what, done, total in heard}
        assert list(last) == steps
        assert all(done == total for what, (done, total) in last.items() if what != "planning")


def test_a_budget_is_honoured_or_refused(path: Path) -> None:
    file = LanguageFile.open(path)
    needed = Settings(file, context=96, block=8).plan.total_nbytes
    assert Settings(file, context=96, block=8, memory=needed).plan.total_nbytes == needed
    with pytest.raises(DoesNotFit, match=f"needs {needed} bytes") as caught:
        arenite.load(path, context=96, block=8, memory=needed - 1)
    assert caught.value.smallest_known == needed
    assert caught.value.live


def test_the_longest_context_that_fits_is_chosen(path: Path) -> None:
    file = LanguageFile.open(path)
    file = file._replace(description=file.description._replace(context=1000))
    longest = Settings(file, block=8)
    assert longest.context == 1000
    some = Settings(file, context=300, block=8).plan.total_nbytes
    for budget in (longest.plan.total_nbytes - 1, some):
        chosen = Settings(file, memory=budget, block=8)
        assert chosen.plan.total_nbytes <= budget
        above = Settings(file, context=min(chosen.context + STEP, 1000), block=8)
        assert above.plan.total_nbytes > budget
        assert Settings(file, memory=budget, block=8).context == chosen.context
    with pytest.raises(DoesNotFit):
        Settings(file, memory=1000)


@pytest.mark.parametrize("own", [5000, 2**31])
def test_a_budget_and_not_a_habit_bounds_the_context(path: Path, own: int) -> None:
    file = LanguageFile.open(path)
    file = file._replace(description=file.description._replace(context=own))
    assert Settings(file, block=8).context == 4096
    budget = Settings(file, context=5000, block=8).plan.total_nbytes
    chosen = Settings(file, memory=budget, block=8).context
    assert chosen == 5000 if own == 5000 else 5000 - STEP < chosen <= 5000


def test_settings_that_make_no_sense_are_refused(path: Path) -> None:
    file = LanguageFile.open(path)
    wrongs: list[dict[str, Any]] = [
        {"context": 10**9},
        {"context": 0},
        {"context": 1.5},
        {"context": "96"},
        {"context": True},
        {"kv": "int3"},
        {"kv": None},
        {"block": 0},
        {"block": 1.5},
        {"block": "8"},
        {"memory": -1},
        {"memory": 1e9},
        {"memory": True},
        {"memory": "lots"},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidArgument):
            Settings(file, **wrong)
    assert Settings(file, context=cast(Any, np.int64(96))).context == 96


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True, 10**6])
def test_threads_that_cannot_be_are_refused(path: Path, threads: Any) -> None:
    with pytest.raises(InvalidArgument, match="thread"):
        arenite.load(path, context=96, threads=threads)


@needs_compiler
def test_a_model_runs_on_the_device_that_is_asked_for(path: Path, model: LanguageModel) -> None:
    with arenite.load(path, context=96, block=8, device="c", sessions=2) as other:
        assert (other.executable.device, model.executable.device) == ("c", "cpu")
        for tokens in (TOKENS, TOKENS[::-1]):
            logits, expected = other.session().feed(tokens), model.session().feed(tokens)
            # The CPU rounds activations to bytes before products with weights in blocks.
            np.testing.assert_allclose(logits, expected, atol=2e-3 * np.abs(expected).max())


def test_a_budget_is_that_of_the_device(path: Path) -> None:
    file = LanguageFile.open(path)
    for device in ("cpu", "c"):
        settings = Settings(file, memory="4MiB", device=device)
        assert settings.plan.total_nbytes <= 4 * 2**20
        assert plan_graph(settings.graph, Options(device=device)).slots == settings.plan.slots


def test_a_device_that_cannot_hold_the_model_is_refused_with_the_reason(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(self: CBackend, kernel: object, choice: str = "") -> object:
        raise NotCompiled("this device has no int64")

    monkeypatch.setattr(CBackend, "build", build)
    for options in ({"context": 80}, {"context": 81, "memory": "1GiB"}, {"memory": "1023MiB"}):
        with pytest.raises(NotSupported, match=r"llama.gguf can't run .* 'c' yet: .* no int64; "):
            arenite.load(path, device="c", **cast(Any, options))
    with pytest.raises(DeviceUnavailable, match="'abacus'"):
        arenite.load(path, device="abacus")


def test_texts_to_embed_are_as_long_as_the_model_was_made_for(tmp_path: Path) -> None:
    file = LanguageFile.open(write_tiny("bert", tmp_path))
    longest = file.description.context
    assert Settings(file).context == longest
    for wrong in (0, longest + 1):
        with pytest.raises(InvalidArgument, match=f"a context of {wrong} tokens"):
            Settings(file, context=wrong)


def test_a_model_that_is_named_is_fetched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def obtain(model: object, **options: object) -> Path:
        asked.append(model)
        return path

    monkeypatch.setattr(fetch, "obtain", obtain)
    with arenite.load("some-model", context=96, block=8) as loaded:
        assert loaded.file.path == str(path)
    with arenite.load(path, context=96, block=8):
        assert asked == ["some-model"]


def test_a_name_of_nothing_says_what_names_there_are() -> None:
    with pytest.raises(FileMissing, match="smollm2-135m-instruct"):
        arenite.load("no-such-model.gguf")


def test_eight_bits_take_half_the_room(path: Path, model: LanguageModel) -> None:
    expected = model.session().feed(TOKENS)
    with arenite.load(path, context=96, block=8, kv="int8") as small:
        d = small.file.description
        rows = 2 * d.n_layers * 96 * d.n_kv_heads
        assert small.plan.regions["state"].nbytes == rows * (d.head_size + 2)
        logits = small.session().feed(TOKENS)
    spread = float(np.std(expected))
    assert 0 < np.abs(logits - expected).max() < 0.2 * spread


def test_a_file_of_another_shape_is_refused_by_name(path: Path) -> None:
    file = LanguageFile.open(path)
    missing = {name: t for name, t in file.tensors.items() if name != "blk.1.attn_q.weight"}
    broken = LanguageFile(file.path, file.description, missing, file.gguf)
    with pytest.raises(InvalidFile, match=r"blk\.1\.attn_q\.weight"):
        broken.graph(context=32, block=8, kv=Settings(file, context=32).kv)
    swapped = dict(file.tensors)
    swapped["blk.1.attn_q.weight"] = file.tensors["blk.1.ffn_up.weight"]
    broken = LanguageFile(file.path, file.description, swapped, file.gguf)
    with pytest.raises(InvalidFile, match="ask for"):
        broken.graph(context=32, block=8, kv=Settings(file, context=32).kv)


def test_a_model_for_text_makes_no_embeddings(model: LanguageModel) -> None:
    with pytest.raises(NotSupported, match="embeddings"):
        model.embed(["a"])
