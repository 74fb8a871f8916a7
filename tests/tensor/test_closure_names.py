"""Weights that a function closes over are called what its source calls them.

The judge is the source itself: what stands in the function is what the plan has to say.
"""

from __future__ import annotations

import functools
from collections import UserDict, namedtuple
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import arenite
from arenite.backends.cpu.compiling import kernel_cache
from arenite.backends.cpu.compiling.pool import compile_modules
from arenite.backends.cpu.target import Target
from arenite.memory import svg
from arenite.tensor import closure
from tests.pipeline.segments import segments_of

SIZE = 12  # over what is known by content
SPEC = arenite.spec((2, SIZE))
X = np.ones((2, SIZE), np.float32)


def array(seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(SIZE, SIZE)).astype(np.float32)


def tensor(seed: int = 0) -> Any:
    return arenite.from_numpy(array(seed))


def weights_of(function: Any, *specs: Any) -> set[str]:
    """What the weights are called in the plan."""
    with arenite.compile(function, *(specs or (SPEC,))) as program:
        [executable] = program.executables
        values = [value for value in executable.compiled.values if value.kind == "constant"]
        assert all(f"{value.name}" in str(program.plan) for value in values)
        return {value.name for value in values}


GLOBAL = tensor(1)
PARAMS: Any = {"layer0": {"wq": tensor(2), "wk": tensor(3)}, "layers": [tensor(4), {"w": array(5)}]}
MODULE = ModuleType("weights_of_a_test")
MODULE.__dict__.update(w=tensor(6), inner=SimpleNamespace(v=tensor(7)))


def with_global(x: Any) -> Any:
    return x @ GLOBAL


def test_cells_globals_and_defaults() -> None:
    w, v, first, second = tensor(), array(1), tensor(8), array(9)

    def network(x: Any, b: Any = first, *, c: Any = second) -> Any:
        return x @ w @ v @ GLOBAL @ b @ c

    assert weights_of(network) == {"w", "v", "GLOBAL", "b", "c"}


def test_in_containers_and_in_functions_inside() -> None:
    one: Any = namedtuple("one", "w")(tensor())
    keyed = {3: tensor(1), "a b.0": tensor(2), (1, 2): tensor(10)}

    def network(x: Any) -> Any:
        x = arenite.cond(x.sum() > 0, lambda: x @ PARAMS["layer0"]["wq"], lambda: x)
        for layer in ("wk",):
            x = x @ PARAMS["layer0"][layer]
        x = x @ PARAMS["layers"][0] @ PARAMS["layers"][1]["w"]
        return x @ one.w @ keyed[3] @ keyed["a b.0"]

    assert weights_of(network) == {
        "PARAMS.layer0.wq",
        "PARAMS.layer0.wk",
        "PARAMS.layers[0]",
        "PARAMS.layers[1].w",
        "one.w",
        "keyed[3]",
        "keyed.a b.0",
    }


@dataclass(slots=True)
class Block:
    w: Any
    unset: Any = field(init=False)


class Model:
    shared = tensor(20)

    def __init__(self) -> None:
        self.weights = [tensor(k) for k in range(4)]
        self.blocks = [Block(tensor(30 + k)) for k in range(2)]

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x @ block.w
        return x @ self.weights[3] @ self.shared @ GLOBAL

    __call__ = forward

    @classmethod
    def of_all(cls, x: Any) -> Any:
        return x @ cls.shared


def test_of_objects_and_methods() -> None:
    model = Model()
    rest = {"blocks[0].w", "blocks[1].w", "weights[3]", "shared"}
    for function, name in ((model.forward, "self"), (model, "self"), (lambda x: model(x), "model")):
        assert weights_of(function) == {f"{name}.{one}" for one in rest} | {"GLOBAL"}
    assert weights_of(Model.of_all) == {"cls.shared"}


def test_of_modules_functions_and_what_is_made_of_functions() -> None:
    def made(w: Any) -> Any:
        return lambda x: x @ w

    layers = [made(tensor(k)) for k in range(2)]

    def given(weight: Any, x: Any, *, other: Any) -> Any:
        return layers[1](layers[0](with_global(x))) @ MODULE.w @ MODULE.inner.v @ weight @ other

    cells, names = {"layers[0].w", "layers[1].w"}, {"GLOBAL", "MODULE.w", "MODULE.inner.v"}
    partial = functools.partial(given, tensor(3), other=tensor(4))
    assert weights_of(partial) == names | cells | {"weight", "other"}
    wrapped = functools.wraps(with_global)(lambda x: partial(x))
    inside = {f"partial.{one}" for one in cells | {"weight", "other"}}
    assert weights_of(wrapped) == names | inside


def test_what_is_nearest_counts_and_a_name_that_was_given_wins() -> None:
    params = {"layer": {"w": tensor()}, "v": tensor(1).named("given.name")}
    w = params["layer"]["w"]
    turned = tensor(2).T * 2

    def network(x: Any) -> Any:
        return x @ w @ params["v"] @ turned

    assert weights_of(network) == {"w", "given.name", "turned"}
    assert w.name is None, "names that are found stay with the program"
    assert weights_of(lambda x: x @ params["layer"]["w"]) == {"params.layer.w"}


