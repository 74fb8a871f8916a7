"""Programs that are cut: sizes without a bound, structure that is computed; budgets and ends."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

import arenite
from arenite import Tensor, spec
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
from arenite.tensor import arange, concat, full, ones, zeros
from tests.pipeline.segments import Array, check, numbers, repeated, segments_of

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
    known = segments_of(program).n_segments
    for k in range(20, 40):
        program(x, np.array(k))
    assert segments_of(program).n_segments <= known


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
        assert segments_of(program).n_segments == 3
        program(x, n)
        plan = segments_of(program).plan
        slots = [slot for one in plan.segments for slot in one.plan.slots.values()]
        regions = [region for one in plan.segments for region in one.plan.regions.values()]
        assert [*program.plan.slots.values()] == slots
        assert [*program.plan.regions.values()] == regions
        assert program.plan.total_nbytes == plan.peak_nbytes
        assert (program.executable.device, len(program.executables)) == ("cpu", len(plan.segments))
        assert "up to 256" in str(plan)
        assert "3 segments" in str(plan)
        assert json.loads(plan.to_json())["n_segments"] == 3
        plan.verify()
        assert len(program.kernels) == sum(one.n_kernels for one in plan.segments)
        profile = program.profile(x, n)
        assert {one.name.split()[1] for one in profile.kernels} == {"0", "1", "2"}
        assert json.loads(profile.to_chrome_trace())["traceEvents"]
        assert program.passes
        page = plan._repr_html_()
        assert "up to 256" in page
        assert page.count("</svg>") == len(plan.segments)
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

        def cancel() -> None:
            started.wait()
            program.cancel()

        thread = threading.Thread(target=cancel)
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


def test_a_budget_of_segments_counts_arguments_and_states() -> None:
    kept = arenite.State((1000,), "float64", name="kept")

    def network(x: Any, n: Any) -> Any:
        kept.set(kept.value + x)
        return arange(n), kept.value.sum()

    x = np.ones(1000)
    given = x.nbytes + 8 + 8000  # arguments and states
    with arenite.compile(network, x, np.array(1)) as free:
        free(x, np.array(5))
        assert free.plan.peak_nbytes >= given
    with pytest.raises(DoesNotFit, match=f"Arguments and states take {given}"):
        arenite.compile(network, x, np.array(1), memory=given - 1)
    with arenite.compile(network, x, np.array(1), memory=free.plan.peak_nbytes) as program:
        program(x, np.array(5))
        with pytest.raises(DoesNotFit, match=f"Arguments and states take {given}"):
            program(x, np.array(100_000))
