"""What docs/stability.md says of other CPUs: programs made for each kind of x86-64 CPU that this
one can be, run here, compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor
from arenite.backends.cpu.target import AVX2, AVX512, AVX512_VNNI, X86_64, Target
from arenite.backends.cpu.target import host as host_of_llvm
from arenite.dtype import BY_NAME
from arenite.ir import graph_input, make
from arenite.ir.graph import Graph
from arenite.pipeline import compile_anew
from arenite.program.backend import backend_of
from arenite.program.compiled import Compiled
from arenite.runtime.executable import Executable
from tests.pipeline.test_tune import graph_of, packed_case

Array = NDArray[Any]


def runs_here(target: Target) -> bool:
    """Whether this machine has what code for the target needs."""
    here = host_of_llvm()
    return (
        here.is_x86
        and here.vector_bits >= target.vector_bits
        and here.has_fma >= target.has_fma
        and here.has_vnni >= target.has_vnni
    )


pytestmark = pytest.mark.skipif(not runs_here(AVX2), reason="this machine is one kind of CPU only")
WITH_FMA = [one for one in (AVX2, AVX512, AVX512_VNNI) if runs_here(one)]
ALL = [X86_64, *WITH_FMA]


def numbers() -> tuple[Array, Array]:
    """Of every size, and zeros and infinities."""
    rng = np.random.default_rng(0)
    parts = [
        rng.standard_normal(3000),
        rng.standard_normal(2000) * 1e3,
        rng.uniform(-90, 90, 2000),
        10.0 ** rng.uniform(-44, 38, 2002),
        np.array([np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5]),
    ]
    x = np.concatenate(parts).astype(np.float32)
    return x, np.roll(x, 17)


def basic(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    moved = x.reshape(-1, 7).permute(1, 0)
    return (
        *(x + y, x - y, x * y, x / y, x * y + x, abs(x).sqrt(), -x),
        *(x.maximum(y), x.minimum(y), x.floor(), x.ceil(), x.round(), x < y, x == y),
        *(x.astype("float64") / 3.0, moved, x.sort(), x.argmax()),
    )


def casts(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """To every type of real numbers there is, and back."""
    names = [name for name, one in BY_NAME.items() if not one.is_block and "complex" not in name]
    assert len(names) > 20
    return tuple(x.astype(name).astype("float64") for name in names)


def integers(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    a, b = x.astype("int32"), y.astype("int32")
    rows = a[:9000].reshape(90, 100)
    return a + b, a * b, a // (b + 1), a % (b + 1), rows.sum(), rows.cumsum(1), rows @ rows.T


def functions(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    small = x.clip(-20.0, 20.0)
    return (
        *(x.exp(), x.exp2(), abs(x).log(), x.sin(), x.cos(), small.tan(), x.tanh(), x.erf()),
        *(x.atan(), x.sigmoid(), small.gelu(), abs(small) ** 0.3, small.sinh()),
    )


def bits_for(
    target: Target, graph: Graph, arrays: list[Array], monkeypatch: pytest.MonkeyPatch
) -> list[bytes]:
    """What the program, made for a target, gives here."""
    with Executable(graph, compiled_for(target, graph, monkeypatch)) as program:
        return [one.tobytes() for one in program(*arrays)]


def compiled_for(target: Target, graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    with monkeypatch.context() as there:
        there.setitem(vars(backend_of("cpu")), "target", target)
        return compile_anew(graph)


def test_programs_are_made_for_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(lambda x, y: x + y, *numbers())
    images = [compiled_for(target, graph, monkeypatch).image for target in (X86_64, AVX2)]
    assert images[0] != images[1]


@pytest.mark.parametrize("function", [basic, casts, integers], ids=lambda f: f.__name__)
def test_what_is_exact_is_the_same_on_every_cpu(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [*numbers()]
    graph = graph_of(function, *arrays)
    want, *others = [bits_for(target, graph, arrays, monkeypatch) for target in ALL]
    assert all(found == want for found in others)


def test_exact_operations_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any version: an outside judge of them stays what it is."""
    x, y = numbers()
    with np.errstate(all="ignore"):
        want = [x + y, x - y, x * y, x / y, x * y + x, np.sqrt(abs(x)), -x]
        want += [x.astype(ml_dtypes.bfloat16), x.astype(np.float16)]

    def function(x: Tensor, y: Tensor) -> Any:
        made = (x + y, x - y, x * y, x / y, x * y + x, abs(x).sqrt(), -x)
        return (*made, x.astype("bfloat16"), x.astype("float16"))

    graph = graph_of(function, x, y)
    for target in ALL:
        found = bits_for(target, graph, [x, y], monkeypatch)
        for ours, theirs in zip(found, want, strict=True):
            is_number = ~np.isnan(theirs)
            got = np.frombuffer(ours, theirs.dtype)
            assert got[is_number].tobytes() == theirs[is_number].tobytes()
            assert np.isnan(got[~is_number]).all()


def test_functions_are_the_same_wherever_there_is_fma(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [*numbers()]
    graph = graph_of(functions, *arrays)
    want, *others = [bits_for(target, graph, arrays, monkeypatch) for target in WITH_FMA]
    assert others
    assert all(found == want for found in others)


@pytest.mark.parametrize("n_rows", [1, 3, 21, 130])
def test_quantised_products_are_the_same_wherever_there_is_fma(
    n_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, arrays, _ = packed_case(n_rows)
    want, *others = [bits_for(target, graph, arrays, monkeypatch) for target in WITH_FMA]
    assert all(found == want for found in others)


def test_products_of_bytes_are_the_same_on_every_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (50, 96)).astype(np.uint8)
    w = rng.integers(-128, 128, (96, 80)).astype(np.int8)
    weights = arenite.from_numpy(w)
    graph = graph_of(lambda x: x.astype("int32") @ weights.astype("int32"), x)
    for target in ALL:
        [found] = bits_for(target, graph, [x], monkeypatch)
        assert found == (x.astype(np.int32) @ w.astype(np.int32)).tobytes()


def test_random_bits_are_the_same_on_every_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = graph_input("seed", 0, (), BY_NAME["uint64"])
    graph = Graph.of([make("random_bits", seed, counter=3, shape=(1000, 7))])
    arrays = [np.array(12345, np.uint64)]
    want, *others = [bits_for(target, graph, arrays, monkeypatch) for target in ALL]
    assert all(found == want for found in others)
