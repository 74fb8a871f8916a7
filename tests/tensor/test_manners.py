"""What people expect of anything that holds numbers: copies, pickles, formats, text, and a hint."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import arenite
from arenite import Tensor, spec
from arenite.errors import NotSupported, TypeMismatch


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(), (3,), (20, 30), (0, 2)])
def test_a_tensor_is_pickled_by_its_numbers(dtype: str, shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(1).integers(0, 2, shape)
    tensor = (Tensor(numbers) * 1).astype(dtype).named("weights")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(tensor, protocol))
        assert type(again) is Tensor
        assert again.dtype == tensor.dtype
        assert again.shape == shape
        assert again.numpy().tobytes() == tensor.numpy().tobytes()
        assert again.name == "weights"
    both = pickle.loads(pickle.dumps({"a": tensor, "b": [tensor]}))
    assert both["a"] is both["b"][0]


def test_what_has_no_numbers_is_not_pickled() -> None:
    with pytest.raises(NotSupported, match="not bound"):
        pickle.dumps(Tensor(arenite.Var("n", 1, 3)))


def test_copies_are_the_tensor_itself() -> None:
    tensor = Tensor([1, 2]) + 1
    assert copy.copy(tensor) is tensor
    assert copy.deepcopy({"w": [tensor]})["w"][0] is tensor
    assert not tensor.is_realized


def test_one_element_is_formatted_as_a_number() -> None:
    total = Tensor([1.25, 2.5]).sum()
    assert f"{total:.2f}" == "3.75"
    assert f"{Tensor([[7]]):04d}" == "0007"
    assert f"{Tensor(True):d}" == "1"
    assert f"{Tensor([1, 2])}" == str(Tensor([1, 2]))
    with pytest.raises(TypeError, match=r"not int64\[2\]"):
        f"{Tensor([1, 2]):.2f}"


def test_numpy_compares_tensors() -> None:
    a = np.linspace(0, 1, 100, dtype=np.float32)
    t = Tensor(a) * 1.0
    assert np.allclose(t, a) is True
    assert np.allclose(a, t + 1e-3) is False
    assert np.allclose(t + 1e-3, a, atol=1e-2)
    assert np.allclose(Tensor([np.nan]), [np.nan]) is False
    assert np.allclose(Tensor([np.nan]), [np.nan], equal_nan=True)
    assert np.array_equal(t, a) is True
    assert np.array_equal(t, a[:5]) is False
    assert np.array_equal(Tensor([np.nan, 1]), [np.nan, 1], equal_nan=True)
    np.testing.assert_allclose(t, a)


def test_text_shows_numbers_once_they_are_known() -> None:
    lazy = Tensor([1.5, 2.0]) * 2
    assert repr(lazy) == "Tensor(float64[2], lazy mul)"
    lazy.realize()
    assert repr(lazy) == "Tensor([3., 4.], float64[2])"
    assert repr(Tensor(3)) == "Tensor(3, int64[])"
    assert len(repr(Tensor(np.zeros(10**6)))) < 200


class Cells(HTMLParser):
    """The cells of a table with their alignment; every tag must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[tuple[str, str]] = []
        self._open: list[str] = []
        self._style = ""
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        self._style = dict(attrs).get("style") or ""

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("td", "th"):
            self.cells.append((data, self._style))


def test_notebooks_show_tables_with_numbers_flush_right() -> None:
    table = Cells(Tensor(np.arange(600.0).reshape(20, 30))._repr_html_())
    texts = [text for text, _ in table.cells]
    assert {"0", "599", "29", "…"} <= set(texts)
    assert len(texts) < 200
    assert all("right" in style for _, style in table.cells)
    assert "&lt;" in Tensor([1]).named("<b>")._repr_html_()
    assert "lazy" in (Tensor([1]) + 1)._repr_html_()
    with arenite.compile(lambda x: x.sort() * 2, spec((100, 1000))) as program:
        x = np.zeros((100, 1000), np.float32)
        whole = program._repr_html_()
        assert "KiB" in whole
        for text in (whole, program.kernels._repr_html_(), program.profile(x)._repr_html_()):
            numeric = [style for cell, style in Cells(text).cells if re.fullmatch(r"[\d,.]+", cell)]
            assert numeric
            assert all("right" in style for style in numeric)
    with arenite.compile(lambda x, k: x * k, spec((2,)), arenite.static) as program:
        program(np.zeros(2, np.float32), 3)
        assert "3" in [cell for cell, _ in Cells(program._repr_html_()).cells]


def test_a_kernel_prints_its_loops() -> None:
    with arenite.compile(lambda x: x.softmax(-1), spec((4, 8))) as program:
        [kernel] = program.kernels
        assert str(kernel) == kernel.code
        assert "for (int64" in str(kernel)
        assert kernel.entry_point in repr(kernel)
        assert "\n" not in repr(kernel)
        assert kernel._repr_html_().startswith("<pre>")


def test_float64_that_meets_float32_is_pointed_at() -> None:
    x = Tensor(np.ones(3, np.float32)) * 1

    def body(i: Any, s: Tensor) -> Tensor:
        wide = s * np.full(3, 0.5)
        return wide + 1

    line = inspect.getsourcelines(body)[1] + 1
    message = rf"float32 meets float64 at \S+test_manners\.py:{line}; NumPy makes arrays of float64"
    with pytest.raises(TypeMismatch, match=message):
        arenite.fori_loop(0, 3, body, x)
    kept = arenite.State((3,), name="kept")
    with pytest.raises(TypeMismatch, match="float32 meets float64"):
        arenite.compile(lambda x: kept.set(x * np.full(3, 0.5)), spec((3,)))
    with (
        arenite.compile(lambda x: x, spec((3,))) as program,
        pytest.raises(TypeMismatch, match=r"give x\.astype\('float32'\)"),
    ):
        program(np.ones(3))
