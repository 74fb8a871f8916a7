"""Kernels written by hand in the loop IR against NumPy (and PyTorch, where installed), one thread.

    python bench/elementwise.py [--target host] [--rounds 30] [--only softmax]

Each line: microseconds, bytes moved a second, share of what a plain copy of the same size reaches,
and how many times longer NumPy and PyTorch take. Times are the best of the rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from arenite.codegen import llvm, target
from arenite.codegen import loop_ir as ir
from arenite.codegen.lower import lower
from arenite.dtype import BY_NAME
from arenite.runtime.link import link_object
from arenite.runtime.loader import load_code

Array = np.ndarray[Any, Any]

F32 = BY_NAME["float32"]
I64 = ir.INT64
#: Rows a tile of the row kernels; a launch is cut so that threads have something to claim.
ROWS_A_TILE = 8
COLUMNS_A_TILE = 256


@dataclass(frozen=True)
class Work:
    """A kernel, its arrays (the output last), its sizes, and who else can do the same."""

    name: str
    kernel: ir.LoopKernel
    arrays: list[Array]
    sizes: list[int]
    tiles: int
    nbytes: int
    numpy: Callable[[], Any]
    torch: Callable[[Any], Callable[[], Any]] | None = None


def n(text: str, dtype: Any = I64) -> ir.Name:
    return ir.Name(text, dtype)


def f32(value: float) -> ir.Const:
    return ir.Const(value, F32)


def binary(op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return ir.Binary(op, a, b)


def mul(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return binary("mul", a, b)


def each(var: str, stop: ir.Expr, *body: ir.Stmt, unroll: int = 0) -> ir.For:
    return ir.For(var, ir.index(0), stop, body, True, unroll)


def rows(*body: ir.Stmt) -> tuple[ir.Stmt, ...]:
    """A body for every row `r` of the tile."""
    first = n("tile") * ROWS_A_TILE
    last = ir.Binary("min", first + ROWS_A_TILE, n("rows"))
    return (ir.For("r", first, last, body),)


def kernel(
    name: str, inputs: list[str], body: tuple[ir.Stmt, ...], sizes: tuple[str, ...]
) -> ir.LoopKernel:
    arrays = [ir.ArrayArg(x, I64 if x == "ids" else F32, "in") for x in inputs]
    arrays.append(ir.ArrayArg("y", F32, "out"))
    return ir.LoopKernel(name, tuple(arrays), sizes, n("tiles"), "tile", body)


X = ir.Load("x", n("r") * n("columns") + n("c"), F32)
Y_AT = n("r") * n("columns") + n("c")
COLUMNS = n("columns")


def softmax() -> ir.LoopKernel:
    body = rows(
        ir.Accumulator("top", f32(float("-inf"))),
        each("c", COLUMNS, ir.Accumulate("top", "max", X)),
        ir.Accumulator("total", f32(0.0)),
        each(
            "c",
            COLUMNS,
            ir.Let("e", ir.Unary("exp", binary("sub", X, n("top", F32)))),
            ir.Accumulate("total", "add", n("e", F32)),
            ir.Store("y", Y_AT, n("e", F32)),
        ),
        ir.Let("scale", ir.Unary("reciprocal", n("total", F32))),
        each("c", COLUMNS, ir.Store("y", Y_AT, mul(ir.Load("y", Y_AT, F32), n("scale", F32)))),
    )
    return kernel("softmax", ["x"], body, ("rows", "columns", "tiles"))


def norm(name: str, centred: bool) -> ir.LoopKernel:
    """Layer norm, or without the mean rms norm."""
    share = ir.Let("share", ir.Unary("reciprocal", ir.Cast(COLUMNS, F32)))
    mean = (
        ir.Accumulator("sum", f32(0.0)),
        each("c", COLUMNS, ir.Accumulate("sum", "add", X)),
        ir.Let("mean", mul(n("sum", F32), n("share", F32))),
    )
    moved = binary("sub", X, n("mean", F32)) if centred else X
    weight, bias = ir.Load("w", n("c"), F32), ir.Load("b", n("c"), F32)
    scaled = mul(mul(moved, n("scale", F32)), weight)
    variance = binary("add", mul(n("squares", F32), n("share", F32)), f32(1e-5))
    body = rows(
        share,
        *(mean if centred else ()),
        ir.Accumulator("squares", f32(0.0)),
        each("c", COLUMNS, ir.Accumulate("squares", "add", mul(moved, moved))),
        ir.Let("scale", ir.Unary("rsqrt", variance)),
        each("c", COLUMNS, ir.Store("y", Y_AT, binary("add", scaled, bias) if centred else scaled)),
    )
    inputs = ["x", "w", "b"] if centred else ["x", "w"]
    return kernel(name, inputs, body, ("rows", "columns", "tiles"))


def pointwise(name: str, value: ir.Expr) -> ir.LoopKernel:
    """y[i] = value, over tiles of 16384 elements."""
    size = 16384
    stop = ir.Binary("min", n("tile") * size + size, n("count"))
    body = ir.For("i", n("tile") * size, stop, (ir.Store("y", n("i"), value),), True)
    return kernel(name, ["x"], (body,), ("count", "tiles"))


ELEMENT = ir.Load("x", n("i"), F32)


def gelu() -> ir.LoopKernel:
    inside = ir.Unary("erf", mul(ELEMENT, f32(0.7071067811865476)))
    return pointwise("gelu", mul(mul(ELEMENT, f32(0.5)), binary("add", inside, f32(1.0))))


def chain() -> ir.LoopKernel:
    value: ir.Expr = ELEMENT
    for at in range(10):
        value = binary("add", mul(value, f32(1.0 - at / 64)), f32(at / 32 - 0.1))
    return pointwise("chain20", value)


def reduce_rows(op: str) -> ir.LoopKernel:
    start = f32(float("-inf") if op == "max" else 0.0)
    total: ir.Expr = n("total", F32)
    if op == "mean":
        total = binary("div", total, ir.Cast(COLUMNS, F32))
    body = rows(
        ir.Accumulator("total", start),
        each("c", COLUMNS, ir.Accumulate("total", "max" if op == "max" else "add", X)),
        ir.Store("y", n("r"), total),
    )
    return kernel(f"{op}_rows", ["x"], body, ("rows", "columns", "tiles"))


def reduce_columns(op: str) -> ir.LoopKernel:
    start = f32(float("-inf") if op == "max" else 0.0)
    total: ir.Expr = n("total", F32)
    if op == "mean":
        total = binary("div", total, ir.Cast(n("rows"), F32))
    step = ir.Accumulate("total", "max" if op == "max" else "add", X)
    first = n("tile") * COLUMNS_A_TILE
    last = ir.Binary("min", first + COLUMNS_A_TILE, COLUMNS)
    inside = (
        ir.Accumulator("total", start),
        ir.For("r", ir.index(0), n("rows"), (step,)),
        ir.Store("y", n("c"), total),
    )
    body = (ir.For("c", first, last, inside, True, 8),)
    return kernel(f"{op}_columns", ["x"], body, ("rows", "columns", "tiles"))


def transpose() -> ir.LoopKernel:
    """y is columns x rows; tiles of 64 rows of y, in blocks of 64 columns."""
    first = n("tile") * 64
    last = ir.Binary("min", first + 64, COLUMNS)
    block = ir.Binary("min", n("j0") * 64 + 64, n("rows"))
    store = ir.Store("y", n("i") * n("rows") + n("j"), ir.Load("x", n("j") * COLUMNS + n("i"), F32))
    inner = ir.For("j", n("j0") * 64, block, (store,), True)
    tile = ir.For("i", first, last, (inner,), True)
    body = (ir.For("j0", ir.index(0), (n("rows") + 63) // 64, (tile,)),)
    return kernel("transpose", ["x"], body, ("rows", "columns", "tiles"))


def concat() -> ir.LoopKernel:
    """Two arrays side by side."""
    out = n("r") * (COLUMNS * 2) + n("c")
    body = rows(
        each("c", COLUMNS, ir.Store("y", out, X)),
        each("c", COLUMNS, ir.Store("y", out + COLUMNS, ir.Load("x2", Y_AT, F32))),
    )
    return kernel("concat", ["x", "x2"], body, ("rows", "columns", "tiles"))


def gather_rows() -> ir.LoopKernel:
    row = ir.Load("ids", n("r"), I64)
    body = rows(each("c", COLUMNS, ir.Store("y", Y_AT, ir.Load("x", row * COLUMNS + n("c"), F32))))
    return kernel("gather_rows", ["x", "ids"], body, ("rows", "columns", "tiles"))


def works() -> list[Work]:
    found: list[Work] = []
    for height, width in ((1024, 1024), (64, 4096)):
        found += row_works(height, width)
    found += reduction_works(1024, 1024) + movement_works(1024, 1024)
    x = random(1_000_000)
    found.append(
        Work(
            "chain of 20, 10^6",
            chain(),
            [x, empty(*x.shape)],
            [x.size, -(-x.size // 16384)],
            -(-x.size // 16384),
            2 * x.nbytes,
            lambda: chain_numpy(x),
            lambda torch: on(lambda t: chain_numpy(t), torch, x),
        )
    )
    return found


def empty(*shape: int) -> Array:
    """Aligned to a cache line, as the arena aligns its values."""
    nbytes = 4 * math.prod(shape)
    raw = np.zeros(nbytes + 64, np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + nbytes].view(np.float32).reshape(shape)


def random(*shape: int) -> Array:
    x = empty(*shape)
    x[...] = np.random.default_rng(0).standard_normal(shape)
    return x


def chain_numpy(value: Any) -> Any:
    for at in range(10):
        value = value * np.float32(1.0 - at / 64).item() + np.float32(at / 32 - 0.1).item()
    return value


def on(function: Callable[..., Any], torch: Any, *arrays: Array) -> Callable[[], Any]:
    """The function on these arrays as PyTorch's tensors."""
    tensors = [torch.from_numpy(array) for array in arrays]
    return lambda: function(*tensors)


