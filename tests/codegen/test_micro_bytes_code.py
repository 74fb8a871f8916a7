"""The code of products and convolutions of bytes: other targets, instructions, listings.

Operands end where a page begins that must not be touched (in a child process, which a read there
would end).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from arenite import ir
from arenite.backends.cpu.build import build
from arenite.backends.cpu.bytes import tile as bytes_tile
from arenite.backends.cpu.compiling.llvm import assembly, compile_object
from arenite.backends.cpu.gemm.kernel import MicroKernel
from arenite.backends.cpu.lowering.lower import lower
from arenite.backends.cpu.lowering.vector import Vec
from arenite.codegen.printer import kernel_text
from arenite.dtype import of as dtype_of
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.schedule import fuse
from tests.codegen import targets
from tests.codegen.building import AtTheEdge
from tests.codegen.bytes_kernels import (
    EXTREMES,
    PLAIN,
    POINT,
    Case,
    Shape,
    check_conv,
    check_product,
    conv_arrays,
    made_conv,
    made_product,
    product_arrays,
)
from tests.codegen.made import Array
from tests.codegen.run_kernels import RUNNABLE


@pytest.mark.parametrize("name", ["_SINGLE", "_SIGNED_DOTS"])
def test_other_ways_to_multiply_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of targets that are not this machine, with its instructions."""

    def signed_dot(total: Vec, a: Vec, b: Vec) -> Vec:
        for k in range(4):
            of_word = [range(k, x.type.lanes, 4) for x in (a, b)]
            one, other = (
                x.builder.shuffle(x, None, lanes).convert("sext", total.type)
                for x, lanes in zip((a, b), of_word, strict=True)
            )
            total = total + one * other
        return total

    monkeypatch.setattr(bytes_tile, "_signed_dot", signed_dot)
    monkeypatch.setattr(bytes_tile, "word_dot", lambda target: getattr(bytes_tile, name))
    for is_signed in (False, True):
        check_product(Shape((9,), 38, 50, is_signed=is_signed), "host", [*EXTREMES])
        check_conv(replace(PLAIN, pad_value=129, is_signed=is_signed), "host", [*EXTREMES])


@pytest.mark.parametrize("name", ["neon", "avx512", "avx512vnni"])
@pytest.mark.parametrize("has_dots", [False, True])
def test_other_targets_compile(name: str, has_dots: bool) -> None:
    target = targets.named(name)
    if has_dots and name == "neon":
        features = f"+dotprod,{target.features}"
        target = replace(target, has_vnni=True, features=features)
    for node in (_product_node(False), _product_node(True), _conv_node()):
        [kernel] = fuse(Graph.of([node])).kernels
        built = build(kernel, target)
        assert isinstance(built.loops, MicroKernel)
        assert compile_object(lower(built.loops, target), target)


def _product_node(is_signed: bool) -> Node:
    arrays, _ = product_arrays(Shape((20,), 30, 40, is_signed=is_signed))
    return ir.make("matmul_bytes", *_inputs(arrays), columns=40)


def _conv_node() -> Node:
    arrays, _ = conv_arrays(replace(PLAIN, end="none"))
    return ir.make("conv_bytes", *_inputs(arrays), **PLAIN.attrs)


def _inputs(arrays: Sequence[Array]) -> list[Node]:
    return [
        ir.graph_input(f"x{k}", k, array.shape, dtype_of(array.dtype))
        for k, array in enumerate(arrays)
    ]


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.skipif(not targets.host().has_vnni, reason="this machine has no such instruction")
def test_words_are_multiplied_by_one_instruction(is_signed: bool) -> None:
    """A signed one is read, turned and spread by one more."""
    made = made_product(Shape((64,), 64, 64, is_signed=is_signed), "host")
    text = lower(made.loops, made.target)
    assert "vpdpbusd" in text
    assert "pmadd" not in text
    code = assembly(text, made.target)
    assert bool(re.search(r"vpxord\t.*\(%.*\{1to16\}", code)) == is_signed


def test_the_listing_tells_apart_what_is_compiled_differently() -> None:
    listings = {
        kernel_text(replace(made_conv(case, "host").loops, name="kernel"))
        for case in (
            PLAIN,
            replace(PLAIN, pad_value=1),
            replace(PLAIN, pad_value=2),
            replace(PLAIN, is_signed=True),
            replace(PLAIN, end="bias"),
            replace(PLAIN, end="none"),
            replace(PLAIN, padding=((1, 1), (0, 2))),
            replace(PLAIN, channels=21),
            POINT,
            replace(POINT, channels=21),
            replace(POINT, channels=22),
        )
    }
    assert len(listings) == 11


EDGES: list[Shape | Case] = [
    Shape((13,), 37, 19),
    Shape((1,), 1027, 33),
    Shape((5, 3), 6, 20),
    Shape((40,), 64, 16),
    Shape((9,), 3, 100),
    Shape((13,), 37, 19, is_signed=True),
    replace(PLAIN, end="none"),
    replace(PLAIN, end="none", is_signed=True),
    replace(PLAIN, channels=3, end="none"),
    replace(POINT, channels=7, strides=(2, 2), end="none"),
    replace(POINT, channels=5, groups=3, end="none"),
    replace(PLAIN, padding=((0, 0), (0, 0)), channels=16, end="none"),
]


@pytest.mark.parametrize("target", RUNNABLE)
def test_nothing_behind_the_end_is_read(target: str) -> None:
    command = [sys.executable, "-m", "tests.codegen.test_micro_bytes_code", target]
    child = subprocess.run(command, capture_output=True, text=True)
    assert child.returncode == 0, f"{child.stdout.splitlines()[-1:]} {child.stderr[-500:]}"
    assert len(child.stdout.splitlines()) == len(EDGES)


def main(target: str) -> None:
    for one in EDGES:
        print(one, flush=True)
        if isinstance(one, Shape):
            made, (arrays, expected) = made_product(one, target), product_arrays(one)
        else:
            made, (arrays, expected) = made_conv(one, target), conv_arrays(one)
        edges = [AtTheEdge(array) for array in arrays]
        [got] = made.run([edge.array for edge in edges])
        np.testing.assert_array_equal(got, expected)


if __name__ == "__main__":
    main(sys.argv[1])
