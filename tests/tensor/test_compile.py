"""`arenite.compile`: structures in and out, and one program for each value that is structure."""

from __future__ import annotations

import gc
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, Var, device, spec
from arenite.errors import BoundsError, DoesNotFit, InvalidArgument, RunFailed, ShapeMismatch
from arenite.program.options import parse_nbytes
from arenite.runtime import variants
from arenite.tensor.signature import MAX_STATIC_ELEMENTS
from tests.pipeline.forked import in_child

Array = NDArray[Any]

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_what_a_function_returns_comes_back_as_arrays() -> None:
    def function(x: Any, y: Any) -> Any:
        return {"sum": x + y, "both": (x * 2, [y])}

    with arenite.compile(function, X, arenite.spec((4,))) as program:
        made = program(X, np.ones(4, np.float32))
        np.testing.assert_array_equal(made["sum"], X + 1)
        doubled, [same] = made["both"]
        assert isinstance(made["both"], tuple)
        np.testing.assert_array_equal(doubled, X * 2)
        np.testing.assert_array_equal(same, np.ones(4))
        assert len(program.variants) == 1
        assert program.variants[0].values == ()


def test_tensors_are_taken_as_arrays_are() -> None:
    with arenite.compile(lambda x: -x, arenite.from_numpy(X)) as program:
        np.testing.assert_array_equal(program(arenite.from_numpy(X)), -X)


def test_a_function_returns_tensors() -> None:
    with pytest.raises(InvalidArgument, match="result is int"):
        arenite.compile(lambda x: 3, X)


def test_the_number_of_arguments_is_checked_by_name() -> None:
    def function(left: Any, axis: Any) -> Any:
        return left.sum(axis)

    wanted = r"2 arguments are needed \(left, axis\), not 1"
    program = arenite.compile(function, X, arenite.static)
    with program, pytest.raises(InvalidArgument, match=wanted):
        program(X)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("300MiB", 300 * 2**20),
        ("2 gb", 2**31),
        ("1.5k", 1536),
        ("17", 17),
        (5, 5),
        (np.int32(5), 5),
        (0, 0),
        (None, None),
    ],
)
def test_sizes_are_read(text: Any, nbytes: int | None) -> None:
    assert parse_nbytes(text) == nbytes


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "-1", "3 potatoes", "1e3", "9" * 400, True, False, -1, np.int64(-1), 2.0, b"1", []],
)
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(InvalidArgument, match="write 300MiB"):
        parse_nbytes(text)
    with pytest.raises(InvalidArgument, match="write 300MiB"):
        arenite.compile(lambda x: x + 1, X, memory=text)


def test_results_go_into_given_arrays() -> None:
    def function(x: Any) -> Any:
        return {"sum": x + 1, "rest": (x * 2, x.sum())}

    with arenite.compile(function, X) as program:
        whole = np.zeros((2, 3, 8), np.float32)
        out = {"sum": whole[..., ::2], "rest": (np.zeros_like(X), np.zeros((), np.float32))}
        assert program(X, out=out) is out
        np.testing.assert_array_equal(whole[..., ::2], X + 1)
        assert not whole[..., 1::2].any()
        np.testing.assert_array_equal(out["rest"][0], X * 2)
        assert out["rest"][1] == X.sum()
        for wrong, wanted in (
            ({"sum": whole}, "out is of structure"),
            ({"sum": whole, "rest": (X, [1])}, "out is of structure"),
            ({"sum": X.copy(), "rest": (X.copy(), 3)}, r"out\['rest'\]\[1\] is no array"),
            ({"sum": whole, "rest": (X.copy(), np.zeros((), np.float32))}, r"\[2, 3, 8\]"),
        ):
            with pytest.raises(ValueError, match=wanted):
                program(X, out=wrong)
    x = X.copy()
    with arenite.compile(lambda x: x[::-1] + 1, x) as program:
        program(x, out=x)
    np.testing.assert_array_equal(x, X[::-1] + 1)


