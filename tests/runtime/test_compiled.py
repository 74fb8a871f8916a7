"""Programs on disk: columns are read at once, objects when they are looked at."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arenite
from arenite import Var, spec
from arenite.errors import DamagedCache
from arenite.ir.dim import Dim, Found, bounds, maximum, terms_of
from arenite.ir.graph import Graph
from arenite.program import program_json
from arenite.program.compiled import SCHEMA, Compiled
from arenite.program.record_json import dim_from_json, dim_to_json
from arenite.runtime.executable import Executable

WEIGHTS = np.random.default_rng(1).standard_normal((48, 300)).astype(np.float32)
#: What a damaged byte may become: small and large numbers, negative ones.
BYTES = (0, 1, 2, 127, 255)


def network(x: Any) -> Any:
    w = arenite.from_numpy(WEIGHTS)
    h = ((x @ w).tanh() @ w.T).softmax(-1)
    return arenite.fori_loop(3, lambda i, y: (y @ h.T @ h).sort(), x), h.sum(0)


@pytest.fixture(scope="module")
def saved() -> tuple[Graph, dict[str, bytes]]:
    with arenite.compile(network, spec((Var("rows", 0, 20), 48)), threads=2) as program:
        executable = program.executable
        return executable.graph, program.executables[0].compiled.sections()


def read(sections: dict[str, bytes]) -> Compiled:
    return Compiled.from_sections({name: memoryview(data) for name, data in sections.items()})


def read_whole(sections: dict[str, bytes]) -> Compiled:
    program = read(sections)
    assert [*program.values, *program.kernels]
    return program


def test_columns_are_those_of_the_objects(saved: tuple[Graph, dict[str, bytes]]) -> None:
    program = read(saved[1])
    program.verify()
    assert program.frame is not program._replace().frame
    assert len(program.frame.known) > 1
    assert read(program.sections()).sections() == saved[1]
    launch = program.launches[0]
    other = launch._replace(arrays=(launch.arrays[1], launch.arrays[0], *launch.arrays[2:]))
    changed = program._replace(launches=[other, *program.launches[1:]])
    changed.verify()
    assert not changed.frame.is_same(program.frame)


def test_a_run_makes_no_objects(
    saved: tuple[Graph, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise AssertionError("an object was made")

    graph, sections = saved
    rng = np.random.default_rng(2)
    with monkeypatch.context() as patch, Executable(graph, read(sections), 2) as program:
        patch.setattr(program_json, "objects_from_json", refuse)
        patch.setattr(program_json, "kernels_from_json", refuse)
        for rows in (0, 1, 7, 20):
            x = rng.standard_normal((rows, 48)).astype(np.float32)
            logits = np.tanh(x @ WEIGHTS) @ WEIGHTS.T
            powers = np.exp(logits - logits.max(-1, keepdims=True))
            h = powers / powers.sum(-1, keepdims=True)
            _, total = program(x)
            np.testing.assert_allclose(total, h.sum(0), rtol=1e-4, atol=1e-4)
        with pytest.raises(AssertionError, match="an object"):
            program.verify()
    with Executable(graph, read(sections), 2) as program:
        for rows in (20, 0, 3, 20, 1):
            program(np.ones((rows, 48), np.float32))
        program.verify()
        assert len(program.kernels) == len(program.compiled.launches)
        assert all(kernel.code for kernel in program.kernels)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damage_is_said_to_be_damage(
    saved: tuple[Graph, dict[str, bytes]], data: st.DataObject
) -> None:
    """Whatever the bytes are, reading them raises DamagedCache, or gives a program."""
    sections = dict(saved[1])
    name = data.draw(st.sampled_from(["frame", "plan", "program", "kernels", "data", "llvm"]))
    content = bytearray(sections[name])
    for _ in range(data.draw(st.integers(1, 4))):
        if content:
            place = data.draw(st.integers(0, len(content) - 1))
            content[place] = data.draw(st.sampled_from(BYTES))
    n = len(content)
    sections[name] = bytes(content[: data.draw(st.one_of(st.just(n), st.integers(0, n)))])
    try:
        program = read_whole(sections)
    except DamagedCache:
        return
    assert len(program.values) == len(program.frame.kinds)


@pytest.mark.parametrize("name", ["code", "frame", "plan", "program", "kernels", "data", "llvm"])
def test_a_section_that_is_missing(saved: tuple[Graph, dict[str, bytes]], name: str) -> None:
    sections = {one: data for one, data in saved[1].items() if one != name}
    with pytest.raises(DamagedCache):
        read_whole(sections)


def test_another_schema(saved: tuple[Graph, dict[str, bytes]]) -> None:
    old = saved[1]["frame"].replace(b'"schema":%d' % SCHEMA, b'"schema":5')
    with pytest.raises(DamagedCache, match="schema 5"):
        read(saved[1] | {"frame": old})


A, B = Var("a", 0, 9), Var("b", 1, 50)
SIZES = [
    *(0, 7, A, Found("f", 0, 3), 2 * A + 1, 3 * A * B - A + 4, (A + 3) // 8, (5 * A + B) // 3 * A),
    *(100 // B, (A + 2) // (B + 1), maximum(A - B, 0), maximum(A, B) * 2, (A - B) % 4, A % B),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_size_is_read_back_as_it_was(size: Dim) -> None:
    made = dim_from_json(dim_to_json(size))
    assert made == size
    assert bounds(made) == bounds(size)
    assert terms_of(made) == terms_of(size)


@pytest.mark.parametrize(
    "text",
    [
        '{"div": [5, 2]}',
        '{"div": [{"var": ["a", 0, 9]}, 0]}',
        '{"div": [{"var": ["a", 0, 9]}, {"var": ["b", 0, 9]}]}',
        '{"positive": 3}',
        '{"sum": [[2, [4]]]}',
        '{"sum": [[2, [{"sum": [[3, []]]}]]]}',
    ],
)
def test_what_is_no_size_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"size is divided|is needed"):
        dim_from_json(text)
