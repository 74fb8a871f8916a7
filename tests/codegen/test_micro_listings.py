"""What machine code register tiles become: the innermost loop, registers, nothing from outside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from arenite import ir
from arenite.backends.cpu.compiling import llvm
from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.lowering.lower import lower
from arenite.codegen.printer import kernel_text
from arenite.ir.dim import Var
from arenite.tensor import Tensor
from tests.codegen import targets
from tests.codegen.products import Made

MULTIPLY_ADDS = re.compile(r"\b(vfmadd\w+|fmla)\b")
JUMP = re.compile(r"\t(?:j\w+|b\.\w+|cbn?z\s+\w+,)\s+(\.L\w+)")


def times(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def times_transposed(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.T


def listing(function: Callable[..., Tensor], shapes: Any, target: str) -> dict[str, list[str]]:
    """The instructions of each function."""
    built = Made(function, shapes, target=target).built
    compiled_for = targets.named(target)
    text = llvm.assembly(lower(built.loops, compiled_for), compiled_for)
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        title = re.match(r"([\w.]+):", line)
        if title is not None and not line.startswith(".L"):
            lines = found.setdefault(title[1], [])
        else:
            lines.append(line)
    return found


def innermost_loop(lines: list[str]) -> list[str]:
    """The instructions of the loop without a loop inside that has the most multiply-adds."""
    labels: dict[str, int] = {}
    best: list[str] = []
    for at, line in enumerate(lines):
        label = re.match(r"(\.L\w+):", line)
        if label is not None:
            labels[label[1]] = at
        jump = JUMP.match(line)
        if jump is not None and jump[1] in labels:
            inside = lines[labels[jump[1]] : at + 1]
            body = [x for x in inside if x.startswith("\t") and not x.startswith("\t.")]
            is_innermost = sum(JUMP.match(x) is not None for x in body) == 1
            if is_innermost and n_multiply_adds(body) > n_multiply_adds(best):
                best = body
    return best


def n_multiply_adds(lines: list[str]) -> int:
    return sum(MULTIPLY_ADDS.search(line) is not None for line in lines)


@pytest.mark.parametrize(
    ("target", "tile", "n_sums", "n_most"),
    [("avx512", "tile14x2", 28, 50), ("avx2", "tile6x2", 12, 26), ("neon", "tile9x3", 27, 44)],
)
def test_the_loop_of_a_tile_stays_in_registers(
    target: str, tile: str, n_sums: int, n_most: int
) -> None:
    functions = listing(times, [(126, 256), (256, 192)], target)
    loop = innermost_loop(next(lines for name, lines in functions.items() if name.endswith(tile)))
    assert n_multiply_adds(loop) == n_sums
    assert len(loop) <= n_most
    assert not any("%rsp" in line or "[sp" in line for line in loop)


@pytest.mark.parametrize("target", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("rows", [1, 4])
def test_the_loop_of_row_dots_stays_in_registers(rows: int, target: str) -> None:
    [lines] = [
        lines
        for name, lines in listing(times_transposed, [(rows, 512), (256, 512)], target).items()
        if ".dots" in name
    ]
    loop = innermost_loop(lines)
    assert n_multiply_adds(loop) >= 8
    assert not any("%rsp" in line or "[sp" in line for line in loop)


def op(name: str, **attrs: Any) -> Callable[..., Tensor]:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return Tensor.of_node(ir.make(name, x.node, w.node, **attrs))

    return function


def attention(q: Tensor, k: Tensor) -> Tensor:
    return q.attention(k, k, causal=True)


PADDED = {"strides": (1, 1), "dilations": (1, 1), "padding": ((1, 1), (1, 1))}
#: What other generators make: a function, shapes, and the multiply-adds of its longest loop.
OTHERS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]], int]] = {
    "convolution": (
        op("conv_last", channels=64, **PADDED),
        [(1, 28, 28, 32), (1, 4, 3, 3, 32, 16)],
        12,
    ),
    "strips": (op("depthwise_last", **PADDED), [(1, 28, 28, 32), (3, 3, 32)], 9),
    "winograd": (
        op("conv_winograd", channels=64, padding=((1, 1), (1, 1))),
        [(1, 28, 28, 32), (4, 4, 4, 32, 16)],
        10,
    ),
    "panels": (op("matmul_panels", columns=64), [(60, 128), (4, 128, 16)], 12),
    "attention": (attention, [(1, 4, 100, 64), (1, 4, 100, 64)], 12),
    "attention of one": (attention, [(1, 4, 1, 64), (1, 4, 100, 64)], 4),
}


@pytest.mark.parametrize("target", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_generators_multiply_and_add_whole_vectors_in_registers(
    name: str, target: str
) -> None:
    function, shapes, n_least = OTHERS[name]
    register = {"avx512": r"%zmm", "avx2": r"%ymm", "neon": r"v\d+\.4s"}[target]
    if name == "attention of one":
        register = register.replace("%zmm", "%[yz]mm")  # dots have eight sums at the most
    best: list[str] = []
    for lines in listing(function, shapes, target).values():
        loop = innermost_loop(lines)
        best = max(best, loop, key=n_multiply_adds)
    assert n_multiply_adds(best) >= n_least
    added = [line for line in best if MULTIPLY_ADDS.search(line)]
    assert all(re.search(register, line) for line in added)
    assert not any("%rsp" in line or "[sp" in line for line in best)


@pytest.mark.parametrize("target", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("function", [times_transposed, lambda a, b: (a @ b.T).gelu()])
def test_nothing_comes_from_outside(function: Any, dtype: str, target: str) -> None:
    """The linker refuses every symbol that is not in the module."""
    rows = Var("rows", 1, 300)
    built = Made(function, [(rows, 70), (45, 70)], np.dtype(dtype), target).built
    compiled_for = targets.named(target)
    image = link_objects([llvm.compile_object(lower(built.loops, compiled_for), compiled_for)])
    assert built.loops.name in image.entries


def test_text_tells_kernels_apart() -> None:
    """Kernels of one text are compiled once, so it must show all that decides the code."""

    def text(target: str, *shapes: Any) -> str:
        return kernel_text(Made(times, list(shapes), target=target).built.loops)

    assert text("avx2", (5, 6), (6, 7)) == text("avx2", (5, 6), (6, 7))
    assert text("avx2", (5, 6), (6, 7)) != text("avx512", (5, 6), (6, 7))
    assert text("avx2", (5, 6), (6, 7)) != text("avx2", (5, 6), (6, 8))
    low, high = Var("m", 1, 4), Var("m", 1, 400)
    assert text("avx2", (low, 6), (6, 7)) != text("avx2", (high, 6), (6, 7))
    assert "sum" in text("avx2", (5, 6), (6, 7))
