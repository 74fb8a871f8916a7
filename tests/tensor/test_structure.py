"""Structures of tensors as arguments and results, and the names that follow from them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import arenite
from arenite import Tensor, Var, spec
from arenite.errors import InvalidArgument
from arenite.tensor.structure import flatten, leaves_like, named, unflatten

Array = NDArray[Any]


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class Layer:
    w: Any
    b: Any = None
    power: int = field(default=1, metadata={"static": True})


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_every_structure_is_put_together_as_it_was() -> None:
    value = {"z": [1, (2, None)], "a": Pair(3, {"k": 4}), 7: Layer(5, Layer(6), 9)}
    structure, leaves = flatten(value)
    assert unflatten(structure, [leaf for _, leaf in leaves]) == value
    assert list(unflatten(structure, [leaf for _, leaf in leaves])) == ["z", "a", 7]
    paths = dict(leaves)
    for path, leaf in paths.items():
        assert eval(f"value{path}", {"value": value}) == leaf
    assert leaves_like("it", value, structure) == [leaf for _, leaf in leaves]


def test_the_order_in_which_a_dict_was_filled_does_not_count() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    chosen = arenite.cond(Tensor(0) > 1, {"a": x, "b": y}, lambda: {"b": y * 10, "a": x * 10})
    assert chosen["a"].numpy().tolist() == [10, 20]
    assert chosen["b"].numpy().tolist() == [30, 40]
    last = arenite.fori_loop(
        0, 1, lambda i, s: {"b": s["b"] + 1, "a": s["a"] * 2}, {"a": x, "b": y}
    )
    assert last["a"].numpy().tolist() == [2, 4]
    assert last["b"].numpy().tolist() == [4, 5]
    with arenite.compile(lambda d: d["a"] - d["b"], {"a": spec((2,)), "b": spec((2,))}) as program:
        a, b = np.ones(2, np.float32), np.zeros(2, np.float32)
        assert program({"b": b, "a": a}).tolist() == [1, 1]


def network(params: dict[str, Any], x: Tensor) -> dict[str, Any]:
    for layer in params["layers"]:
        x = (x @ layer.w + layer.b).relu() ** layer.power
    return {"logits": x @ params["head"], "last": [x]}


def test_structures_are_arguments_and_their_names_are_in_the_plan() -> None:
    params: dict[str, Any] = {
        "layers": [Layer(floats(8, 16), floats(16), 2), Layer(floats(16, 12), floats(12))],
        "head": floats(12, 4),
    }
    batch = Var("batch", 1, 8)
    with arenite.compile(network, params, spec((batch, 8))) as program:
        for n in (1, 5):
            x = expected = floats(n, 8)
            for layer in params["layers"]:
                expected = np.maximum(expected @ layer.w + layer.b, 0) ** layer.power
            made = program(params, x)
            np.testing.assert_allclose(made["logits"], expected @ params["head"], rtol=1e-4)
            np.testing.assert_allclose(made["last"][0], expected, rtol=1e-4)
        names = set(program.plan.slots)
        wanted = {f"params.layers.{k}.{part}" for k in range(2) for part in "wb"}
        assert wanted | {"params.head", "x", "logits", "last.0"} <= names
        assert any(
            "params.head" in name
            for one in program.profile(params, x).kernels
            for name in one.reads
        )
        assert "params.head" in str(program.profile(params, x))
        for wrong, message in (
            ({"layers": params["layers"]}, r"argument 'params' is of structure \{'layers'"),
            ({**params, "layers": params["layers"][:1]}, r"argument 'params'\['layers'\] is of"),
            ({**params, "head": [1]}, "head"),
            (
                {**params, "layers": [params["layers"][0], Layer(floats(16, 12), floats(12), 3)]},
                r"\['layers'\]\[1\] is of structure",
            ),
        ):
            with pytest.raises(arenite.errors.AreniteError, match=message):
                program(wrong, x)


def test_static_values_stand_in_structures_too() -> None:
    def function(options: dict[str, Any]) -> Tensor:
        made: Tensor = options["x"].sum(options["axis"])
        return made

    with arenite.compile(function, {"x": spec((2, 3)), "axis": arenite.static}) as program:
        x = floats(2, 3)
        for axis in (0, 1):
            np.testing.assert_allclose(program({"x": x, "axis": axis}), x.sum(axis), rtol=1e-5)


def test_lists_of_numbers_are_arrays_and_none_is_nothing() -> None:
    with arenite.compile(lambda x, y: x * 2 if y is None else x, [[1.0, 2.0]], None) as program:
        assert program([[3, 4.5]], None).tolist() == [[6, 9]]
        with pytest.raises(InvalidArgument, match="argument 'y'"):
            program([[3, 4.5]], 1)


@pytest.mark.parametrize(
    ("path", "name"),
    [("", "p"), ("['w']", "p.w"), ("[0]['h'].w", "p.0.h.w"), ("[10]", "p.10"), (".a", "p.a")],
)
def test_paths_as_names(path: str, name: str) -> None:
    assert named("p", path) == name


def test_tensors_have_names_that_the_plan_shows() -> None:
    w = arenite.from_numpy(floats(40, 40)).named("embed.weight")
    assert w.name == "embed.weight"
    assert (w * 2).name is None

    def compiled(tensor: Tensor) -> Any:
        function: Callable[[Tensor], Tensor] = lambda x: x @ tensor  # noqa: E731
        return arenite.compile(function, spec((30, 40)))

    with compiled(w) as program:
        assert any("embed.weight" in str(name) for name in program.plan.slots)
    # Also where a program of the same content was kept under another name.
    again = arenite.from_numpy(floats(40, 40)).named("other")
    with compiled(again) as program:
        shown = {str(name) for name in program.plan.slots}
        assert any("other" in name for name in shown)
        assert not any("embed" in name for name in shown)
    assert again.named("third").name == "third"
    for wrong in ("", "a\nb"):
        with pytest.raises(InvalidArgument, match="name of a tensor"):
            w.named(wrong)


def test_calls_with_structures_leave_no_cycles() -> None:
    with arenite.compile(lambda p: {"a": [p["x"] * 2]}, {"x": spec((2,))}) as program:
        given = {"x": np.ones(2, np.float32)}
        program(given)
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                program(given)
            assert gc.collect() < 100
        finally:
            gc.enable()
