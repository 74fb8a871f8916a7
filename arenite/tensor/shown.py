"""A tensor for the eye: one line of text, or a small table in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arenite.device.allocator import readable_nbytes
from arenite.memory.html import html_table
from arenite.tensor.base import described

if TYPE_CHECKING:
    from arenite.tensor.tensor import Tensor

#: Rows and columns of a table; of more, the first and the last are shown.
MAX_ROWS = 12
MAX_COLUMNS = 12


def text_of(tensor: Tensor) -> str:
    """`Tensor([1., 2.], float32[2])`, or what is to be computed where no numbers are there."""
    typed = described(tensor.node)
    if not tensor.is_realized:
        return f"Tensor({typed}, lazy {tensor.node.op})"
    numbers = np.array2string(tensor.numpy(), separator=", ", prefix="Tensor(")
    return f"Tensor({numbers}, {typed})"


def html_of(tensor: Tensor) -> str:
    """Its type, and its numbers where they are there and it has two axes at most."""
    if not tensor.is_realized:
        return f"<code>{escape(text_of(tensor))}</code>"
    array = tensor.numpy()
    name = "" if tensor.name is None else f"{tensor.name}: "
    line = f"{name}{described(tensor.node)}, {readable_nbytes(array.nbytes)}"
    if not 1 <= array.ndim <= 2 or not array.size:
        return f"<pre>{escape(text_of(tensor))}</pre>"
    return f"<p>{escape(line)}</p>" + _table(array if array.ndim == 2 else array[None])


def _table(array: NDArray[Any]) -> str:
    n_rows, n_columns = array.shape
    rows, columns = _shown(n_rows, MAX_ROWS), _shown(n_columns, MAX_COLUMNS)
    head = ["", *("…" if k is None else str(k) for k in columns)]
    body = [
        ["…" if i is None else str(i)]
        + ["…" if i is None or k is None else _number(array[i, k]) for k in columns]
        for i in rows
    ]
    return html_table([head, *body], range(len(head)))


def _shown(n: int, most: int) -> list[int | None]:
    """Places that are shown; None stands for those left out."""
    if n <= most:
        return list(range(n))
    half = most // 2
    return [*range(half), None, *range(n - half, n)]


def _number(element: Any) -> str:
    return f"{element:.6g}" if np.issubdtype(element.dtype, np.floating) else str(element)
