"""Products: matmul with vectors, einsum, diagonals, triangles, tensordot."""

from __future__ import annotations

from collections.abc import Sequence

from arenite.dtype import INT64
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir.compose.basic import along, broadcast_to, iota, permute, reshape, slice_axis, where
from arenite.ir.compose.reductions import reduce
from arenite.ir.dim import Dim, minimum, product
from arenite.ir.node import Node
from arenite.ir.ops import full, make
from arenite.ir.ops.define import broadcast

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def matmul(a: Node, b: Node) -> Node:
    """numpy.matmul: a vector is a row on the left and a column on the right."""
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeMismatch(f"matmul takes no scalars: shapes {a.shape} and {b.shape}; use *")
    left = reshape(a, (1, *a.shape)) if a.ndim == 1 else a
    right = reshape(b, (*b.shape, 1)) if b.ndim == 1 else b
    result = make("matmul", left, right, transpose_a=False, transpose_b=False)
    shape = list(result.shape)
    if b.ndim == 1:
        shape.pop()
    if a.ndim == 1:
        shape.pop(-1 if b.ndim == 1 else -2)
    return reshape(result, shape)


def tensordot(a: Node, b: Node, axes_a: Sequence[int], axes_b: Sequence[int]) -> Node:
    """Sum over pairs of axes; what is left of a comes first."""
    kept_a = [axis for axis in range(a.ndim) if axis not in axes_a]
    kept_b = [axis for axis in range(b.ndim) if axis not in axes_b]
    shared_a, shared_b = ([x.shape[i] for i in axes] for x, axes in ((a, axes_a), (b, axes_b)))
    if shared_a != shared_b:
        raise ShapeMismatch(
            f"tensordot: axes {tuple(axes_a)} of {a.shape} and {tuple(axes_b)} of {b.shape} have "
            "other sizes"
        )
    depth = product(shared_a)
    sizes_a, sizes_b = [a.shape[i] for i in kept_a], [b.shape[i] for i in kept_b]
    left = reshape(permute(a, [*kept_a, *axes_a]), (product(sizes_a), depth))
    right = reshape(permute(b, [*axes_b, *kept_b]), (depth, product(sizes_b)))
    result = make("matmul", left, right, transpose_a=False, transpose_b=False)
    return reshape(result, (*sizes_a, *sizes_b))


def diagonal(x: Node, offset: int, axis1: int, axis2: int) -> Node:
    """The elements (i, i + offset) of two axes, appended as the last axis."""
    others = [axis for axis in range(x.ndim) if axis not in (axis1, axis2)]
    x = permute(x, [*others, axis1, axis2])
    if offset >= 0:
        x = slice_axis(x, x.ndim - 1, minimum(offset, x.shape[-1]), x.shape[-1])
    else:
        x = slice_axis(x, x.ndim - 2, minimum(-offset, x.shape[-2]), x.shape[-2])
    rows, columns = x.shape[-2:]
    length = minimum(rows, columns)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise ShapeMismatch(f"diagonal needs sizes that are numbers, not {rows} by {columns}")
    if length == 0:
        return slice_axis(reshape(x, (*x.shape[:-2], rows * columns)), x.ndim - 2, 0, 0)
    x = slice_axis(x, x.ndim - 2, 0, length)
    flat = reshape(x, (*x.shape[:-2], length * columns))
    last = (length - 1) * (columns + 1)
    return slice_axis(flat, flat.ndim - 1, 0, last + 1, columns + 1)


def triangle(x: Node, k: int, lower: bool) -> Node:
    """x with zeros above (lower) or below the k-th diagonal of the last two axes."""
    if x.ndim < 2:
        raise ShapeMismatch(f"a triangle needs two axes, not shape {x.shape}")
    rows, columns = x.shape[-2:]
    i = broadcast_to(along(iota(rows), 0, 2), (rows, columns))
    j = broadcast_to(along(iota(columns), 1, 2), (rows, columns))
    edge = i + full((rows, columns), k, INT64)
    return where(make("le" if lower else "ge", j, edge), x, False if x.dtype.name == "bool" else 0)


def einsum(subscripts: str, *nodes: Node) -> Node:
    """numpy.einsum, with `...`; operands are contracted from left to right."""
    terms, result = _parse(subscripts, nodes)
    sizes: dict[str, Dim] = {}
    for term, node in zip(terms, nodes, strict=True):
        for label, size in zip(term, node.shape, strict=True):
            if sizes.get(label, 1) != 1 and size not in (1, sizes[label]):
                raise ShapeMismatch(
                    f"einsum {_shown(subscripts)}: label {label!r} is {sizes[label]} and {size} in "
                    f"shapes {', '.join(str(n.shape) for n in nodes)}"
                )
            if sizes.get(label, 1) == 1:
                sizes[label] = size
    pending = [
        _without_repeats(term, _stretched(term, node, sizes))
        for term, node in zip(terms, nodes, strict=True)
    ]
    while len(pending) > 1:
        (term_a, a), (term_b, b) = pending[:2]
        needed = set(result).union(*[term for term, _ in pending[2:]])
        pending[:2] = [_contract(term_a, a, term_b, b, needed)]
    term, node = pending[0]
    node = reduce("sum", node, [i for i, label in enumerate(term) if label not in result])
    term = "".join(label for label in term if label in result)
    return permute(node, [term.index(label) for label in result])


