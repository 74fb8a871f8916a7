"""The cache's JSON is that of Python's `json`, which it does not import."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arenite import saved_json

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(VALUES)
def test_values_are_written_and_read_as_json_does(value: Any) -> None:
    text = json.dumps(value)
    assert saved_json.dumps(value) == text
    assert saved_json.loads(text) == saved_json.loads(text.encode()) == value


def test_what_is_no_number_is_read() -> None:
    nan, low, high = saved_json.loads("[NaN, -Infinity, Infinity]")
    assert math.isnan(nan)
    assert (low, high) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    "text", ["", "{", "[1,", '{"a" 1}', "nul", '"a', "[1] [2]", " 1", b"\xff", '"\n"', "[1,]"]
)
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|char|decode"):
        saved_json.loads(text)


def test_depth_and_kinds_have_limits() -> None:
    with pytest.raises(RecursionError):
        saved_json.loads("[" * 100_000)
    with pytest.raises(TypeError):
        saved_json.dumps({"a": {1, 2}})
    inside: list[Any] = []
    inside.append(inside)
    with pytest.raises(ValueError, match="Circular"):
        saved_json.dumps(inside)


def test_the_package_is_not_imported() -> None:
    code = "import sys; from arenite.saved_json import loads; loads('[1]'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "json" not in done.stdout.split()
