"""Programs share the code of kernels they have in common, whatever it is called in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.backends.cpu.compiling import kernel_cache
from arenite.backends.cpu.compiling.llvm import functions_defined
from arenite.backends.cpu.compiling.pool import compile_modules
from arenite.backends.cpu.target import Target
from arenite.errors import CompileFailed
from arenite.pipeline import build
from arenite.program import cache
from tests.pipeline.graphs import FLOAT32, random_array

X = random_array((40, 40), FLOAT32, 1)


@pytest.fixture(autouse=True)
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every module that is compiled, in a cache of our own."""
    texts: list[str] = []

    def counting(modules: Iterable[str], target: Target, **others: Any) -> list[bytes]:
        modules = [*modules]
        texts.extend(modules)
        return compile_modules(modules, target, **others)

    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel_cache, "compile_modules", counting)
    return texts


def two(x: arenite.Tensor) -> arenite.Tensor:
    return (x @ x).sort(axis=1)


def more(x: arenite.Tensor) -> arenite.Tensor:
    """The two of before, and others around them."""
    return (x @ x).sort(axis=1) + x.cumsum(axis=0)


def test_a_larger_program_compiles_what_is_new_in_it(compiled: list[str]) -> None:
    with arenite.compile(two, X) as program:
        assert len(program.kernels) == len(compiled) == 2
        np.testing.assert_allclose(program(X), np.sort(X @ X, axis=1), rtol=1e-4, atol=1e-4)
    before = len(compiled)
    with arenite.compile(more, X) as program:
        assert len(program.kernels) > len(compiled) - before > 0
        wanted = np.sort(X @ X, axis=1) + np.cumsum(X, axis=0)
        np.testing.assert_allclose(program(X), wanted, rtol=1e-4, atol=1e-4)
    assert len({*compiled}) == len(compiled), "none twice"


@pytest.mark.parametrize("others", [{"plan": "concurrency"}, {"memory": "1MiB"}])
def test_other_options_compile_nothing(compiled: list[str], others: Any) -> None:
    with arenite.compile(two, X) as program:
        usual = program(X)
    before = len(compiled)
    with arenite.compile(two, X, **others) as program:
        assert program(X).tobytes() == usual.tobytes()
    assert len(compiled) == before


def test_a_program_from_the_cache_looks_at_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the whole program is there")

    with arenite.compile(two, X) as program:
        usual = program(X)
    monkeypatch.setattr(cache, "kernels", never)
    with arenite.compile(two, X) as program:
        assert program(X).tobytes() == usual.tobytes()


def test_a_failure_names_the_kernel_as_the_program_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(modules: Iterable[str], *_: Any, **__: Any) -> list[bytes]:
        [name] = next(names for one in modules if (names := functions_defined(one)))
        raise CompileFailed(f"{name} crashed")

    monkeypatch.setattr(kernel_cache, "compile_modules", failing)
    with pytest.raises(CompileFailed, match=r"^kernel_\w+ crashed; kernel_\w+ is matmul_0$"):
        arenite.compile(two, X)


@pytest.mark.parametrize("memory", [None, 2**30])
def test_code_is_begun_before_the_plan_unless_there_is_a_budget(
    memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    usual_plan = build._plan

    def plan(*given: Any) -> Any:
        order.append("plan")
        return usual_plan(*given)

    def counting(modules: Iterable[str], target: Target, **others: Any) -> list[bytes]:
        def told() -> Iterator[str]:
            for one in modules:
                order.append("module")
                yield one

        return compile_modules(told(), target, **others)

    monkeypatch.setattr(build, "_plan", plan)
    monkeypatch.setattr(kernel_cache, "compile_modules", counting)
    with arenite.compile(two, X, memory=memory) as program:
        assert program(X).shape
    assert order.count("plan") == 1
    assert order.index("plan") == (1 if memory is None else 0)
    assert order.count("module") == len({one.llvm for one in program.kernels})