def _shown(subscripts: str) -> str:
    return repr(subscripts) if len(subscripts) <= 80 else f"{subscripts[:77]!r}..."


def _stretched(term: str, node: Node, sizes: dict[str, Dim]) -> Node:
    """Sizes of 1 broadcast, as NumPy has it."""
    return broadcast_to(node, [sizes[label] for label in term])


def _parse(subscripts: str, nodes: Sequence[Node]) -> tuple[list[str], str]:
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")

    def wrong(reason: str) -> InvalidArgument:
        return InvalidArgument(f"einsum {_shown(subscripts)}: {reason}")

    if len(terms) != len(nodes):
        raise wrong(f"{len(terms)} terms for {len(nodes)} operands")
    free = [letter for letter in _LETTERS if letter not in text]
    extra = [node.ndim - len(t.replace("...", "")) for t, node in zip(terms, nodes, strict=True)]
    widest = max((n for n, t in zip(extra, terms, strict=True) if "..." in t), default=0)
    batch = "".join(free[:widest])
    for i, (term, n) in enumerate(zip(terms, extra, strict=True)):
        if n < 0 or (n > 0 and "..." not in term):
            raise wrong(f"term {_shown(term)} does not fit shape {nodes[i].shape}")
        terms[i] = term.replace("...", batch[widest - n :])
        if not all(letter in _LETTERS for letter in terms[i]):
            raise wrong(f"term {_shown(term)} has something else than letters and ...")
    labels = "".join(terms)
    if not arrow:
        right = batch + "".join(
            sorted(c for c in set(labels) if labels.count(c) == 1 and c not in batch)
        )
    right = right.replace("...", batch)
    if len(set(right)) != len(right) or not set(right) <= set(labels):
        raise wrong(f"the result {right!r} has a label twice, or one that no operand has")
    return terms, right


def _without_repeats(term: str, node: Node) -> tuple[str, Node]:
    """A label that stands twice means the diagonal."""
    while len(set(term)) != len(term):
        label = next(c for c in term if term.count(c) > 1)
        first = term.index(label)
        second = term.index(label, first + 1)
        node = diagonal(node, 0, first, second)
        term = "".join(c for i, c in enumerate(term) if i not in (first, second)) + label
    return term, node


def _contract(term_a: str, a: Node, term_b: str, b: Node, needed: set[str]) -> tuple[str, Node]:
    """Two operands into one, as a batched matmul."""

    def without_lonely(term: str, other: str, node: Node) -> tuple[str, Node]:
        lonely = [i for i, c in enumerate(term) if c not in other and c not in needed]
        kept = "".join(c for i, c in enumerate(term) if i not in lonely)
        return kept, reduce("sum", node, lonely)

    term_a, a = without_lonely(term_a, term_b, a)
    term_b, b = without_lonely(term_b, term_a, b)
    batch = [c for c in term_a if c in term_b and c in needed]
    inner = [c for c in term_a if c in term_b and c not in needed]
    rows = [c for c in term_a if c not in term_b]
    columns = [c for c in term_b if c not in term_a]
    size = {
        c: s for term, x in ((term_a, a), (term_b, b)) for c, s in zip(term, x.shape, strict=True)
    }

    def sizes(labels: list[str]) -> list[Dim]:
        return [size[c] for c in labels]

    left = permute(a, [term_a.index(c) for c in (*batch, *rows, *inner)])
    right = permute(b, [term_b.index(c) for c in (*batch, *inner, *columns)])
    depth = product(sizes(inner))
    left = reshape(left, (*sizes(batch), product(sizes(rows)), depth))
    right = reshape(right, (*sizes(batch), depth, product(sizes(columns))))
    result = make("matmul", left, right, transpose_a=False, transpose_b=False)
    shape = (*sizes(batch), *sizes(rows), *sizes(columns))
    return "".join((*batch, *rows, *columns)), reshape(result, shape)


def outer(a: Node, b: Node) -> Node:
    """All products of two flattened operands."""
    left = reshape(a, (product(a.shape), 1))
    right = reshape(b, (1, product(b.shape)))
    shape = broadcast("outer", left.shape, right.shape)
    return broadcast_to(left, shape) * broadcast_to(right, shape)