@pytest.mark.parametrize(
    ("arguments", "options", "wanted"),
    [
        ((3, X), {}, "int is no function"),
        ((lambda x: x, object()), {}, "object is no type for argument 'x'; give an array"),
        ((lambda x: x, "abc"), {}, "str is no type for argument 'x'"),
        ((lambda a, b: a, X, [[1], [1, 2]]), {}, "list is no type for argument 'b'"),
        ((lambda x, y: x, X), {}, "1 specs do not fit .* missing a required argument: 'y'"),
        ((lambda x: x, X, X), {}, "2 specs do not fit .* too many positional arguments"),
        ((lambda x: x, X), {"threads": 0}, "at least one thread, not 0"),
        ((lambda x: x, X), {"threads": "2"}, "threads is a whole number, not '2'"),
        ((lambda x: x, X), {"threads": 1.5}, "threads is a whole number, not 1.5"),
        ((lambda x: x, X), {"memory": 1.5}, "1.5 is no size in bytes"),
        ((lambda x: x, X), {"memory": [1]}, "is no size in bytes"),
        ((lambda x: x, X), {"memory": -5}, "-5 is no size in bytes"),
        ((lambda x: (a for a in [x]), X), {}, "result is generator"),
    ],
)
def test_what_cannot_be_compiled_is_refused(arguments: Any, options: Any, wanted: str) -> None:
    with pytest.raises(InvalidArgument, match=wanted):
        arenite.compile(*arguments, **options)


@pytest.mark.parametrize("shape", [3, (-1, 2), (1.5,), "ab", {2, 3}, (None,)])
def test_what_is_no_shape_is_refused(shape: Any) -> None:
    with pytest.raises(InvalidArgument, match="size"):
        arenite.spec(shape)


# Structure by value.


def test_an_axis_is_structure() -> None:
    with arenite.compile(lambda x, axis: x.sum(axis), X, arenite.static) as program:
        for axis in (0, 2, -1, None, (0, 1), 0):
            np.testing.assert_array_equal(program(X, axis), X.sum(axis))
        shown = program.variants
        assert [one.values for one in shown] == [(0,), ((0, 1),), (None,), (-1,), (2,)]
        assert [one.n_calls for one in shown] == [2, 1, 1, 1, 1]
        assert (shown.n_compiled, shown.n_dropped) == (5, 0)
        assert "5 compiled, 0 dropped, 5 kept of at most 16" in str(shown)
        assert "(0, 1)" in str(shown)
        program.verify()


def test_a_permutation_in_an_array_is_structure() -> None:
    with arenite.compile(lambda x, axes: x.transpose(axes), X, arenite.static) as program:
        for given in (np.array([2, 0, 1]), [2, 0, 1], (2, 0, 1), np.array([2, 0, 1], np.int32)):
            np.testing.assert_array_equal(program(X, given), X.transpose(2, 0, 1))
        assert [one.values for one in program.variants] == [((2, 0, 1),)]
        np.testing.assert_array_equal(program(X, np.array([0, 2, 1])), X.transpose(0, 2, 1))
        assert program.variants.n_compiled == 2


def test_rank_modes_and_flags_are_structure() -> None:
    def function(mode: str, x: Any, shape: tuple[int, ...], keep: bool) -> Any:
        x = x.reshape(shape)
        return x.max(0, keepdims=keep) if mode == "max" else x.sum(0, keepdims=keep)

    kinds = (arenite.static, arenite.spec((2, 3, 4)), arenite.static, arenite.static)
    with arenite.compile(function, *kinds) as program:
        for mode, shape, keep in (("max", (24,), True), ("sum", (4, 6), False), ("sum", (24,), 1)):
            plain: Any = np.max if mode == "max" else np.sum
            wanted = plain(X.reshape(shape), 0, keepdims=bool(keep))
            np.testing.assert_array_equal(program(mode, X, shape, keep), wanted)


