"""What a CachedKernel says it reads, against what its code reads."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import arenite
from arenite import Tensor
from arenite.program.cached_kernel import CachedKernel


def read_in(kernel: CachedKernel) -> set[int]:
    """The arrays that stand elsewhere than to the left of an assignment, by the text alone."""
    head, body = kernel.code.split("\n", 1)
    names = re.findall(r"(\w+)\[\]", head)
    assert len(names) == len(kernel.globals)
    right = "\n".join(re.sub(r"^\s*\w+\[[^=]*\] = ", "", line) for line in body.split("\n"))
    found = zip(names, kernel.globals, strict=True)
    return {number for name, number in found if re.search(rf"\b{name}\[", right)}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("softmax", lambda x: x.softmax()),
        ("sort", lambda x: x.sort()),
        ("add", lambda x: x + 1),
        ("sum", lambda x: x.sum(axis=1)),
        ("cumsum", lambda x: x.cumsum(axis=1)),
    ],
)
def test_all_that_is_read_is_among_the_ins(name: str, function: Callable[[Tensor], Tensor]) -> None:
    program = arenite.compile(function, np.zeros((4, 100), np.float32))
    for kernel in program.kernels:
        assert set(kernel.ins) == read_in(kernel), name
        assert len(set(kernel.ins)) == len(kernel.ins)
    # Else nothing would be asked: of these two something is read back.
    if name in ("softmax", "sort"):
        assert any(len(kernel.ins) == 2 for kernel in program.kernels)
