"""Small kernels on arrays of int64, so that NumPy gives the very same bits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from arenite.backends.cpu.driver import layout, native
from arenite.backends.cpu.driver.ir_text import Function, Module, Value
from arenite.backends.cpu.driver.native import BoundTable

AFFINE_TILE = 64
STEP_TILE = 8
GROW_TILE = 8
CHUNK = 64
GATHER_TILE = 16
GATHER_WIDTH = 8
OUT_OF_RANGE = 7


def address(array: NDArray[Any]) -> int:
    where: int = array.__array_interface__["data"][0]
    return where


def of_each_thread(word: int) -> list[int]:
    """A word of each worker's record, by its offset in `layout.Worker`."""
    team = native.team()
    first = team.address + layout.Team.WORKERS
    return [
        ctypes.c_int64.from_address(first + k * layout.Worker.NBYTES + word).value
        for k in range(team.n_threads)
    ]


def n_away() -> int:
    """Workers that rest, or are to try their CPU."""
    return ctypes.c_uint32.from_address(native.team().address + layout.Team.N_AWAY).value


def n_polls(model: BoundTable) -> int:
    """How often runs of a table took the GIL to look for signals."""
    return ctypes.c_int64.from_address(model.address + layout.Run.N_POLLS).value


def kernel_module() -> str:
    module = Module()
    for name, body in KERNELS.items():
        f = module.function(
            name, "void", exported=True, window="ptr", first="i64", last="i64", worker="ptr"
        )
        body(f)
    return module.text()


def _args(f: Function, kinds: str) -> list[Value]:
    types = {"p": "ptr", "i": "i64"}
    return [f.load(types[kind], f["window"], 8 * i) for i, kind in enumerate(kinds)]


def _item(f: Function, array: Value, index: Value) -> Value:
    return f.load("i64", array, f.shl(index, 3))


def _set_item(f: Function, array: Value, index: Value, value: Value) -> None:
    f.store(value, array, f.shl(index, 3))


def _least(f: Function, a: Value, b: Value) -> Value:
    return f.select(f.lt(a, b), a, b)


def _mix(f: Function) -> None:
    """out[t] depends on all of x and y, and on their order; `delay` rounds for nothing."""
    out, x, y, n, delay = _args(f, "pppii")
    with f.count(f["first"], f["last"]) as t:
        total = f.variable("i64", f.mul(t, 7919))
        with f.count(0, n) as k:
            place = f.op("i64", f"urem i64 {f.add(k, t).text}, {n.text}")
            both = f.add(f.mul(_item(f, x, k), 3), _item(f, y, place))
            total.set(f.add(f.mul(total.get(), 31), both))
        with f.count(0, delay):
            total.set(f.add(f.mul(total.get(), 6364136223846793005), 1))
        _set_item(f, out, t, total.get())


def _increment(f: Function) -> None:
    """p[i] += 1 for 64 of them."""
    [p] = _args(f, "p")
    for i in range(0, 64, 8):
        text = f"load <8 x i64>, ptr {f.at(p, 8 * i).text}, align 8"
        more = f.op("<8 x i64>", f"add <8 x i64> {f.op('<8 x i64>', text).text}, splat (i64 1)")
        f.store(more, p, 8 * i)


def _copy(f: Function) -> None:
    """out[:n] = x[:n], in one tile."""
    out, x, n = _args(f, "ppi")
    with f.count(0, n) as i:
        _set_item(f, out, i, _item(f, x, i))


def _affine(f: Function) -> None:
    """out = x * k + 1, in tiles of 64."""
    out, x, k = _args(f, "ppi")
    with f.count(f.mul(f["first"], AFFINE_TILE), f.mul(f["last"], AFFINE_TILE)) as i:
        _set_item(f, out, i, f.add(f.mul(_item(f, x, i), k), 1))


def _step(f: Function) -> None:
    """out[j] = y[j] = sum(s) + 3 s[(j + 1) % n] + x[j], in tiles of 8."""
    s, out, x, y, n = _args(f, "ppppi")
    with f.count(f.mul(f["first"], STEP_TILE), f.mul(f["last"], STEP_TILE)) as j:
        total = f.variable("i64", _item(f, x, j))
        with f.count(0, n) as k:
            total.set(f.add(total.get(), _item(f, s, k)))
        place = f.op("i64", f"urem i64 {f.add(j, 1).text}, {n.text}")
        result = f.add(total.get(), f.mul(_item(f, s, place), 3))
        _set_item(f, out, j, result)
        _set_item(f, y, j, result)


def _grow(f: Function) -> None:
    """row[j] = rows + sum of column j of v, in tiles of 8."""
    v, rows, row, width = _args(f, "pipi")
    with f.count(f.mul(f["first"], GROW_TILE), f.mul(f["last"], GROW_TILE)) as j:
        total = f.variable("i64", rows)
        with f.count(0, rows) as k:
            total.set(f.add(total.get(), _item(f, v, f.add(f.mul(k, width), j))))
        _set_item(f, row, j, total.get())


def _go_on(f: Function) -> None:
    row, flag, limit = _args(f, "ppi")
    goes_on = f.lt(f.load("i64", row), limit)
    f.store(f.convert("zext", goes_on, "i8"), flag)


