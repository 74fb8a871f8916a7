"""Kernels without checks of their accesses: those of which it is proven that none leaves its array.
The judge of the proof is a walk over all points of small kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from arenite.backends.webgpu.bounds_proof import unproven
from arenite.backends.webgpu.compile import shaders_of
from arenite.codegen import loop_ir as ir
from arenite.dtype import BY_NAME
from arenite.errors import IndexOutOfRange
from arenite.ir import constant, graph_input, make
from arenite.ir.compose.neural import attention
from arenite.ir.dim import Dim, Var
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.blocks import matmul_blocks
from arenite.pipeline import compile_graph
from tests.backends.webgpu.runner import ON_WEBGPU, launch, webgpu
from tests.codegen.block_weights import random_blocks, weights_node

F32, I8, I32, INT64 = (BY_NAME[name] for name in ("float32", "int8", "int32", "int64"))
N = Var("n", 1, 1000)
MAYBE_NONE = Var("n", 0, 1000)


PLAIN = {"transpose_a": False, "transpose_b": False}


def x(*shape: Dim) -> Node:
    return graph_input("x", 0, shape, F32)


def blocks_product(name: str, rows: Dim) -> Node:
    weights = weights_node(name, random_blocks(name, 24, 512), 512)
    return matmul_blocks(x(rows, 512), weights)


def gathered() -> Node:
    return make("gather", x(5, 4), graph_input("at", 1, (3,), INT64), axis=0)


def padded_image() -> Node:
    image = graph_input("x", 0, (1, 8, N, 9), F32)
    weights = graph_input("w", 1, (16, 8, 3, 3), F32)
    sizes = {"strides": (2, 1), "padding": ((1, 1), (0, 0)), "dilations": (1, 1), "groups": 1}
    return make("conv", image, weights, **sizes)


def attended() -> Node:
    given = [graph_input(name, k, (4, N, 64), F32) for k, name in enumerate("qkv")]
    return attention(*given, causal=True)


GRAPHS: dict[str, Callable[[], Node]] = {
    "a map": lambda: make("exp", x(40)),
    "a sum": lambda: make("sum", x(9, 70), axes=(1,)),
    "a view": lambda: make("permute", x(3, 4, 5), axes=(2, 0, 1)),
    "a view of any size": lambda: make("permute", x(N, 4, N), axes=(2, 0, 1)),
    "what may have nothing": lambda: make("add", *[graph_input("x", 0, (MAYBE_NONE,), I8)] * 2),
    "a padded sum": lambda: make(
        "sum", make("pad", x(N, 7), padding=((2, 1), (0, 3)), value=0.0), axes=(0,)
    ),
    "a product of any size": lambda: make(
        "matmul", x(N, 70), graph_input("w", 1, (70, N), F32), **PLAIN
    ),
    "rows that data names, under a mask": gathered,
    "blocks of lines, one after another": lambda: make("cumsum", x(N, 700, 3), axis=1),
    "updates in their order": lambda: make(
        "scatter_elements",
        *(x(5, N), graph_input("at", 1, (9, N), INT64), graph_input("y", 2, (9, N), F32)),
        axis=0,
        reduction="add",
    ),
    "a convolution of any size": padded_image,
    "rows by floats, few or many": lambda: make(
        "matmul", x(N, 64), constant(np.ones((64, 72), np.float32)), **PLAIN
    ),
    "a row by blocks": lambda: blocks_product("q8_0", 1),
    "a few rows by blocks": lambda: blocks_product("q4_k", 8),
    "attention": attended,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_proven_is_not_checked_and_says_so(name: str) -> None:
    webgpu()
    with compile_graph(Graph.of([GRAPHS[name]()]), ON_WEBGPU) as program:
        shaders = shaders_of(program.compiled.image)
        used = [
            one for launch in program.compiled.launches for one in shaders[launch.entry].every()
        ]
        assert {one.is_proven for one in used} == {True}
        assert {one.code.partition("\n")[0] for one in program.kernels} == {"// accesses: proven"}


def test_a_number_from_a_table_is_checked() -> None:
    """sin of large angles takes words of 2 / pi from a table, by an index from its argument."""
    webgpu()
    with compile_graph(Graph.of([make("sin", x(40))]), ON_WEBGPU) as program:
        shaders = shaders_of(program.compiled.image)
        [kernel] = [one for one in program.compiled.launches if "sin" in one.name]
        assert "table_" in shaders[kernel.entry].text
        assert not shaders[kernel.entry].is_proven


def test_text_that_does_not_say_what_it_accesses_is_checked() -> None:
    webgpu()
    with compile_graph(Graph.of([blocks_product("q8_0", 40)]), ON_WEBGPU) as program:
        [text] = [one.code for one in program.kernels if "foreign(" in one.code]
        assert text.startswith("// accesses: checked by the device, for what text of")


# Loops that are made by hand: in0 and out0 have so many elements.

TILE, SIZE = ir.Name("tile"), ir.Name("size_n")


def kernel(*body: ir.Stmt, sizes: tuple[str, ...] = ()) -> ir.GroupKernel:
    arrays = (ir.ArrayArg("in0", I32, "in"), ir.ArrayArg("out0", I32, "out"))
    return ir.GroupKernel("k", arrays, sizes, ir.index(1), "tile", body, threads=1)


def proof(body: Sequence[ir.Stmt], count: Dim, tiles: Dim = 10) -> str:
    loops = kernel(*body, sizes=("size_n",))
    return unproven(loops, {"in0": count, "out0": count}, {"size_n": N}, tiles)


def read(at: ir.Expr, mask: ir.Expr | None = None) -> ir.Expr:
    return ir.Cast(ir.Load("in0", at, I32, mask), ir.INT64)


def put(at: ir.Expr, mask: ir.Expr | None = None) -> ir.Store:
    return ir.Store("out0", at, ir.Const(1, I32), mask)


def test_one_element_too_few_is_not_proven() -> None:
    assert proof([put(TILE)], 10) == ""
    assert proof([put(TILE)], 9) == "out0[tile], of 9"
    assert proof([put(TILE - 1)], 10) == "out0[tile - 1], of 10"
    assert proof([ir.Let("v", read(TILE + 1))], 10) == "in0[tile + 1], of 10"


def test_sizes_are_followed_as_what_they_are() -> None:
    loop = [ir.For("k", ir.index(0), SIZE, (put(TILE * SIZE + ir.Name("k")),))]
    assert proof(loop, 10 * N) == ""
    assert proof(loop, 10 * N - 1) != ""
    assert proof(loop, 5000) != ""  # enough for some sizes
    turned = [
        ir.Let("row", ir.Name("k") // SIZE),
        ir.Let("column", ir.Name("k") % SIZE),
        put(ir.Name("column") * SIZE + ir.Name("row")),
    ]
    loop = [ir.For("k", ir.index(0), SIZE * SIZE, tuple(turned))]
    assert proof(loop, N * N) == ""
    assert proof(loop, N * N - 1) != ""


def test_what_comes_from_data_is_proven_under_a_mask_alone() -> None:
    at = ir.Name("at")
    found = ir.Let("at", read(ir.index(0)))
    inside = (at >= 0) & (at < SIZE)
    assert proof([found, put(at)], N) != ""
    assert proof([found, put(at, inside)], N) == ""
    assert proof([found, put(at, at < SIZE)], N) != ""
    assert proof([found, put(at, inside)], N - 1) != ""
    assert proof([found, put(at + 1, inside)], N) != ""
    assert proof([found, ir.If(inside, (put(at),))], N) == ""
    assert proof([found, ir.If(inside, (), (put(at),))], N) != ""
    clamped = ir.Binary("max", ir.index(0), ir.Binary("min", at, SIZE - 1))
    assert proof([found, put(clamped)], N) == ""
    # The sum may have wrapped where it is compared: it is small, what it is made of is not.
    assert proof([found, put(at, (at + SIZE >= 0) & (at + SIZE < SIZE))], N) != ""
    every = ir.For("k", ir.index(0), at, (put(ir.Name("k")),))
    assert proof([found, every], N) != ""
    summed = [ir.Accumulator("at", ir.index(0)), put(at)]
    assert proof(summed, N) != ""


def test_a_mask_reads_the_first_element_where_it_does_not_hold() -> None:
    given: dict[str, Dim] = {"in0": MAYBE_NONE, "out0": 1}
    load = ir.Let("v", ir.Load("in0", TILE, I32, TILE < SIZE))
    loops = kernel(load, sizes=("size_n",))
    assert unproven(loops, given, {"size_n": MAYBE_NONE}, 1) != ""
    assert unproven(loops, {**given, "in0": N}, {"size_n": N}, 1) == ""


def test_a_loop_that_ends_at_the_end_of_32_bits_is_not_proven() -> None:
    def loop(last: int) -> ir.GroupKernel:
        every = ir.For("k", ir.index(0), ir.index(last), (), vector=True)
        return replace(kernel(every), threads=64)

    assert unproven(loop(2**31 - 64), {}, {}, 1) == ""
    assert unproven(loop(2**31 - 63), {}, {}, 1) == "where the loop over k ends"


def test_accesses_that_text_states_are_proven() -> None:
    lane = ir.Access(
        "in0", ir.Name("lane") * 4 + ir.Name("q"), (("lane", SIZE - 1), ("q", ir.index(3)))
    )
    said = ir.Foreign("", (), ("in0",), (), accesses=(lane,))
    assert proof([said], 4 * N) == ""
    assert proof([said], 4 * N - 1) != ""
    assert "text" in proof([ir.Foreign("", (), ("in0",), ())], 4 * N)


def test_nothing_is_proven_by_a_range_that_may_be_empty() -> None:
    """As a row of a product of no rows, which its text reads all the same."""
    for most in (ir.index(-1), SIZE - 2):
        row = ir.Access("in0", ir.Name("row"), (("row", most),))
        assert "row" in proof([ir.Foreign("", (), ("in0",), (), accesses=(row,))], N)


# Any kernel that is proven stays inside, at every point.


def index(chance: Random, names: tuple[str, ...], depth: int = 2) -> ir.Expr:
    """Something of loop variables and the size."""
    if depth == 0 or chance.random() < 0.3:
        leaves = [*map(ir.Name, names), ir.index(chance.randint(-2, 7))]
        return chance.choice(leaves)
    op = chance.choice("add add sub mul min max floordiv mod".split())
    by = SIZE if chance.random() < 0.5 else ir.index(chance.randint(1, 6))
    right = by if op in ("floordiv", "mod") else index(chance, names, depth - 1)
    return ir.Binary(op, index(chance, names, depth - 1), right)


def random_body(chance: Random) -> list[ir.Stmt]:
    """A loop with a store in it, under a mask or not."""
    outside = ("tile", "size_n")
    inside = (*outside, "k", "named")
    at, mask = index(chance, inside), None
    if chance.random() < 0.5:
        sides = [index(chance, inside) for _ in range(3)]
        ops = chance.choices(["lt", "le", "gt", "ge", "eq"], k=2)
        mask = ir.Binary(ops[0], at, sides[0]) & ir.Binary(ops[1], sides[1], sides[2])
    start = ir.index(0) if chance.random() < 0.5 else index(chance, outside)
    let = ir.Let("named", index(chance, inside[:3]))
    return [ir.For("k", start, index(chance, outside), (let, put(at, mask)))]


_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "and": lambda a, b: a and b,
}


def number(expr: ir.Expr, names: dict[str, int]) -> int:
    if isinstance(expr, ir.Const):
        return int(expr.value)
    if isinstance(expr, ir.Name):
        return names[expr.name]
    assert isinstance(expr, ir.Binary)
    return _NUMBERS[expr.op](number(expr.a, names), number(expr.b, names))


def stored_at(body: list[ir.Stmt], tiles: int, n: int) -> set[int]:
    """Every index that is stored to."""
    found = set()
    [loop] = body
    assert isinstance(loop, ir.For)
    let, store = loop.body
    assert isinstance(let, ir.Let)
    assert isinstance(store, ir.Store)
    for tile in range(tiles):
        names = {"tile": tile, "size_n": n}
        for k in range(number(loop.start, names), number(loop.stop, names)):
            inside = {**names, "k": k}
            inside["named"] = number(let.value, inside)
            if store.mask is None or number(store.mask, inside):
                found.add(number(store.index, inside))
    return found


SMALL = Var("n", 1, 5)


def test_what_is_proven_stays_inside_at_every_point() -> None:
    n_proven = n_tight = 0
    for seed in range(1500):
        chance = Random(seed)
        body, tiles = random_body(chance), chance.randint(1, 4)
        of_size, more = chance.choice([0, 1, 3]), chance.randint(0, 12)
        count = of_size * SMALL + more
        loops = kernel(*body, sizes=("size_n",))
        if unproven(loops, {"in0": count, "out0": count}, {"size_n": SMALL}, tiles) == "":
            n_proven += 1
            for n in range(SMALL.low, SMALL.high + 1):
                found = stored_at(body, tiles, n)
                assert all(0 <= at < of_size * n + more for at in found), seed
                n_tight += of_size * n + more - 1 in found
    assert n_proven > 300
    assert n_tight > 30  # with one element less it would be wrong


# On the device.


def test_an_access_outside_by_construction_is_kept_inside() -> None:
    webgpu()
    far = kernel(put(TILE * 2**20))
    assert unproven(far, {"in0": 4, "out0": 4}, {}, 4) == "out0[tile * 1048576], of 4"
    arrays = {"in0": np.zeros(4, np.int32), "out0": np.zeros(4, np.int32)}
    narrow = ir.GroupKernel(
        *far.parts[:3],
        ir.Const(1, ir.INT32),
        "tile",
        (ir.Store("out0", ir.Name("tile", ir.INT32) * 2**20, ir.Const(1, I32)),),
        threads=1,
        index_dtype=ir.INT32,
        unproven="out0[tile * 1048576], of 4",
    )
    launch(narrow, arrays, [], 4)
    assert arrays["out0"][0] == 1
    assert not arrays["out0"][1:3].any()
    assert not arrays["in0"].any()


def test_a_row_that_is_not_there_is_told_and_others_are_right() -> None:
    webgpu()
    given = np.arange(20, dtype=np.float32).reshape(5, 4)
    with compile_graph(Graph.of([gathered()]), ON_WEBGPU) as program:
        np.testing.assert_array_equal(program(given, np.array([4, 0, 2]))[0], given[[4, 0, 2]])
        with pytest.raises(IndexOutOfRange):
            program(given, np.array([4, 5, 2]))
        program.reset()
        np.testing.assert_array_equal(program(given, np.array([1, 0, 2]))[0], given[[1, 0, 2]])
