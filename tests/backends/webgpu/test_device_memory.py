"""The plan tells all memory that a program takes on the device: the judge is the sum of all buffers
of wgpu that are there at once."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest

import arenite
from arenite.backends.webgpu.device_memory import device_memory
from arenite.dtype import BY_NAME
from arenite.errors import DoesNotFit
from arenite.generate.model import LanguageModel
from arenite.ir import constant, graph_input, make
from arenite.ir.dim import Var
from arenite.ir.graph import Graph
from arenite.memory import Lifetime, MemoryPlan, Value, plan
from arenite.memory.values import ARENA_REGIONS
from arenite.pipeline import compile_graph, plan_graph
from arenite.program.backend import DeviceNeeds
from tests.backends.webgpu.runner import ON_WEBGPU, loaded, webgpu
from tests.generate.gguf_models import write_tiny
from tests.pipeline.graphs import GraphMaker, random_array

F32 = BY_NAME["float32"]
PLAIN = {"transpose_a": False, "transpose_b": False}


class Buffers:
    """Those that were made since, and the most bytes of them at once."""

    def __init__(self) -> None:
        self._made: WeakSet[Any] = WeakSet()
        self.most = 0

    def add(self, buffer: Any) -> Any:
        self._made.add(buffer)
        self.most = max(self.most, sum(one.size for one in self._made))
        return buffer

    def begin(self) -> None:
        """From now on: what was there for loading alone is gone."""
        gc.collect()
        self.most = sum(one.size for one in self._made)


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> Buffers:
    made, gpu = Buffers(), webgpu().device
    for name in ("create_buffer", "create_buffer_with_data"):
        create = getattr(gpu, name)
        monkeypatch.setattr(gpu, name, lambda create=create, **given: made.add(create(**given)))
    return made


#: On the host, where the device reads and writes too. For arguments wgpu has memory of its own.
STAGING = ("webgpu: arguments on their way", "webgpu: results on their way")


def check(buffers: Buffers, made: MemoryPlan) -> None:
    """All that is planned on the device is made, and nothing that is not planned."""
    least = made.nbytes_by_device["webgpu"]
    staging = sum(made.slots[name].nbytes for name in STAGING if name in made.slots)
    assert least <= buffers.most <= least + staging
    assert staging <= made.nbytes_by_device["cpu"]


def test_a_program_makes_the_buffers_that_are_planned(buffers: Buffers) -> None:
    rows = Var("n", 1, 300)
    weights = constant(np.ones((70, 90), np.float32))
    x = graph_input("x", 0, (rows, 70), F32)
    node = make("exp", make("matmul", x, weights, **PLAIN))
    with compile_graph(Graph.of([node]), ON_WEBGPU) as program:
        program(np.ones((300, 70), np.float32))
        buffers.begin()
        for n in (300, 1, 17, 299, 298, 297, 5):
            program(np.ones((n, 70), np.float32))
        check(buffers, program.plan)
        names = {slot.id for slot in program.plan.slots.values() if slot.region == "device"}
        assert {"webgpu: parameters of launches", "webgpu: errors of launches"} <= names
        program.plan.verify()
        assert MemoryPlan.from_json(program.plan.to_json()) == program.plan


@pytest.mark.parametrize("sessions", [1, 2])
def test_a_text_takes_what_is_planned_for_it(
    buffers: Buffers, tmp_path: Path, sessions: int
) -> None:
    path = write_tiny("llama-f16", tmp_path)
    most: dict[str, Any] = {"logit_bias": {3: 1.0}, "repetition_penalty": 1.2}
    with arenite.load(path, context=64, sessions=sessions, device="webgpu") as model:
        assert isinstance(model, LanguageModel)
        [*model.generate("ab", max_tokens=2)]
        buffers.begin()
        texts = [model.session().generate("ab", seed=k, **most) for k in range(sessions)]
        for _ in range(20):
            for text in texts:
                next(text, None)
        sampler = model.plan.slots["webgpu: sampler"].nbytes
        launches = loaded(model.executable)._samplers.values()
        assert sum(one.region.buffer.nbytes for one in launches) == sampler
        check(buffers, model.plan)


def test_what_reads_bytes_and_keeps_nothing_is_no_language_model() -> None:
    webgpu()
    x = graph_input("x", 0, (4, 8), BY_NAME["int32"])
    graph = Graph.of([make("exp", make("cast", x, dtype=F32))])
    assert "webgpu: sampler" not in plan_graph(graph, ON_WEBGPU).slots


def test_an_arena_that_is_cut_takes_what_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, limits = webgpu(), webgpu().limits
    for seed in range(4):
        maker = GraphMaker(seed)
        graph, arrays = maker.make(40), maker.arrays(seed)
        monkeypatch.setattr(gpu, "limits", limits)
        slots = plan_graph(graph, ON_WEBGPU).slots.values()
        largest = max(slot.capacity for slot in slots if slot.region in ARENA_REGIONS)
        cut = limits._replace(binding_nbytes=-(-largest // 256) * 256)
        monkeypatch.setattr(gpu, "limits", cut)
        with compile_graph(graph, ON_WEBGPU) as program:
            program(*arrays)
            arena = sum(one.buffer.nbytes for one in loaded(program).regions.arena)
            slot = program.plan.slots.get("webgpu: over cuts of the arena")
            assert arena == program.plan.peak_nbytes + (0 if slot is None else slot.nbytes)


def test_values_that_reach_over_a_cut_are_counted() -> None:
    """
    tick 0   [ a ][   b   ]      in two buffers of 128 bytes, the second of which begins with b:
    tick 1   [   d   ][ e ]      d reaches over
    """
    first, second = Lifetime(0, 1), Lifetime(1, 2)
    given = [
        ("a", 64, first, 0),
        ("b", 128, first, 64),
        ("d", 128, second, 0),
        ("e", 64, second, 128),
    ]
    made = plan([Value(name, size, life, pin=at) for name, size, life, at in given])
    limits = webgpu().limits._replace(binding_nbytes=128)
    assert made.peak_nbytes == 192
    nothing = DeviceNeeds((), (), (), 1)
    assert device_memory(nothing, limits, made).device["webgpu: over cuts of the arena"] == 64
    whole = device_memory(nothing, webgpu().limits, made)
    assert "webgpu: over cuts of the arena" not in whole.device


def test_a_budget_counts_it() -> None:
    webgpu()
    x = graph_input("x", 0, (4096,), F32)
    graph = Graph.of([make("exp", make("cumsum", x, axis=0))])
    whole = plan_graph(graph, ON_WEBGPU).nbytes_by_device["webgpu"]
    fits = ON_WEBGPU._replace(memory=whole)
    assert plan_graph(graph, fits).nbytes_by_device["webgpu"] <= whole
    own = sum(s.nbytes for s in plan_graph(graph, ON_WEBGPU).slots.values() if s.region == "device")
    assert own > 0
    with pytest.raises(DoesNotFit, match="the device's own"):
        plan_graph(graph, ON_WEBGPU._replace(memory=own - 1))


@pytest.mark.parametrize("objective", ["memory", "concurrency"])
def test_the_least_memory_that_a_refusal_names_is_enough_and_a_byte_less_is_not(
    monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    """Gaps between weights, and values over cuts of an arena, are known with the plan alone."""
    gpu, limits = webgpu(), webgpu().limits
    for seed in range(4):
        maker = GraphMaker(seed)
        drawn = maker.make(40)
        x = graph_input("more", len(drawn.inputs), (1, 7), F32)
        weights = [constant(random_array((7, n), F32, n)) for n in (3, 11)]
        graph = Graph.of([*drawn.outputs, *(make("matmul", x, one, **PLAIN) for one in weights)])
        options = ON_WEBGPU._replace(plan=objective)
        monkeypatch.setattr(gpu, "limits", limits)
        whole = plan_graph(graph, options)
        largest = max(one.capacity for one in whole.slots.values() if one.region in ARENA_REGIONS)
        cut = limits._replace(binding_nbytes=-(-largest // 256) * 256)
        monkeypatch.setattr(gpu, "limits", cut)
        with pytest.raises(DoesNotFit, match="The least memory known") as refused:
            plan_graph(graph, options._replace(memory=0))
        least = refused.value.smallest_known
        assert plan_graph(graph, options._replace(memory=least)).nbytes_by_device["webgpu"] <= least
        with pytest.raises(DoesNotFit) as short:
            plan_graph(graph, options._replace(memory=least - 1))
        assert short.value.smallest_known == least
