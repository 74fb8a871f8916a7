"""A decoder with a cache of keys and values: block by block it is attention over the whole text."""

from __future__ import annotations

import gc
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, Var, device
from arenite.errors import DamagedCache, IndexOutOfRange
from arenite.program.compiled import Compiled
from arenite.runtime.executable import Executable
from arenite.tensor.compile import CompiledFunction

Array = NDArray[Any]

CONTEXT, HEADS, SIZE, WIDTH, LAYERS = 48, 4, 16, 64, 2
BLOCKS = (1, 1, 7, 3, 1, 16, 1, 8, 10)
assert sum(BLOCKS) == CONTEXT

RNG = np.random.default_rng(3)
WEIGHTS = [
    [(RNG.standard_normal((WIDTH, HEADS * SIZE)) / 8).astype(np.float32) for _ in range(3)]
    for _ in range(LAYERS)
]
TEXT = RNG.standard_normal((CONTEXT, WIDTH)).astype(np.float32)


def decoder(dtype: str, threads: int, *, by_head: bool = False) -> CompiledFunction:
    """Of a block of rows and the position of the first; keys and values are kept as `dtype`, by
    position, or by head and position."""
    shape = (HEADS, CONTEXT, SIZE) if by_head else (CONTEXT, HEADS, SIZE)
    axis = int(by_head)
    caches = [
        [arenite.State(shape, dtype, name=f"{what}{layer}") for what in "kv"]
        for layer in range(LAYERS)
    ]

    def heads(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], HEADS, SIZE).astype(dtype)

    def turned(x: Tensor) -> Tensor:
        """From position and head to head and position, or back."""
        return x.transpose(1, 0, 2)

    def step(x: Tensor, position: Tensor) -> Tensor:
        n = x.shape[0]
        end = position + Tensor.of_node(arenite.ir.size(n, position.dtype))
        for (k, v), (wq, wk, wv) in zip(caches, WEIGHTS, strict=True):
            for cache, w in ((k, wk), (v, wv)):
                rows = heads(x @ w)
                cache.write(turned(rows) if by_head else rows, at=position, axis=axis)
            keys, values = (cache.first(end, axis) for cache in (k, v))
            if not by_head:
                keys, values = turned(keys), turned(values)
            seen = turned(heads(x @ wq)).attention(
                keys, values, causal=True, offset=keys.shape[1] - n
            )
            x = x + turned(seen).reshape(n, HEADS * SIZE).astype("float32")
        return x

    rows = arenite.spec((Var("rows", 1, 16), WIDTH))
    position = arenite.spec((), "int64")
    compiled: CompiledFunction = arenite.compile(step, rows, position, threads=threads)
    return compiled


def block_by_block(compiled: CompiledFunction) -> Array:
    made, at = [], 0
    for n in BLOCKS:
        made.append(compiled(TEXT[at : at + n], np.int64(at)))
        at += n
    return np.concatenate(made)


def whole_text() -> Array:
    """The same by NumPy, at once, in double precision."""
    x = TEXT.astype(np.float64)
    hidden = np.triu(np.full((CONTEXT, CONTEXT), -np.inf), 1)
    for weights in WEIGHTS:
        q, k, v = ((x @ w).reshape(CONTEXT, HEADS, SIZE).transpose(1, 0, 2) for w in weights)
        scores = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(SIZE) + hidden)
        seen = scores / scores.sum(-1, keepdims=True) @ v
        x = x + seen.transpose(1, 0, 2).reshape(CONTEXT, -1)
    return x


