"""Programs that are cut: loops that grow, sizes without a bound, structure that is computed.

Judged by NumPy and by the oracle, on one thread and on two, and launch by launch."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, Var, spec
from arenite.errors import (
    BoundsError,
    DoesNotFit,
    IndexOutOfRange,
    OutOfMemory,
    RunCancelled,
    RunFailed,
    ShapeMismatch,
    TypeMismatch,
)
from arenite.ir import evaluate, verify
from arenite.pipeline.segmented import SegmentedExecutable
from arenite.tensor import arange, concat, full, ones, zeros

Array = NDArray[Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-9, 9, shape)


def check(
    function: Callable[..., Any],
    numpy_function: Callable[..., Any],
    *calls: tuple[Any, ...],
    specs: Any = (),
) -> SegmentedExecutable:
    """Equal to NumPy in all calls, whatever comes first, and by the oracle."""
    arguments = [[np.asarray(one) for one in call] for call in calls]
    wanted = [_listed(numpy_function(*arrays)) for arrays in arguments]
    for threads in (1, 2):
        executable = in_segments(function, *(specs or arguments[0]), threads=threads)
        verify(executable.graph)
        for arrays, expected in [*zip(arguments, wanted, strict=True)] * 2:
            _same(executable(*arrays), expected)
            executable.verify()
        for arrays, expected in zip(arguments, wanted, strict=True):
            _same(executable.run_checked(*arrays), expected)
            _same(evaluate(executable.graph, arrays), expected)
    return executable


def in_segments(function: Callable[..., Any], *specs: Any, threads: int) -> SegmentedExecutable:
    executable: Any = arenite.compile(function, *specs, threads=threads).executable
    assert isinstance(executable, SegmentedExecutable)
    return executable


def _listed(made: Any) -> list[Array]:
    return [np.asarray(one) for one in (made if isinstance(made, tuple) else (made,))]


def _same(results: list[Array], expected: list[Array]) -> None:
    assert len(results) == len(expected)
    for one, other in zip(results, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)


def repeated(step: Callable[[int, Any], Any]) -> Callable[[Any, Any], Any]:
    """What a loop does, in Python."""

    def run(state: Any, trips: Any) -> Any:
        for i in range(int(trips)):
            state = step(i, state)
        return state

    return run


# Loops that grow.


def test_a_loop_that_appends_runs_in_native_code_until_there_is_no_room() -> None:
    def network(x: Any, n: Any) -> Any:
        return arenite.fori_loop(n, lambda i, v: concat([v, v[-1:] * 2 % 37 + i]), x, grows=True)

    expected = repeated(lambda i, v: np.concatenate([v, v[-1:] * 2 % 37 + i]))
    executable = check(network, expected, *[(numbers(3), n) for n in (0, 1, 50, 300, 4)])
    entered = {tuple(one.sizes.values()): one.n_entered for one in executable.plan.segments}
    # Three calls that need a capacity enter it once each: as often as digits, not as iterations.
    assert entered[64,] == 3 * 4
    assert entered[256,] == entered[1024,] == 3


def test_a_loop_that_only_a_condition_ends() -> None:
    def network(x: Any) -> Any:
        return arenite.while_loop(
            lambda v: v.sum() < 1000, lambda v: concat([v, v[-2:] + v[:2]]), x, grows=True
        )

    def expected(v: Array) -> Array:
        while v.sum() < 1000:
            v = np.concatenate([v, v[-2:] + v[:2]])
        return v

    check(network, expected, (np.arange(6),), (np.array([1, 1]),), (np.array([5000]),),
          specs=[spec((Var("n", 1, 9),), "int64")])  # fmt: skip


STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Array, int]] = {
    "doubles": (
        lambda i, v: concat([v, v * 2 % 11 + i]),
        lambda i, v: np.concatenate([v, v * 2 % 11 + i]),
        numbers(3),
        8,
    ),
    "another axis": (
        lambda i, v: concat([v, v[:, :1] - i], 1),
        lambda i, v: np.concatenate([v, v[:, :1] - i], 1),
        numbers(4, 2),
        70,
    ),
    "both axes": (
        lambda i, v: concat(
            [concat([v, v[:, np.array([0])]], 1), ones((1, v.shape[1] + 1), "int64") * i]
        ),
        lambda i, v: np.concatenate(
            [np.concatenate([v, v[:, :1]], 1), np.full((1, v.shape[1] + 1), i)]
        ),
        numbers(2, 2),
        5,
    ),
    "shrinks": (lambda i, v: v[1:] + i, lambda i, v: v[1:] + i, numbers(90), 71),
    "shrinks to nothing": (lambda i, v: v[1:] + i, lambda i, v: v[1:] + i, numbers(5), 9),
    "its size alone": (
        lambda i, v: concat([ones(v.shape, "int64").cumsum(), arenite.tensor.zeros((1,), "int64")]),
        lambda i, v: np.append(np.arange(1, len(v) + 1), 0),
        numbers(3),
        5,
    ),
    "what is found in it": (
        lambda i, v: concat([v, v[v % 3 == i % 3] * 2 % 50]),
        lambda i, v: np.concatenate([v, v[v % 3 == i % 3] * 2 % 50]),
        np.arange(6),
        8,
    ),
    "sorted": (
        lambda i, v: concat([v.sort(), v.sum().reshape(1) % 17]),
        lambda i, v: np.append(np.sort(v), v.sum() % 17),
        numbers(3),
        66,
    ),
    "a product": (
        lambda i, v: concat([v, ((v @ v.T).sum(0, keepdims=True) @ v) % 5]),
        lambda i, v: np.concatenate([v, ((v @ v.T).sum(0, keepdims=True) @ v) % 5]),
        numbers(2, 3),
        20,
    ),
    "does not grow for long": (
        lambda i, v: concat([v[:0], v]),
        lambda i, v: np.concatenate([v[:0], v]),
        numbers(3),
        3,
    ),
}


@pytest.mark.parametrize("name", [name for name in STEPS if name != "does not grow for long"])
def test_what_bodies_do_with_sizes(name: str) -> None:
    body, numpy_body, x, n = STEPS[name]
    check(
        lambda x, n: arenite.fori_loop(n, body, x, grows=True), repeated(numpy_body), (x, n), (x, 0)
    )


def test_a_body_that_keeps_all_sizes_is_a_plain_loop() -> None:
    body, numpy_body, x, n = STEPS["does not grow for long"]
    program = arenite.compile(
        lambda x, n: arenite.fori_loop(n, body, x, grows=True), x, np.array(n)
    )
    assert not isinstance(program.executable, SegmentedExecutable)
    np.testing.assert_array_equal(program(x, np.array(n)), repeated(numpy_body)(x, n))


def test_several_values_one_grows_and_one_shrinks() -> None:
    def network(x: Any, y: Any, n: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            return {
                "a": concat([state["a"], state["b"][:1]]),
                "b": state["b"][1:],
                "s": state["s"] + y,
            }

        made = arenite.fori_loop(n, body, {"a": x[:2], "b": x, "s": y * 0}, grows=True)
        return made["a"].sum() * made["s"], made["a"], made["b"]

    def expected(x: Array, y: Array, n: Array) -> Any:
        a, b = np.append(x[:2], x[: int(n)]), x[int(n) :]
        return a.sum() * (y * int(n)), a, b

    check(network, expected, (numbers(100), numbers(3), 71), (numbers(100), numbers(3), 0))


def test_rows_without_a_bound() -> None:
    def network(x: Any, n: Any) -> Any:
        last, rows = arenite.scan(lambda s, _: (s * 3 % 7 + x, s.sum()), x, length=n.sum())
        return last, rows, rows.sum()

    def expected(x: Array, n: Array) -> Any:
        s, rows = x, []
        for _ in range(n.sum()):
            rows.append(s.sum())
            s = s * 3 % 7 + x
        return s, np.array(rows, int), np.sum(rows, dtype=int)

    x = numbers(5)
    check(network, expected, (x, np.array([3, 4])), (x, np.array([0, 0])), (x, np.array([90, 200])))


def test_rows_of_a_state_that_grows() -> None:
    def network(x: Any, n: Any) -> Any:
        return arenite.scan(
            lambda s, _: (concat([s, s[:1] + 1]), s.sum() + 0 * s.shape[0]), x, length=n, grows=True
        )

    def expected(x: Array, n: Array) -> Any:
        rows = []
        for _ in range(int(n)):
            rows.append(x.sum())
            x = np.append(x, x[:1] + 1)
        return x, np.array(rows, int)

    check(network, expected, (numbers(3), 100), (numbers(3), 0))


def test_rows_of_different_shapes_are_an_error() -> None:
    program = arenite.compile(
        lambda x, n: arenite.scan(lambda s, _: (s[1:], s), x, length=n, grows=True)[1],
        numbers(5),
        np.array(1),
    )
    assert program(numbers(5), np.array(1)).shape == (1, 5)
    with pytest.raises(ShapeMismatch, match="what is stacked is of one shape"):
        program(numbers(5), np.array(2))
    assert program(numbers(5), np.array(1)).shape == (1, 5)


def test_loops_and_branches_around_loops_that_grow() -> None:
    def network(x: Any, n: Any) -> Any:
        def body(i: Any, v: Any) -> Any:
            w = arenite.cond(
                i % 2 == 0,
                lambda: arenite.fori_loop(
                    i, lambda j, u: concat([u, u[:1] + j]), v, grows=True
                ).sum(),
                lambda: v.sum(),
            )
            return concat([v, w.reshape(1) % 100])

        grown = arenite.fori_loop(n, body, x, grows=True)
        plain, rows = arenite.scan(
            lambda s, row: (s + arange(row % 5).sum(), (s * 2)), np.int64(0), x
        )
        return grown, plain, rows

    def expected(x: Array, n: Array) -> Any:
        v = x
        for i in range(int(n)):
            u = v
            for j in range(i if i % 2 == 0 else 0):
                u = np.append(u, u[:1] + j)
            v = np.append(v, u.sum() % 100)
        s, rows = 0, []
        for row in x:
            rows.append(s * 2)
            s += np.arange(row % 5).sum()
        return v, np.asarray(s), np.array(rows)

    check(network, expected, (numbers(6), 6), (numbers(6), 0))


# Sizes without a bound.


def test_ranges_and_shapes_of_numbers_that_are_found() -> None:
    def network(n: Any) -> Any:
        made = zeros((n.sum(), 2, n.max()), "int64") + arange(n.max())
        return made.sum(0), arange(2, n.sum(), 3) * 2, arange(n.sum(), 0, -2), full(n[0], 7)

    def expected(n: Array) -> Any:
        made = np.zeros((n.sum(), 2, n.max()), int) + np.arange(n.max())
        total = int(n.sum())
        return made.sum(0), np.arange(2, total, 3) * 2, np.arange(total, 0, -2), np.full(n[0], 7)

    check(network, expected, (np.array([3, 4]),), (np.array([0, 90]),), (np.array([0, 0]),))


def test_what_was_found_before_a_cut_is_known_behind_it() -> None:
    def network(x: Any) -> Any:
        kept = x[x > 0]
        more = arange(kept.sum())
        return concat([kept, more, kept]) + kept.shape[0] * 0, ones(kept.shape, "int64").cumsum()

    def expected(x: Array) -> Any:
        kept = x[x > 0]
        return np.concatenate([kept, np.arange(kept.sum()), kept]), np.arange(1, len(kept) + 1)

    check(network, expected, (numbers(9),), (-np.abs(numbers(9)),))


def test_a_part_of_a_part_of_what_was_found() -> None:
    def network(x: Any) -> Any:
        kept = x[x > 0]
        fewer = kept[kept < 5]
        more = arange(x.max() + 3)
        return more.sum() + ones(fewer.shape, "int64").sum(), concat([fewer, more])

    def expected(x: Array) -> Any:
        fewer = x[(x > 0) & (x < 5)]
        more = np.arange(x.max() + 3)
        return more.sum() + len(fewer), np.concatenate([fewer, more])

    check(network, expected, (numbers(9),), (np.full(9, 7),))


def test_more_elements_than_memory_are_refused() -> None:
    with arenite.compile(lambda n: arange(n * 2), np.array(1)) as program:
        for n in (2**44, 2**47, 2**61):
            with pytest.raises((OutOfMemory, BoundsError)):
                program(np.array(n))
        assert program(np.array(3)).tolist() == list(range(6))
    with arenite.compile(lambda n: arange(n * 2), np.array(1), memory="1 MB") as program:
        with pytest.raises(DoesNotFit, match="segment 1 with"):
            program(np.array(2**20))
        assert program(np.array(3)).tolist() == list(range(6))


def test_a_tensor_of_such_a_size_has_numbers() -> None:
    n = (Tensor([3, 4]) * 2).sum()
    np.testing.assert_array_equal((arange(n) * 3).numpy(), np.arange(14) * 3)
    assert arange(Tensor(4)).shape == (4,)


# Structure that is computed.


def test_an_axis_and_a_permutation_from_within() -> None:
    def network(x: Any, p: Any) -> Any:
        order = p.argsort()
        shape = tuple(arenite.any_size() for _ in range(3))
        turned = arenite.specialize(
            lambda axes, y: y.transpose(axes), spec(shape, "int64"), order, x * 2
        )
        rest = spec((arenite.any_size(), arenite.any_size()), "int64")
        return turned + 1, arenite.specialize(lambda axis, y: y.sum(axis), rest, order[0], x)

    def expected(x: Array, p: Array) -> Any:
        order = np.argsort(p)
        return (x * 2).transpose(order) + 1, x.sum(order[0])

    x = numbers(2, 3, 4)
    orders = [np.array(p) for p in ([3, 1, 2], [1, 2, 3], [2, 3, 1])]
    executable = check(network, expected, *[(x, p) for p in orders])
    assert executable.n_segments > 4


def test_a_shape_from_within_in_a_loop_that_grows() -> None:
    def network(x: Any, n: Any) -> Any:
        def body(i: Any, v: Any) -> Any:
            sizes = concat([(v.sum() % 2 + 1).reshape(1), (i * 0 - 1).reshape(1)])
            return arenite.specialize(
                lambda shape, y: concat([y, y]).reshape(shape).sum(0),
                spec((arenite.any_size(),), "int64"),
                sizes,
                v,
            )

        return arenite.fori_loop(n, body, x, grows=True)

    def expected(v: Array, n: Array) -> Array:
        for _ in range(int(n)):
            v = np.concatenate([v, v]).reshape(v.sum() % 2 + 1, -1).sum(0)
        return v

    check(network, expected, (numbers(5), 4), (numbers(5) + 1, 3))


def test_values_are_compiled_once_and_a_few_are_kept() -> None:
    traced: list[Any] = []

    def function(k: int, y: Any) -> Any:
        traced.append(k)
        return y * k

    def network(x: Any, k: Any) -> Any:
        return arenite.specialize(function, spec((3,), "int64"), k + 1, x)

    x = numbers(3)
    program = arenite.compile(network, x, np.array(1))
    for k in (1, 2, 1, 2, 1):
        np.testing.assert_array_equal(program(x, np.array(k)), x * (k + 1))
    assert traced == [2, 3]
    for k in range(17):
        program(x, np.array(k))
    program(x, np.array(16))
    assert len(traced) == 2 + 15
    known = program.executable.n_segments
    for k in range(20, 40):
        program(x, np.array(k))
    assert program.executable.n_segments <= known


def test_what_the_function_gives_is_checked() -> None:
    x = numbers(3)

    def compiled(function: Any, result: Any) -> Any:
        return arenite.compile(
            lambda x, k: arenite.specialize(function, result, k + 1, x), x, np.array(1)
        )

    size = arenite.any_size()
    for function, result, error, message in [
        (lambda k, y: y[None], spec((size,), "int64"), ShapeMismatch, r"int64\[1, 3\]"),
        (lambda k, y: y * 1.5, spec((size,), "int64"), TypeMismatch, "float64"),
        (lambda k, y: y[k:], spec((3,), "int64"), ShapeMismatch, r"has shape \(1,\)"),
    ]:
        with pytest.raises(error, match=message):
            compiled(function, result)(x, np.array(1))


# Budgets, errors and ends.


def doubling(x: Any) -> Any:
    return arenite.while_loop(lambda v: v.sum() < 1e9, lambda v: concat([v, v]), x, grows=True)


def test_a_budget_is_kept_and_the_value_that_is_too_large_named() -> None:
    x = np.ones(4)
    with arenite.compile(doubling, x, memory=400_000) as program:
        with pytest.raises(DoesNotFit, match=r"carried value 0, float64\[") as refused:
            program(x)
        assert program.plan.peak_nbytes <= 400_000
        assert refused.value.capacity == 400_000
        assert str(refused.value.live[0][0]).startswith("carried value 0")
        # A value that is small enough still goes through.
        np.testing.assert_array_equal(program(x * 1e9), x * 1e9)
        largest = program(x * 1e6)
        assert len(largest) == 1024
        assert program.plan.peak_nbytes <= 400_000


def test_within_a_budget_as_without() -> None:
    def network(x: Any, n: Any) -> Any:
        return arenite.fori_loop(n, lambda i, v: concat([v, v[-1:] + i]), x, grows=True)

    x, n = numbers(3), np.array(2000)
    free = arenite.compile(network, x, n)
    expected = free(x, n)
    # Far less than the next capacity would take, which is 4096.
    with arenite.compile(network, x, n, memory=2_100 * 8 * 4) as program:
        np.testing.assert_array_equal(program(x, n), expected)
        assert program.plan.peak_nbytes <= 2_100 * 8 * 4 < free.plan.peak_nbytes


def test_floats_are_the_same_bits_on_any_number_of_threads_and_in_any_order_of_calls() -> None:
    def network(x: Any, w: Any, n: Any) -> Any:
        def body(i: Any, v: Any) -> Any:
            return concat([v, ((v @ w).tanh() * v).mean(0, keepdims=True)])

        return arenite.fori_loop(n, body, x, grows=True)

    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 40), (40, 40)))
    exact = x.astype(np.float64)
    for _ in range(300):
        exact = np.append(exact, (np.tanh(exact @ w) * exact).mean(0, keepdims=True), 0)
    found = []
    for threads, counts in ((1, (300, 5)), (2, (5, 70, 300)), (3, (300,))):
        with arenite.compile(network, x, w, np.array(1), threads=threads) as program:
            made = {n: program(x, w, np.array(n)) for n in counts}
        np.testing.assert_allclose(made[300], exact, atol=1e-5)
        found.append(made[300].tobytes())
    assert len(set(found)) == 1


def test_segments_are_shown_and_counted() -> None:
    x, n = numbers(3), np.array(100)

    def network(x: Any, n: Any) -> Any:
        grown = arenite.fori_loop(n, lambda i, v: concat([v, v[-1:] + i]), x * 2, grows=True)
        return grown.sum()

    with arenite.compile(network, x, n) as program:
        assert program.executable.n_segments == 3
        program(x, n)
        plan = program.plan
        assert "up to 256" in str(plan)
        assert "3 segments" in str(plan)
        assert json.loads(plan.to_json())["n_segments"] == 3
        plan.verify()
        assert len(program.kernels) == sum(one.n_kernels for one in plan.segments)
        profile = program.profile(x, n)
        assert {one.name.split()[1] for one in profile.kernels} == {"0", "1", "2"}
        assert json.loads(profile.to_chrome_trace())["traceEvents"]
        assert program.passes
        assert "up to 256" in plan._repr_html_()
        assert "ends here because" in str(program.kernels)
        assert "3 segments" in repr(program)


def test_errors_leave_what_an_executable_leaves() -> None:
    def network(x: Any, n: Any) -> Any:
        return arenite.fori_loop(n, lambda i, v: concat([v, v[i].reshape(1)]), x, grows=True)

    def shrinking(x: Any, n: Any) -> Any:
        return arenite.fori_loop(n, lambda i, v: v[1:] + v[i], x, grows=True)

    x = numbers(6)
    with arenite.compile(network, x, np.array(1)) as program:
        np.testing.assert_array_equal(program(x, np.array(3)), np.append(x, x[:3]))
    with arenite.compile(shrinking, x, np.array(1)) as program:
        first = program(x, np.array(2))
        with pytest.raises(IndexOutOfRange):
            program(x, np.array(6))
        with pytest.raises(RunFailed, match=r"before reset\(\)"):
            program(x, np.array(2))
        program.reset()
        np.testing.assert_array_equal(program(x, np.array(2)), first)
    with pytest.raises(RunFailed, match="closed"):
        program(x, np.array(2))
    with arenite.compile(network, x, np.array(1)) as program, pytest.raises(ShapeMismatch):
        program(x[:2], np.array(3))


@pytest.mark.parametrize("is_native", [True, False])
def test_a_run_is_cancelled_from_another_thread(is_native: bool) -> None:
    started = threading.Event()

    def signal(a: Array) -> Array:
        started.set()
        return a

    def network(x: Any) -> Any:
        begun = arenite.host_call(signal, x, x)

        def body(v: Any) -> Any:
            # A size that stays what it is, though nobody knows: the loop never ends.
            return concat([v[1:], v[:1]]) if is_native else v[v >= v.min()]

        return arenite.while_loop(lambda v: v.sum() >= 0, body, begun, grows=True)

    x = np.arange(5)
    with arenite.compile(network, x) as program:
        thread = threading.Thread(target=lambda: (started.wait(), program.cancel()))
        thread.start()
        stop = threading.Timer(0.2, program.cancel)  # where the first came before the loop
        stop.start()
        with pytest.raises(RunCancelled):
            program(x)
        stop.cancel()
        thread.join()
        started.clear()
        np.testing.assert_array_equal(program(x - 10), x - 10)


def test_states_live_from_run_to_run() -> None:
    total = arenite.State((3,), "int64", name="total")

    def network(x: Any, n: Any) -> Any:
        grown = arenite.fori_loop(n, lambda i, v: concat([v, v[:1] + i]), x, grows=True)
        total.set(total.value + grown[np.arange(3)] + grown.sum())
        return total.value * 2

    x = numbers(3)
    program = arenite.compile(network, x, np.array(1))
    held = np.zeros(3, int)
    for n in (2, 0, 70):
        grown = repeated(lambda i, v: np.append(v, v[:1] + i))(x, n)
        held = held + grown[:3] + grown.sum()
        program(x, np.array(n))
        np.testing.assert_array_equal(program.state["total"].numpy(), held)
    program.reset_state()
    assert not program.state["total"].numpy().any()


def test_results_are_the_callers() -> None:
    def network(x: Any, n: Any) -> Any:
        grown = arenite.fori_loop(n, lambda i, v: concat([v, v[:1]]), x, grows=True)
        return grown, grown, x

    x = numbers(3)
    with arenite.compile(network, x, np.array(0)) as program:
        results = program(x, np.array(0))
        for one in results:
            one[...] = 7
        assert not (x == 7).any()
        a, b, _ = program(x, np.array(2))
        a[...] = 9
        assert not (b == 9).any()
        wanted = np.append(x, [x[0], x[0]])
        out = (np.empty(5, int), np.empty(5, int), np.empty(3, int))
        program(x, np.array(2), out=out)
        np.testing.assert_array_equal(out[1], wanted)
