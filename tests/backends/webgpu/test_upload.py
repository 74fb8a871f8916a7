"""Weights on their way to the device, and pipelines that are made meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.backends.webgpu import compile as compiling
from arenite.backends.webgpu import upload
from arenite.errors import RunFailed
from arenite.generate.model import LanguageModel
from tests.backends.webgpu.runner import loaded, webgpu
from tests.generate.gguf_models import write_tiny


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose matrices take several parts each."""
    webgpu()
    monkeypatch.setattr(upload, "STAGING_NBYTES", 4096)
    return write_tiny("llama-f16", tmp_path)


def test_weights_arrive_in_parts_through_buffers_that_take_turns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[upload.Upload] = []
    of_uploads = upload._parts

    def noted(uploads: Any) -> Any:
        parts.extend(of_uploads(uploads))
        return parts

    monkeypatch.setattr(upload, "_parts", noted)
    with arenite.load(path, context=32, device="webgpu") as model:
        assert isinstance(model, LanguageModel)
        program = loaded(model.executable)
        assert len(parts) > 2 * upload.N_STAGING * upload.N_THREADS
        for number, (region, at) in program.regions.weight_at.items():
            constant = program._constants[number]
            there = np.frombuffer(region.buffer.view(at, constant.nbytes).copyout(), np.uint8)
            storage = constant.storage
            wanted = constant.array().tobytes() if storage is None else storage.copyout()
            assert there.tobytes() == wanted


def test_what_goes_wrong_on_the_way_is_raised(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> memoryview:
        raise RunFailed("memory could not be mapped")

    monkeypatch.setattr(upload, "map_buffer", refused)
    with pytest.raises(RunFailed, match="could not be mapped"):
        arenite.load(path, context=32, device="webgpu")


def test_pipelines_are_made_in_threads_each_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, threading.Thread]] = []
    make = compiling._pipeline

    def noted(device: Any, text: str, bound: Any) -> Any:
        made.append((text, threading.current_thread()))
        return make(device, text, bound)

    monkeypatch.setattr(compiling, "_pipeline", noted)
    monkeypatch.setattr(compiling, "_pipelines", type(compiling._pipelines)())
    with arenite.load(path, context=32, device="webgpu") as model:
        assert isinstance(model, LanguageModel)
        n_loaded = len(made)
        model.session().feed([1])
    texts = [text for text, _ in made]
    assert n_loaded > 5
    assert len(texts) == n_loaded  # none for the first token
    assert len({*texts}) == len(texts)
    assert threading.main_thread() not in [thread for _, thread in made]
