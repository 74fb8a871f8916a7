"""Kernels that are alike are built once, and read as if each had been built by itself."""

from __future__ import annotations

import numpy as np

from arenite import ir
from arenite.backends.cpu.backend import BACKEND
from arenite.codegen.kernel_choices import build_chosen, build_each, form_of, nameless_texts
from arenite.codegen.printer import kernel_text
from arenite.dtype import BY_NAME
from arenite.ir.graph import Graph
from arenite.passes import run
from arenite.schedule import fuse
from arenite.schedule.kernel import Kernel
from arenite.tensor import Tensor, asarray, concat, spec
from tests.passes.lists import PASSES


def kernels_of(*outputs: Tensor) -> tuple[Kernel, ...]:
    graph, _ = run(Graph.of([x.node for x in outputs]), PASSES)
    return fuse(graph).kernels


def layers(x: Tensor, n: int) -> Tensor:
    rng = np.random.default_rng(0)
    for _ in range(n):
        w = asarray(rng.standard_normal((16, 16)).astype(np.float32))
        x = (x @ w).gelu()
        x = (x - x.mean(1, keepdims=True)) * 0.5
        x = concat([x[:, 8:], -x[:, :8]], 1).softmax(1)
    return x


def test_repeated_layers_are_built_once_and_read_the_same() -> None:
    kernels = kernels_of(layers(spec((12, 16)).argument("x", 0), 6))
    built = dict(build_each(kernels, BACKEND.build, {}))
    assert len({id(one.loops.body) for one in built.values()}) <= len(kernels) // 4
    texts = nameless_texts(built, "this_kernel")
    for kernel in kernels:
        alone = build_chosen(kernel, BACKEND.build, {})
        assert kernel_text(built[kernel.number].loops) == kernel_text(alone.loops)
        assert texts[kernel.number].replace("this_kernel", kernel.name) == kernel_text(alone.loops)
        assert (built[kernel.number].tiles, built[kernel.number].scratch) == (
            alone.tiles,
            alone.scratch,
        )


def test_what_loops_follow_from_tells_kernels_apart() -> None:
    x, y = (spec((4, 6)).argument(name, k) for k, name in enumerate("xy"))
    whole = spec((4, 6), "int32").argument("z", 2)
    seed = ir.full((), 1, BY_NAME["uint64"])
    drawn = [
        Tensor.of_node(ir.make("random_bits", seed, shape=(4, 6), counter=counter))
        for counter in (1, 2)
    ]
    different = [
        x + 1.0, x + 2.0, x * 0.0, x * -0.0, x + y, y + y, x - y, y - x, whole + 1, x.sum(0),
        x.sum(1), x[1:], x[:3], x.T + 1.0, *drawn,
    ]  # fmt: skip
    forms = [form_of(kernels_of(one)[-1]) for one in different]
    assert len(set(forms)) == len(forms)


def test_other_values_of_the_same_types_make_the_same_kernel() -> None:
    x, y, z = (spec((4, 6)).argument(name, k) for k, name in enumerate("xyz"))
    [one], [other] = kernels_of((x - y).exp()), kernels_of((y - z).exp())
    assert form_of(one) == form_of(other)
    [same] = kernels_of((x - x).exp())
    assert form_of(same) != form_of(one)
