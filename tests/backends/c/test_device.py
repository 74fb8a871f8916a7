"""`device="c"`: programs that are compiled by the system's compiler and run in this process."""

from __future__ import annotations

import numpy as np
import pytest

import arenite
from arenite import State, Tensor, Var
from arenite.backends.c import shared_object
from arenite.errors import DeviceUnavailable, IndexOutOfRange, NotSupported, RunFailed
from tests.backends.c.executables import needs_compiler

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
        assert "static void" in c.kernels[0].llvm
        assert c.kernels[0].asm.count("\n") > 5
        with pytest.raises(NotSupported, match="no time stamps"):
            c.profile(x)


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