def test_names_are_seen_everywhere() -> None:
    w, spec = arenite.from_numpy(np.ones((100, 100), np.float32)), arenite.spec((2, 100))
    x = np.ones((2, 100), np.float32)
    with arenite.compile(lambda x: x @ w, spec) as program:
        assert {"w", "w packed"} <= set(map(str, program.plan.slots))
        assert "w packed" in str(program.kernels)
        assert "w packed" in str(program.profile(x))
        assert "w packed" in svg.draw(program.executables[0].plan)
    with arenite.compile(lambda x, n: (x @ w) * arenite.arange(n).sum(), spec, np.array(2)) as cut:
        cut(x, np.array(2))
        assert any("w" in map(str, one.plan.slots) for one in segments_of(cut).executables)
        assert "w packed" in str(cut.kernels)


def test_names_go_to_a_terminal_as_text() -> None:
    bad = {"\x1b[2Jw\n": tensor(), "v" * 1000: tensor(1)}
    keys = list(bad)
    names = weights_of(lambda x: x @ bad[keys[0]] @ bad[keys[1]])
    assert all(name.isprintable() and len(name) <= closure.MAX_LENGTH for name in names)
    assert r"bad.\x1b[2Jw\n" in names


def test_what_differs_in_names_alone_shares_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    def counting(modules: Iterable[str], target: Target, **others: Any) -> list[bytes]:
        modules = [*modules]
        texts.extend(modules)
        return compile_modules(modules, target, **others)

    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel_cache, "compile_modules", counting)
    one, other = tensor(), tensor()
    results = []
    n_compiled = []
    for function in (lambda x: x @ one, lambda x: x @ other, lambda x: x @ tensor()):
        with arenite.compile(function, SPEC) as program:
            results.append(program(X))
        n_compiled.append(len(texts))
    assert n_compiled[0] == n_compiled[-1] > 0
    for result in results:
        np.testing.assert_array_equal(result, results[0])


class Trap:
    """Whatever is asked of it, it tells."""

    def __init__(self) -> None:
        object.__setattr__(self, "weight", tensor())

    def _tell(self, *_: Any) -> Any:
        raise AssertionError("code of the user was run")

    lazy = property(_tell)
    __class__ = property(_tell)
    __getattr__ = __getattribute__ = __iter__ = __len__ = __bool__ = __eq__ = _tell
    __hash__ = __repr__ = __str__ = __contains__ = __getitem__ = _tell


class Keys(dict[Any, Any]):
    items = __iter__ = __getitem__ = __len__ = Trap._tell


class Meta(type):
    __getattribute__ = Trap._tell


class Strange(metaclass=Meta):
    pass


def test_nothing_of_the_user_is_run() -> None:
    trap, w = Trap(), tensor()
    filled = Keys()
    dict.__setitem__(filled, "w", tensor(1))
    dict.__setitem__(filled, 1.5, trap)
    strange, user = [Strange, trap], UserDict(v=tensor(3))

    def network(x: Any) -> Any:
        if x is None:
            return trap, filled, strange
        weight = object.__getattribute__(trap, "weight")
        return x @ w @ weight @ dict.__getitem__(filled, "w") @ user.data["v"]

    assert weights_of(network) == {"w", "trap.weight", "filled.w", "user.data.v"}


@pytest.mark.parametrize("make", [lambda n: [0] * n, lambda n: dict.fromkeys(range(n))])
def test_no_more_is_looked_at_than_the_limits_say(make: Any) -> None:
    """Judged by the number of values that were asked for."""
    large, w = make(3 * closure.MAX_VALUES), tensor()
    nested = [make(closure.MAX_ITEMS) for _ in range(100)]
    deep: Any = tensor(1)
    for _ in range(50):
        deep = [deep]
    endless: list[Any] = []
    endless.append(endless)

    def network(x: Any) -> Any:
        return (x @ w, large, nested, deep, endless)[0]

    counted = []
    inside = closure._inside

    def counting(*given: Any) -> Any:
        for one in inside(*given):
            counted.append(one)
            yield one

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closure, "_inside", counting)
        assert weights_of(network) == {"w"}
    assert closure.MAX_ITEMS < len(counted) <= closure.MAX_VALUES


def test_modules_that_hold_one_another_are_looked_into_once() -> None:
    names = "abcdefgh"
    modules = {name: ModuleType(name) for name in names}
    for one in modules.values():
        one.__dict__.update(modules)
    modules["h"].__dict__["w"] = w = tensor()
    space: dict[str, Any] = {**modules, "__name__": "user"}
    source = "".join(f"if x is None: return a.{one}.{one}\n    " for one in names)
    exec(f"def network(x):\n    {source}return x @ h.w", space)
    counted = []
    own = closure._own
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closure, "_own", lambda value: counted.append(value) or own(value))  # type: ignore[func-returns-value]
        assert closure.ClosureNames(space["network"])._tensors == [("h.w", w.node)]
    assert len(counted) <= 100
