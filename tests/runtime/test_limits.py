"""Limits of a core, and operations counted exactly, so that shares mean something."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.backends.cpu.compiling import llvm
from arenite.backends.cpu.driver import limits as cpu_limits
from arenite.backends.cpu.driver.limits import limits
from arenite.backends.cpu.driver.limits_ir import limits_module
from arenite.backends.cpu.target import AVX2, AVX512, AVX512_VNNI, NEON, X86_64, Target
from arenite.device import Buffer
from arenite.dtype import BY_NAME, float32
from arenite.ir import bounds, buffer, constant, graph_input, make
from arenite.ir.graph import Graph
from arenite.ir.ops.blocks import matmul_blocks
from arenite.ir.ops.experts import matmul_experts
from arenite.pipeline import compile_graph
from arenite.program.limits import Cache, Limits
from arenite.runtime import profile
from tests.codegen.block_weights import random_blocks, weights_node

MOST = Limits(
    gflops=100.0,
    float64_gflops=50.0,
    int8_gops=400.0,
    read_gbytes=20.0,
    caches=(Cache("L1", 32_000, 200.0), Cache("L2", 1_000_000, 80.0)),
)


def test_limits_are_measured_once() -> None:
    found = limits()
    assert limits() is found
    assert min(found.gflops, found.float64_gflops, found.int8_gops, found.read_gbytes) > 0
    assert [one.name for one in found.caches] == ["L1", "L2", "L3"]
    assert all(one.read_gbytes > 0 and one.nbytes > 0 for one in found.caches)


def test_cores_that_read_at_once_have_a_part_each() -> None:
    alone, beside = limits(), limits(2)
    assert limits(2) is beside
    assert (alone.n_cores, beside.n_cores) == (1, 2)
    assert beside.read_gbytes > 0
    assert replace(beside, read_gbytes=alone.read_gbytes, n_cores=1) == alone
    assert str(beside).endswith("GB/s from memory while 2 read it")


def test_a_device_of_one_measure_tells_it_once() -> None:
    whole = Limits(9000.0, 9000.0, 9000.0, 3000.0, what="webgpu:1")
    assert str(whole) == "webgpu:1 does 9000 GFLOP/s in float32; it reads 3000.0 GB/s from memory"


def test_what_took_no_time_has_no_share() -> None:
    assert MOST.share({"float32": 100}, 4000, 0.0) == (0.0, "memory")


def test_a_kernel_is_measured_by_the_cores_that_ran_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((512, 1024), np.float32)
    with arenite.compile(lambda x: (x + 1).sum(1), x, threads=2) as program:
        program(x)
        monkeypatch.setattr(cpu_limits, "limits", lambda n_cores=1: replace(MOST, n_cores=n_cores))
        monkeypatch.setattr(profile, "default_n_threads", lambda: 2)
        found = program.profile(x)
    used = len({int(record["worker"]) for record in found.records})
    assert found.limits.n_cores == used


@pytest.mark.parametrize(
    ("arithmetic", "nbytes", "seconds", "share", "bound"),
    [
        ({"float32": 50_000_000}, 1_000_000, 1e-3, 0.5, "float32"),
        ({"float64": 40_000_000}, 1_000_000, 1e-3, 0.8, "float64"),
        ({"int8": 200_000_000, "float32": 0}, 1_000_000, 1e-3, 0.5, "int8"),
        # Both are done, one after the other; the longer one names it.
        ({"int8": 100_000_000, "float32": 50_000_000}, 0, 1e-3, 0.75, "float32"),
        ({"int8": 200_000_000, "float32": 25_000_000}, 0, 1e-3, 0.75, "int8"),
        ({"float32": 1_000_000}, 15_000_000, 1e-3, 0.75, "memory"),
        ({"float32": 0}, 15_000_000, 1e-3, 0.75, "memory"),
        ({}, 0, 1e-3, 0.0, "memory"),
        # 40 GB/s is more than memory gives: it was in the cache that holds it.
        ({"float32": 0}, 400_000, 1e-5, 0.5, "L2"),
        ({"float32": 0}, 20_000, 2e-7, 0.5, "L1"),
        ({"float32": 900_000}, 400_000, 1e-5, 0.9, "float32"),
        # More than all caches hold.
        ({"float32": 0}, 40_000_000, 1e-3, 2.0, "memory"),
    ],
)
def test_a_kernel_is_bound_by_what_takes_longest(
    arithmetic: dict[str, int], nbytes: int, seconds: float, share: float, bound: str
) -> None:
    found, name = MOST.share(arithmetic, nbytes, seconds)
    assert found == pytest.approx(share)
    assert name == bound


def test_bytes_of_one_run_decide_in_which_cache_they_were() -> None:
    assert MOST.share({}, 200_000, 2e-6, n_runs=10) == (0.5, "L1")


@pytest.mark.parametrize("target", [X86_64, AVX2, AVX512, AVX512_VNNI, NEON], ids=lambda t: t.cpu)
def test_the_loops_are_made_for_every_target(target: Target) -> None:
    """What is measured is there: no multiplication is done ahead of the loop."""
    text = llvm.assembly(limits_module(target), target)
    wanted = {
        X86_64: ("mulps", "mulpd", "pmaddwd"),
        AVX2: ("vfmadd", "pd", "vpmaddwd"),
        AVX512: ("vfmadd", "pd", "vpmaddwd"),
        AVX512_VNNI: ("vfmadd", "pd", "vpdpbusd"),
        NEON: ("fmla", "2d", "mla"),
    }[target]
    assert all(name in text for name in wanted)
    [single] = [one for one in _functions(text) if one.startswith("float32:")]
    assert sum(wanted[0] in line for line in single.splitlines()) >= 12


def _functions(text: str) -> list[str]:
    """The assembly of each function, from its label on."""
    return ["\n".join(part) for part in _parted(text.splitlines())]


def _parted(lines: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.split(":")[0] in ("float32", "float64", "int8", "read", "read_strided"):
            parts.append([])
        parts[-1].append(line)
    return parts


def test_an_epilogue_counts_once_for_each_element() -> None:
    a, b = np.ones((30, 40), np.float32), np.ones((40, 50), np.float32)
    program = arenite.compile(lambda a, b: (a @ b) * 2 + 1, a, b)
    [kernel] = program.kernels
    assert kernel.operations == 2 * 30 * 40 * 50 + 2 * 30 * 50
    [time] = program.profile(a, b).kernels
    assert time.bound in ("float32", "memory", "L1", "L2", "L3")
    assert time.limit_share > 0
    assert "of limit" in str(program.profile(a, b))


def bytes_product(epilogue: bool) -> Callable[[Any], Any]:
    weights = arenite.from_numpy(np.ones((96, 80), np.int8))

    def function(x: Any) -> Any:
        sums = x.astype("int32") @ weights.astype("int32")
        return sums.astype("float32") * 0.5 + 1.0 if epilogue else sums

    return function


def test_operations_are_counted_by_what_they_are_done_in() -> None:
    x = np.ones((50, 96), np.uint8)
    products = 2 * 50 * 96 * 80
    with arenite.compile(bytes_product(False), x) as program:
        [kernel] = program.kernels
        assert kernel.arithmetic == {"int8": products, "float32": 0}
    with arenite.compile(bytes_product(True), x) as program:
        kernel = program.kernels[-1]
        assert kernel.arithmetic["int8"] == products
        assert 2 * 50 * 80 <= bounds(kernel.arithmetic["float32"])[0] <= 3 * 50 * 80  # and a cast
        assert kernel.operations == sum(kernel.arithmetic.values())
    wide = np.ones((30, 40))
    with arenite.compile(lambda a, b: a @ b.T, wide, wide) as program:
        assert program.kernels[-1].arithmetic == {"float64": 2 * 30 * 40 * 30}


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_multiplied_in_float32_and_read_in_half_the_bytes(name: str) -> None:
    weights = np.ones((96, 64)).astype(BY_NAME[name].to_numpy())
    wide = make("cast", buffer(Buffer.from_array(weights)), dtype=float32)
    x = graph_input("x", 0, (3, 64), float32)
    product = make("matmul", x, wide, transpose_a=False, transpose_b=True)
    with compile_graph(Graph.of([product])) as program:
        [kernel] = program.kernels
        assert kernel.arithmetic == {"float32": 2 * 3 * 64 * 96}
        assert kernel.reads_nbytes == 3 * 64 * 4 + 96 * 64 * 2


def test_quantised_weights_are_products_of_bytes() -> None:
    weights = weights_node("q4_0", random_blocks("q4_0", 96, 128), 128)
    graph = Graph.of([matmul_blocks(graph_input("x", 0, (21, 128), float32), weights)])
    with compile_graph(graph) as program:
        [kernel] = [one for one in program.kernels if "int8" in one.arithmetic]
        assert kernel.arithmetic == {"int8": 2 * 21 * 96 * 128, "float32": 0}


@pytest.mark.parametrize(("name", "kind"), [("q4_0", "int8"), ("float32", "float32")])
def test_experts_count_the_products_of_those_that_are_chosen(name: str, kind: str) -> None:
    n_experts, columns, depth, rows, choices = 4, 40, 64, 5, 2
    if name == "float32":
        w = constant(np.ones((n_experts, columns, depth), np.float32))
    else:
        raw = random_blocks(name, n_experts * columns, depth)
        w = buffer(
            Buffer.from_array(raw).view(0, raw.nbytes, BY_NAME[name], (n_experts, columns, depth))
        )
    x = graph_input("x", 0, (rows, depth), float32)
    chosen = graph_input("chosen", 1, (rows, choices), BY_NAME["int64"])
    with compile_graph(Graph.of([matmul_experts(x, w, chosen)])) as program:
        counted = [one.arithmetic.get(kind, 0) for one in program.kernels]
        assert 2 * rows * choices * columns * depth in counted


def test_a_profile_as_json_names_limits() -> None:
    x = np.ones((50, 96), np.uint8)
    with arenite.compile(bytes_product(False), x) as program:
        found = program.profile(x)
    data = json.loads(found.to_json())
    assert data["limits"]["int8_gops"] == limits().int8_gops
    [one] = data["kernels"]
    [time] = found.kernels
    assert (one["name"], one["seconds"], one["bound"]) == (time.name, time.seconds, time.bound)
    assert one["gops"] == pytest.approx(2 * 50 * 96 * 80 / time.seconds / 1e9)
    assert str(found.limits) in str(found)
