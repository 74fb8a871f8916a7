"""Nothing is read behind the end of an operand: a page that must not be touched begins there.

The kernels run in a child process, which such a read would end.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.codegen.building import AtTheEdge
from tests.codegen.made import TARGETS
from tests.codegen.products import Made, Shape


def run_at_the_edge(shape: Shape, dtype: Any, target: str) -> None:
    a, b = shape.operands(dtype)
    made = Made(shape.product, [a.shape, b.shape], dtype, target)
    edges = [AtTheEdge(a), AtTheEdge(b)]
    made.run([edge.array for edge in edges])


SHAPES = [
    Shape(13, 37, 19),
    Shape(1, 1027, 33),
    Shape(5, 1031, 20),
    Shape(3, 7, 201, tb=True),
    Shape(97, 21, 135, tb=True),
    Shape(130, 1031, 600),
    Shape(9, 11, 13, (3,), ta=True),
    Shape(70, 33, 41, b_step=3),
]


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    """This file as a program, after it has ended."""
    command = [sys.executable, "-m", "tests.codegen.test_micro_bounds", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_behind_the_end_is_read(target: str) -> None:
    ended = child(target)
    assert ended.returncode == 0, f"{ended.stdout.splitlines()[-1:]} {ended.stderr[-500:]}"
    assert len(ended.stdout.splitlines()) == 2 * len(SHAPES)


def test_such_a_read_ends_the_child() -> None:
    assert child("read on").returncode < 0


def main(what: str) -> None:
    if what == "read on":
        edge = AtTheEdge(np.ones(5, np.float32))
        ctypes.string_at(edge.array.ctypes.data, 21)
    for shape in SHAPES:
        for dtype in (np.float32, np.float16):
            print(shape, np.dtype(dtype), flush=True)
            run_at_the_edge(shape, dtype, what)


if __name__ == "__main__":
    main(sys.argv[1])