def _count_chunks(f: Function) -> None:
    """counts[t] = how many of chunk t are not zero."""
    x, counts, n = _args(f, "ppi")
    with f.count(f["first"], f["last"]) as t:
        found = f.variable("i64", 0)
        stop = _least(f, n, f.mul(f.add(t, 1), CHUNK))
        with f.count(f.mul(t, CHUNK), stop) as i:
            is_one = f.convert("zext", f.ne(_item(f, x, i), 0), "i64")
            found.set(f.add(found.get(), is_one))
        _set_item(f, counts, t, found.get())


def _scan(f: Function) -> None:
    """firsts = exclusive sums of counts; the total goes to a register."""
    counts, firsts, n, total_place = _args(f, "ppip")
    total = f.variable("i64", 0)
    with f.count(0, n) as t:
        _set_item(f, firsts, t, total.get())
        total.set(f.add(total.get(), _item(f, counts, t)))
    f.store(total.get(), total_place)


def _write_indices(f: Function) -> None:
    x, firsts, indices, n = _args(f, "pppi")
    with f.count(f["first"], f["last"]) as t:
        place = f.variable("i64", _item(f, firsts, t))
        stop = _least(f, n, f.mul(f.add(t, 1), CHUNK))
        with f.count(f.mul(t, CHUNK), stop) as i, f.if_(f.ne(_item(f, x, i), 0)):
            _set_item(f, indices, place.get(), i)
            place.set(f.add(place.get(), 1))


def _gather(f: Function) -> None:
    """y[i] = data[indices[i]], rows of 8; an index out of range is an error."""
    data, indices, y, n, limit = _args(f, "pppii")
    stop = _least(f, n, f.mul(f["last"], GATHER_TILE))
    with f.count(f.mul(f["first"], GATHER_TILE), stop) as i:
        index = _item(f, indices, i)
        with f.if_(f.eq(f.below(index, limit), 0)):
            f.store(Value("i64", str(OUT_OF_RANGE)), f.load("ptr", f["worker"], 8))
            f.ret()
        for j in range(GATHER_WIDTH):
            value = _item(f, data, f.add(f.mul(index, GATHER_WIDTH), j))
            _set_item(f, y, f.add(f.mul(i, GATHER_WIDTH), j), value)


def _reduce_columns(f: Function) -> None:
    """parts[t] = sums over a chunk of rows of x."""
    x, parts, rows, width, a_tile = _args(f, "ppiii")
    with f.count(f["first"], f["last"]) as t, f.count(0, width) as j:
        total = f.variable("i64", 0)
        stop = _least(f, rows, f.mul(f.add(t, 1), a_tile))
        with f.count(f.mul(t, a_tile), stop) as i:
            total.set(f.add(total.get(), _item(f, x, f.add(f.mul(i, width), j))))
        _set_item(f, parts, f.add(f.mul(t, width), j), total.get())


def _reduce_rows(f: Function) -> None:
    """y[t] = sum of row t."""
    x, y, width = _args(f, "ppi")
    with f.count(f["first"], f["last"]) as t:
        total = f.variable("i64", 0)
        with f.count(0, width) as j:
            total.set(f.add(total.get(), _item(f, x, f.add(f.mul(t, width), j))))
        _set_item(f, y, t, total.get())


def _busy(f: Function) -> None:
    """`rounds` steps of a generator for each tile, from the tile on; out[t] = the last."""
    out, rounds = _args(f, "pi")
    with f.count(f["first"], f["last"]) as t:
        state = f.variable("i64", t)
        with f.count(0, rounds):
            state.set(f.add(f.mul(state.get(), 6364136223846793005), 1442695040888963407))
        _set_item(f, out, t, state.get())


def _fail(f: Function) -> None:
    """Set the error word, to `code`, in tile `which`."""
    code, which = _args(f, "ii")
    hit = f.and_(f.le(f["first"], which), f.lt(which, f["last"]))
    with f.if_(hit):
        f.store(code, f.load("ptr", f["worker"], 8))


def _meet(f: Function) -> None:
    """Count arrivals; wait until `wanted` have arrived, or for `rounds` looks at most."""
    arrived, wanted, rounds = _args(f, "pii")
    f.exchange("add", arrived, 0, Value("i64", "1"))
    with f.count(0, rounds), f.if_(f.le(wanted, f.load("i64", arrived, order="acquire"))):
        f.break_()


def _nap(f: Function) -> None:
    """Meet; then who is not the caller calls `sleep`, a function of the C library, with `n`."""
    arrived, wanted, sleep, n = _args(f, "pipi")
    f.exchange("add", arrived, 0, Value("i64", "1"))
    with f.loop(), f.if_(f.le(wanted, f.load("i64", arrived, order="acquire"))):
        f.break_()
    with f.if_(f.ne(f.load("i64", f["worker"]), 0)):
        f.call("i32", sleep, f.convert("trunc", n, "i32"))


KERNELS: dict[str, Callable[[Function], None]] = {
    "mix": _mix,
    "increment": _increment,
    "copy": _copy,
    "affine": _affine,
    "step": _step,
    "grow": _grow,
    "go_on": _go_on,
    "count_chunks": _count_chunks,
    "scan": _scan,
    "write_indices": _write_indices,
    "gather": _gather,
    "reduce_columns": _reduce_columns,
    "reduce_rows": _reduce_rows,
    "busy": _busy,
    "fail": _fail,
    "meet": _meet,
    "nap": _nap,
}
