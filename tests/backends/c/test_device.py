"""`device="c"`: programs that are compiled by the system's compiler and run in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import arenite
from arenite import State, Tensor, Var
from arenite.backends.c import shared_object
from arenite.dtype import BY_NAME, DType
from arenite.errors import (
    DeviceUnavailable,
    IndexOutOfRange,
    NotSupported,
    RunCancelled,
    RunFailed,
)
from arenite.ir import reference
from arenite.pipeline import compile_graph
from arenite.program.options import Options
from tests.backends.c.executables import CTrial, needs_compiler
from tests.pipeline import test_ops
from tests.pipeline.trial import same

pytestmark = needs_compiler


def test_a_function_runs_like_on_the_cpu() -> None:
    w = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)

    def function(x: Tensor) -> dict[str, Tensor]:
        y = arenite.tanh(x @ w)
        return {"y": y, "rows": (y > 0).sum(axis=1)}

    x = np.random.default_rng(1).standard_normal((7, 8)).astype(np.float32)
    spec = arenite.spec((Var("n", 1, 9), 8))
    with arenite.compile(function, spec) as cpu, arenite.compile(function, spec, device="c") as c:
        assert c.executable.device == "c"
        c.verify()
        for n in (7, 1):
            wanted, got = cpu(x[:n]), c(x[:n])
            np.testing.assert_allclose(got["y"], wanted["y"], rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(got["rows"], wanted["rows"])
        out = np.zeros((7, 5), np.float32)
        c(x, out={"y": out, "rows": np.zeros(7, np.int64)})
        np.testing.assert_allclose(out, cpu(x)["y"], rtol=1e-5, atol=1e-6)
        assert "static void" in c.kernels[0].source
        with pytest.raises(NotSupported, match="device 'c' is not compiled by LLVM"):
            _ = c.kernels[0].llvm
        assert c.kernels[0].asm.count("\n") > 5
        with pytest.raises(NotSupported, match="no time stamps"):
            c.profile(x)


class _Trial(CTrial):
    """In process, where loops are vectorised."""

    def run(self) -> None:
        expected = reference.evaluate(self.graph, self.arrays)
        with compile_graph(self.graph, Options(device="c")) as program:
            results = program(*self.arrays)
        for (node, ulps), one, wanted in zip(self.outputs, results, expected, strict=True):
            same(one, wanted, ulps, node)


@pytest.mark.parametrize(
    ("check", "dtype"),
    [
        (test_ops.test_functions_of_floats, "float32"),
        (test_ops.test_arithmetic, "int8"),
        (test_ops.test_reductions, "float32"),
        (test_ops.test_contractions, "float64"),
    ],
    ids=["functions", "arithmetic", "reductions", "contractions"],
)
def test_vectorised_kernels(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[DType], None], dtype: str
) -> None:
    monkeypatch.setattr(test_ops, "Trial", lambda: _Trial(""))
    check(BY_NAME[dtype])


def test_long_sums_round_little() -> None:
    x = np.random.default_rng(5).random((3, 100_003)).astype(np.float32)
    with arenite.compile(lambda x: (x.sum(axis=1), x @ x.T), x, device="c") as program:
        sums, products = program(x)
    wide = x.astype(np.float64)
    # One after the other, the last terms would be rounded to 2^-8 and more.
    np.testing.assert_allclose(sums, wide.sum(axis=1), rtol=2e-6)
    np.testing.assert_allclose(products, wide @ wide.T, rtol=2e-6)


def test_states_live_from_run_to_run_and_can_be_put_in() -> None:
    total = State((3,), "int64", name="total")

    def add(x: Tensor) -> Tensor:
        total.set(total.value + x)
        return total.value

    x = np.array([1, 2, 3])
    with arenite.compile(add, arenite.spec((3,), "int64"), device="c") as program:
        program.state["total"].load(np.array([10, 10, 10]))
        assert program(x).tolist() == [11, 12, 13]
        assert program(x).tolist() == [12, 14, 16]
        assert program.state["total"].numpy().tolist() == [12, 14, 16]
        program.reset_state()
        assert program(x).tolist() == [1, 2, 3]


def test_a_failed_run_poisons_until_reset() -> None:
    specs = arenite.spec((5,)), arenite.spec((2,), "int64")
    x = np.arange(5, dtype=np.float32)
    with arenite.compile(lambda x, i: x[i], *specs, device="c") as program:
        with pytest.raises(IndexOutOfRange, match="outside its axis"):
            program(x, np.array([0, 5]))
        with pytest.raises(RunFailed, match="before reset"):
            program(x, np.array([0, 1]))
        program.reset()
        assert program(x, np.array([4, 0])).tolist() == [4, 0]


def test_a_run_is_cancelled_from_another_thread() -> None:
    def count(x: Tensor, n: Tensor) -> Tensor:
        counted: Tensor = arenite.fori_loop(n, lambda i, value: value + 1, x)
        return counted

    specs = arenite.spec((3,), "int64"), arenite.spec((), "int64")
    x = np.zeros(3, np.int64)
    with arenite.compile(count, *specs, device="c") as program:
        timer = threading.Timer(0.2, program.cancel)
        timer.start()
        with pytest.raises(RunCancelled, match="can be called again"):
            program(x, np.int64(10**12))
        timer.join()
        assert program(x, np.int64(7)).tolist() == [7, 7, 7]


def test_a_kernel_is_launched_by_itself() -> None:
    with arenite.compile(lambda x: x * 2 + 1, arenite.spec((Var("n", 1, 9),)), device="c") as f:
        [kernel] = f.kernels
        x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        kernel(x, out, n=4)
    assert out.tolist() == [1, 3, 5, 7]


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    shared_object.compiler.cache_clear()
    shared_object.compiler_identity.cache_clear()
    try:
        with pytest.raises(DeviceUnavailable, match="apt-get install gcc"):
            arenite.compile(lambda x: x - 7, arenite.spec((3,)), device="c")
    finally:
        shared_object.compiler.cache_clear()
        shared_object.compiler_identity.cache_clear()