def row_works(height: int, width: int) -> list[Work]:
    x, w, b = random(height, width), random(width), random(width)
    y = empty(*x.shape)
    size = f"{height}x{width}"
    tiles = -(-height // ROWS_A_TILE)
    sizes = [height, width, tiles]

    def numpy_softmax() -> Any:
        e = np.exp(x - x.max(1, keepdims=True))
        e /= e.sum(1, keepdims=True)
        return e

    def numpy_layer_norm() -> Any:
        moved = x - x.mean(1, keepdims=True)
        variance = np.square(moved).mean(1, keepdims=True)
        return moved / np.sqrt(variance + np.float32(1e-5)) * w + b

    def numpy_rms_norm() -> Any:
        return x / np.sqrt(np.square(x).mean(1, keepdims=True) + np.float32(1e-5)) * w

    def numpy_gelu() -> Any:
        return 0.5 * x * (1.0 + np.vectorize(math.erf, otypes=[np.float32])(x * 0.70710678))

    def of(torch: Any, name: str) -> Callable[[], Any]:
        tx, tw, tb = (torch.from_numpy(a) for a in (x, w, b))
        functional = torch.nn.functional
        return {
            "softmax": lambda: torch.softmax(tx, 1),
            "layer norm": lambda: functional.layer_norm(tx, (width,), tw, tb),
            "rms norm": lambda: functional.rms_norm(tx, (width,), tw, 1e-5),
            "gelu": lambda: functional.gelu(tx),
        }[name]

    def work(name: str, k: ir.LoopKernel, arrays: list[Array], numpy: Callable[[], Any]) -> Work:
        return Work(
            f"{name} {size}",
            k,
            arrays,
            sizes,
            tiles,
            2 * x.nbytes,
            numpy,
            lambda torch: of(torch, name),
        )

    count = -(-x.size // 16384)
    return [
        work("softmax", softmax(), [x, y], numpy_softmax),
        work("layer norm", norm("layer_norm", True), [x, w, b, y], numpy_layer_norm),
        work("rms norm", norm("rms_norm", False), [x, w, y], numpy_rms_norm),
        Work(
            f"gelu {size}",
            gelu(),
            [x, y],
            [x.size, count],
            count,
            2 * x.nbytes,
            numpy_gelu,
            lambda torch: of(torch, "gelu"),
        ),
    ]


def reduction_works(height: int, width: int) -> list[Work]:
    x = random(height, width)
    found = []
    for op in ("sum", "max", "mean"):
        for axis in (1, 0):
            k = (reduce_rows if axis else reduce_columns)(op)
            tiles = -(-height // ROWS_A_TILE) if axis else -(-width // COLUMNS_A_TILE)

            def numpy(op: str = op, axis: int = axis) -> Array:
                result: Array = getattr(x, op)(axis)
                return result

            def in_torch(torch: Any, op: str = op, axis: int = axis) -> Callable[[], Any]:
                t = torch.from_numpy(x)
                name = "amax" if op == "max" else op
                return lambda: getattr(torch, name)(t, dim=axis)

            y = empty(height if axis else width)
            name = f"{op} over axis {axis}"
            sizes = [height, width, tiles]
            found.append(Work(name, k, [x, y], sizes, tiles, x.nbytes, numpy, in_torch))
    return found


def movement_works(height: int, width: int) -> list[Work]:
    x, x2 = random(height, width), random(height, width)
    ids = np.random.default_rng(1).integers(0, height, height)
    tiles = -(-height // ROWS_A_TILE)
    sizes = [height, width, tiles]
    return [
        Work(
            "transpose",
            transpose(),
            [x, empty(width, height)],
            [height, width, -(-width // 64)],
            -(-width // 64),
            2 * x.nbytes,
            lambda: np.ascontiguousarray(x.T),
            lambda torch: on(lambda t: t.T.contiguous(), torch, x),
        ),
        Work(
            "concat of two",
            concat(),
            [x, x2, empty(height, 2 * width)],
            sizes,
            tiles,
            4 * x.nbytes,
            lambda: np.concatenate([x, x2], 1),
            lambda torch: on(lambda t, u: torch.cat([t, u], 1), torch, x, x2),
        ),
        Work(
            "gather rows",
            gather_rows(),
            [x, ids, empty(*x.shape)],
            sizes,
            tiles,
            2 * x.nbytes,
            lambda: x[ids],
            lambda torch: on(lambda t, i: t[i], torch, x, ids),
        ),
    ]


class Runner:
    """One compiled kernel, called as the driver calls it."""

    def __init__(self, work: Work, name: str) -> None:
        compiled_for = target.named(name)
        began = time.perf_counter()
        text = lower(work.kernel, compiled_for)
        self.lower_ms = (time.perf_counter() - began) * 1e3
        began = time.perf_counter()
        image = link_object(llvm.compile_object(text, compiled_for))
        self.compile_ms = (time.perf_counter() - began) * 1e3
        self.code = load_code(image.image)
        word = ctypes.c_int64
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, word, word, ctypes.c_void_p)
        self.function = signature(self.code.address(image.entries[work.kernel.name]))
        addresses = [array.ctypes.data for array in work.arrays]
        self.window = np.array([*addresses, *work.sizes], np.int64)
        self.worker = np.zeros(2, np.int64)
        self.arguments = (self.window.ctypes.data, 0, work.tiles, self.worker.ctypes.data)

    def __call__(self) -> None:
        self.function(*self.arguments)


def best(function: Callable[[], Any], rounds: int) -> float:
    """Seconds of the quickest of some calls."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def copy_rate(nbytes: int, name: str, rounds: int) -> float:
    """Bytes a second of a plain copy that reads and writes `nbytes` in all."""
    count = nbytes // 8
    x = random(count)
    tiles = -(-count // 16384)
    work = Work(
        "copy",
        pointwise("copy", ELEMENT),
        [x, empty(*x.shape)],
        [count, tiles],
        tiles,
        nbytes,
        lambda: x.copy(),
    )
    return nbytes / best(Runner(work, name), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="host")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    try:
        torch: Any = importlib.import_module("torch")
        torch.set_num_threads(1)
    except ImportError:
        torch = None
    print(f"{'':24}{'us':>9}{'GB/s':>8}{'share':>7}{'NumPy':>8}{'torch':>8}{'lower':>8}{'LLVM':>8}")
    for work in works():
        if options.only not in work.name:
            continue
        runner = Runner(work, options.target)
        runner()
        assert np.allclose(work.arrays[-1], work.numpy(), rtol=1e-4, atol=1e-5), work.name
        ours = best(runner, options.rounds)
        rate = work.nbytes / ours
        share = rate / copy_rate(work.nbytes, options.target, options.rounds)
        slow = "gelu" in work.name
        numpy = best(work.numpy, 2 if slow else options.rounds) / ours
        line = f"{work.name:24}{ours * 1e6:9.1f}{rate / 1e9:8.1f}{share:7.0%}{numpy:8.2f}"
        if torch is not None and work.torch is not None:
            line += f"{best(work.torch(torch), options.rounds) / ours:8.2f}"
        else:
            line += f"{'-':>8}"
        print(line + f"{runner.lower_ms:8.2f}{runner.compile_ms:8.1f}", flush=True)


if __name__ == "__main__":
    main()