def test_values_that_compare_equal_are_told_apart() -> None:
    seen: list[Any] = []

    def function(x: Any, value: Any) -> Any:
        seen.append(value)
        return x + 1

    with arenite.compile(function, X, arenite.static) as program:
        for value in (1, True, 1.0, 0.0, -0.0, "1", (1,), 1, True, 1.0, 0.0, -0.0, "1", (1,)):
            program(X, value)
        assert len(program.variants) == 7
    assert list(map(repr, seen)) == ["1", "True", "1.0", "0.0", "-0.0", "'1'", "(1,)"]


def test_sixteen_are_kept_and_the_least_recently_used_goes() -> None:
    traced: list[int] = []

    def function(x: Any, shift: int) -> Any:
        traced.append(shift)
        return x + shift

    with arenite.compile(function, X, arenite.static) as program:
        for shift in range(16):
            program(X, shift)
        program(X, 0)
        np.testing.assert_array_equal(program(X, 16), X + 16)
        kept = {one.values[0] for one in program.variants}
        assert kept == {0, *range(2, 17)}, "1 was the one not used for the longest time"
        assert program.variants.n_dropped == 1
        np.testing.assert_array_equal(program(X, 1), X + 1)
        assert traced == [*range(17), 1], "what was dropped is traced again"
        assert program.variants.n_compiled == 18


def test_a_dropped_variant_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "MAX_VARIANTS", 2)

    square = np.ones((64, 64), np.float32)
    allocator = device.get("cpu")
    with arenite.compile(lambda x, k: (x @ x).sort(k) @ x, square, arenite.static) as program:
        for axis in (0, 1):
            program(square, axis)
        gc.collect()
        live = allocator.stats.live_nbytes
        assert live >= program.variants[0].executable.plan.peak_nbytes > 0
        for axis in (-1, -2, 0, 1):
            program(square, axis)
        gc.collect()
        assert allocator.stats.live_nbytes == live
        assert program.variants.n_dropped == 4


@pytest.mark.parametrize("value", [{"a": 1}, object(), {1, 2}, 1j, b"x", [1, [object()]]])
def test_what_cannot_be_structure_is_refused_by_name(value: Any) -> None:
    with arenite.compile(lambda x, axis: x, X, arenite.static) as program:
        with pytest.raises(InvalidArgument, match="'axis' is static: a number"):
            program(X, value)
        assert not program.variants


def test_data_given_as_structure_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with arenite.compile(lambda x, axes: x, X, arenite.static) as program:
        with pytest.raises(InvalidArgument, match="give it a spec, so that it is data"):
            program(X, np.zeros(MAX_STATIC_ELEMENTS + 1))
        with pytest.raises(InvalidArgument, match="'axes' is static"):
            program(X, endless)


def test_a_value_that_does_not_compile_leaves_the_others() -> None:
    with arenite.compile(lambda x, axis: x.sum(axis), X, arenite.static, memory=200) as program:
        np.testing.assert_array_equal(program(X, 1), X.sum(1))
        with pytest.raises(ValueError, match="axis 7 is out of bounds"):
            program(X, 7)
        np.testing.assert_array_equal(program(X, 1), X.sum(1))


def test_a_budget_holds_for_every_value() -> None:
    square = X[0, :, :3]
    program = arenite.compile(lambda x, k: (x @ x).sort(k) @ x, square, arenite.static, memory=1)
    with program, pytest.raises(DoesNotFit):
        program(square, 1)


def test_the_one_executable_of_many_is_asked_for_by_value() -> None:
    with arenite.compile(lambda x, axis: x.sum(axis), X, arenite.static) as program:
        with pytest.raises(InvalidArgument, match="variant"):
            _ = program.plan
        assert program.variant(1).executable.kernels
        assert repr(program) == "<CompiledFunction: 1 variants>"