@pytest.mark.parametrize("by_head", [False, True])
@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-5), ("float16", 1e-2)])
def test_block_by_block_is_the_whole_text(dtype: str, atol: float, by_head: bool) -> None:
    with decoder(dtype, 1, by_head=by_head) as compiled:
        compiled.verify()
        np.testing.assert_allclose(block_by_block(compiled), whole_text(), atol=atol)
        compiled.verify()
        per_state = CONTEXT * HEADS * SIZE * np.dtype(dtype).itemsize
        assert compiled.state.nbytes == 2 * LAYERS * per_state
        assert compiled.plan.regions["state"].nbytes == compiled.state.nbytes
        # Rows are written, and nothing else of a cache; keys are read where they lie.
        whole = [k for k in compiled.kernels if arenite.ir.bounds(k.writes_nbytes)[1] >= per_state]
        assert whole == []


@pytest.mark.parametrize("by_head", [False, True])
def test_two_threads_do_the_same_bit_for_bit(shared: None, by_head: bool) -> None:
    with (
        decoder("float32", 1, by_head=by_head) as one,
        decoder("float32", 2, by_head=by_head) as two,
    ):
        np.testing.assert_array_equal(block_by_block(one), block_by_block(two))
        for name in one.state:
            np.testing.assert_array_equal(one.state[name].numpy(), two.state[name].numpy())
        two.verify()


@pytest.mark.parametrize("by_head", [False, True])
def test_every_byte_is_declared(shared: None, by_head: bool) -> None:
    with decoder("float16", 2, by_head=by_head) as compiled:
        compiled(TEXT[:5], np.int64(0))
        for n in (1, 4):
            watched = compiled.run_checked(TEXT[5 : 5 + n], np.int64(5))
            np.testing.assert_array_equal(watched, compiled(TEXT[5 : 5 + n], np.int64(5)))


def test_ten_thousand_steps_are_bound_once_and_keep_nothing() -> None:
    with decoder("float32", 1) as compiled:
        row = TEXT[:1]
        positions = [np.int64(k) for k in range(CONTEXT)]
        for position in positions:
            compiled(row, position)
        live = device.get("cpu").stats.live_nbytes
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for k in range(10_000):
            compiled(row, positions[k % CONTEXT])
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert compiled.executables[0].n_binds == 1
        assert device.get("cpu").stats.live_nbytes == live
        assert grown < 10_000  # less than a byte a step
        compiled(TEXT[:3], np.int64(0))
        assert compiled.executables[0].n_binds == 2


def test_close_gives_the_bytes_back() -> None:
    live = device.get("cpu").stats.live_nbytes
    compiled = decoder("float32", 1)
    block_by_block(compiled)
    assert device.get("cpu").stats.live_nbytes >= live + compiled.state.nbytes
    compiled.close()
    assert device.get("cpu").stats.live_nbytes == live


def test_a_text_longer_than_the_context_raises_and_the_text_so_far_stays() -> None:
    with decoder("float32", 1) as compiled:
        compiled(TEXT[:16], np.int64(0))
        kept = compiled.state["k0"].numpy()
        with pytest.raises(IndexOutOfRange):
            compiled(TEXT[:16], np.int64(CONTEXT - 15))
        compiled.reset()
        np.testing.assert_array_equal(compiled.state["k0"].numpy(), kept)
        np.testing.assert_allclose(
            compiled(TEXT[16:20], np.int64(16)), whole_text()[16:20], atol=1e-5
        )


def test_a_saved_program_keeps_its_states() -> None:
    with decoder("float32", 1) as compiled:
        program = compiled.executables[0].compiled
        sections = {name: memoryview(data) for name, data in program.sections().items()}
        graph = compiled.executable.graph
        with Executable(graph, Compiled.from_sections(sections), threads=1) as again:
            assert again.state.keys() == compiled.state.keys()
            again(TEXT[:8], np.int64(0))
            [made] = again(TEXT[8:10], np.int64(8))
            np.testing.assert_allclose(made, whole_text()[8:10], atol=1e-5)
            again.verify()
        text = zlib.decompress(sections["program"])
        wrong = zlib.compress(text.replace(b'["state", "k0"', b'["work_", "k0"'))
        read = Compiled.from_sections(sections | {"program": memoryview(wrong)})
        with pytest.raises(DamagedCache, match="k0"):
            list(read.values)