def test_threads_that_bring_one_value_compile_it_once() -> None:
    traced: list[int] = []

    def function(x: Any, axis: int) -> Any:
        traced.append(axis)
        return x.sum(axis)

    wrong: list[int] = []
    with arenite.compile(function, X, arenite.static) as program:

        def call(k: int) -> None:
            for axis in (k % 3, (k + 1) % 3):
                if not np.array_equal(program(X, axis), X.sum(axis)):
                    wrong.append(axis)

        threads = [threading.Thread(target=call, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(traced) == [0, 1, 2]
        assert sum(one.n_calls for one in program.variants) == 12
    assert not wrong


def test_a_closed_function_says_so() -> None:
    program = arenite.compile(lambda x, axis: x.sum(axis), X, arenite.static)
    program(X, 0)
    program.close()
    program.close()
    with pytest.raises(RunFailed, match="closed"):
        program(X, 0)
    with pytest.raises(RunFailed, match="closed"):
        program(X, 1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_while_a_value_is_compiled_compiles_it_itself() -> None:
    tracing, go_on = threading.Event(), threading.Event()

    def function(x: Any, axis: int) -> Any:
        if axis == 2 and threading.current_thread() is not threading.main_thread():
            tracing.set()
            go_on.wait()
        return x.sum(axis)

    with arenite.compile(function, X, arenite.static) as program:
        other = threading.Thread(target=program, args=(X, 2))
        other.start()
        tracing.wait()
        assert in_child(lambda: np.array_equal(program(X, 2), X.sum(2))) == "true"
        go_on.set()
        other.join()
        np.testing.assert_array_equal(program(X, 2), X.sum(2))


def test_results_may_be_named_tuples_and_none() -> None:
    class Pair(NamedTuple):
        total: Any
        rest: Any

    with arenite.compile(lambda x: Pair(x.sum(), None), X) as program:
        assert program(X) == Pair(X.sum(), None)
    with pytest.raises(InvalidArgument, match=r"result\['rest'\]\[1\] is float"):
        arenite.compile(lambda x: {"rest": (x, 1.5)}, X)


def test_a_function_nobody_holds_gives_its_memory_back_at_once() -> None:
    """Without the help of the collector: nothing in it refers back to it."""
    allocator = device.get("cpu")
    square = np.ones((64, 64), np.float32)
    gc.disable()
    try:
        live = allocator.stats.live_nbytes
        program = arenite.compile(lambda x: (x @ x).sort() @ x, square)
        program(square)
        assert allocator.stats.live_nbytes > live
        del program
        assert allocator.stats.live_nbytes == live
    finally:
        gc.enable()


def test_a_variable_follows_from_any_size_that_is_linear_in_it() -> None:
    n, m = Var("n", 1, 64), Var("m", 1, 4)

    def network(x: Tensor, y: Tensor) -> Any:
        half = x.reshape(2, n).sum(axis=0)
        return half, y.reshape(m, n) * half

    with arenite.compile(network, spec((n * 2,)), spec((n * m,))) as program:
        for size, rows in ((1, 1), (7, 3), (64, 4)):
            x = np.arange(2 * size, dtype=np.float32)
            y = np.arange(rows * size, dtype=np.float32)
            half, product = program(x, y)
            np.testing.assert_array_equal(half, x[:size] + x[size:])
            np.testing.assert_array_equal(product, y.reshape(rows, size) * half)
        with pytest.raises(ShapeMismatch, match=r"'x' is float32\[2\*n\]"):
            program(np.ones(7, np.float32), np.ones(3, np.float32))


def test_a_variable_that_nothing_tells_is_refused_before_anything_is_compiled() -> None:
    n = Var("n", 1, 8)
    with pytest.raises(BoundsError, match="no input has 'n' as a size from which it follows"):
        arenite.compile(lambda x: x * 2, spec((n * n,)))
    with pytest.raises(BoundsError, match="no input has 'n'"):
        arenite.compile(lambda x: x + arenite.tensor.zeros((n,), "float32"), spec((1,)))


@pytest.mark.parametrize("device", [None, 3])
def test_a_device_that_is_no_name_is_told(device: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"a device name is a string, .*there are: .*webgpu"):
        arenite.compile(lambda x: x + 1, np.ones(3, np.float32), device=device)
