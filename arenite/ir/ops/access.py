"""How ops read: which elements of its inputs an element of a node is made of.

An index is one `Dim` for each axis, over loop variables (Vars from 0 on) and the sizes of the
model. Movement ops only change indices, so a chain of them costs arithmetic on indices and no
memory. `a % b` is kept as `a - b*(a//b)`, so that taking an index apart and putting it together
again gives back the same index; what stays non-affine is seen as a division that is left over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from arenite.ir.dim import Dim, Floordiv, LoopVar, Var, bounds, maximum, product, variables
from arenite.ir.node import Node, Shape
from arenite.ir.ops.define import OPS

Index: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """An element exists only where 0 <= position < size; elsewhere it is padding."""

    position: Dim
    size: Dim


@dataclass(frozen=True, slots=True)
class Source:
    """An input's element, and the guards under which it is read."""

    node: Node
    index: Index
    guards: tuple[Guard, ...] = ()


@dataclass(frozen=True, slots=True)
class Reduction:
    """`op` combines the products of `factors` over all points of the reduced axes.

    sum over axis 1 of x[2, 3]      space (2, 3), axis 1 goes;       x[i, j]
    matmul a[b, m, k], b[b, k, n]   space (b, m, n, k), k goes;      a[b, m, k] * b[b, k, n]
    """

    op: str  # add, mul, max, min, and, or, argmax, argmin
    space: Shape
    axes: tuple[int, ...]
    factors: Callable[[Index], tuple[Source, ...]]


def is_elementwise(node: Node) -> bool:
    """Whether each element is made of the elements at the same index of all inputs."""
    return OPS[node.op].family == "elementwise"


def is_view(node: Node) -> bool:
    """Whether the node only says where its elements come from."""
    return OPS[node.op].family == "movement"


def sources(node: Node, index: Index) -> tuple[Source, ...]:
    """Where the element at `index` of an elementwise op or a view comes from."""
    rule = OPS[node.op].sources
    if rule is None:
        return tuple(Source(value, index) for value in node.inputs)
    return rule(node, index)


def reduction_of(node: Node) -> Reduction | None:
    """The reduction a node is, or None for every other op."""
    rule = OPS[node.op].reduction
    return None if rule is None else rule(node)


def summed(
    node: Node, more: Sequence[Dim], factors: Callable[[Index], tuple[Source, ...]]
) -> Reduction:
    """Sums of products for each element of a node, over axes of these sizes behind its own."""
    space = (*node.shape, *more)
    return Reduction("add", space, tuple(range(node.ndim, len(space))), factors)


@lru_cache(1 << 10)
def space_vars(space: Shape) -> tuple[Var, ...]:
    """The loop variables of a space: equal for equal spaces, so that indices can be compared."""
    return tuple(LoopVar(f"_s{k}", 0, max(0, bounds(size)[1] - 1)) for k, size in enumerate(space))


def is_readable_in_place(node: Node, *, in_runs: bool) -> bool:
    """Whether a node is a view whose elements lie in memory at even distances, whichever of the
    nodes that it shows is written; along its last axis side by side if they are read in runs."""
    variables = space_vars(node.shape)
    source = Source(node, variables)
    while is_view(source.node):
        inner = sources(source.node, source.index)
        if len(inner) != 1 or inner[0].guards:
            return False
        [source] = inner
        position = linear(source.index, source.node.shape)
        if not is_affine(position, variables):
            return False
        if in_runs and coefficient(position, variables[-1]) != 1:
            return False
    return source.node is not node and OPS[source.node.op].storage != "made up"


@lru_cache(1 << 10)
def reshaped_index(index: Index, shape: tuple[Dim, ...], inner_shape: tuple[Dim, ...]) -> Index:
    """The index in `inner_shape` of the element at `index` of `shape`, row-major both.

    Axes are taken in groups of equal product, so that a symbolic size in one group is never
    divided by in another: [batch, 6] to [batch, 2, 3] leaves batch alone.
    """
    inner: list[Dim] = []
    i = j = 0
    while i < len(shape) or j < len(inner_shape):
        i_end, j_end = min(i + 1, len(shape)), min(j + 1, len(inner_shape))
        while (outside := product(shape[i:i_end])) != (inside := product(inner_shape[j:j_end])) or (
            i_end == i and j_end == j
        ):
            # Grow the smaller side; where sizes are symbolic, whichever still has axes.
            grow_outer = i_end < len(shape) and (
                j_end == len(inner_shape) or bounds(outside)[1] <= bounds(inside)[1]
            )
            if grow_outer:
                i_end += 1
            elif j_end < len(inner_shape):
                j_end += 1
            else:
                i_end, j_end = len(shape), len(inner_shape)
                break
        inner += _unravel(linear(index[i:i_end], shape[i:i_end]), inner_shape[j:j_end])
        i, j = i_end, j_end
    return tuple(inner)


def linear(index: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    """The row-major position of an index."""
    position: Dim = 0
    for at, size in zip(index, shape, strict=True):
        position = position * size + at
    return position


def _unravel(position: Dim, shape: Sequence[Dim]) -> list[Dim]:
    index: list[Dim] = []
    for k in range(len(shape)):
        below = product(shape[k + 1 :])
        if below == 0:
            return [0] * len(shape)
        # Where it turns out to be 0 there is no element to be found.
        whole = position // maximum(below, 1)
        index.append(whole)
        position = position - whole * below
    return index


def coefficient(dim: Dim, var: Var) -> Dim | None:
    """c where dim = c * var + rest and rest and c are free of var; None where it is not so."""
    if isinstance(dim, int):
        return 0
    factor: Dim = 0
    for monomial, number in dim.terms:
        times = sum(1 for atom in monomial if atom == var)
        others = [atom for atom in monomial if atom != var]
        if times > 1 or any(var in variables(atom) for atom in others):
            return None
        if times:
            factor = factor + product([number, *others])
    return factor


def divisors(dim: Dim, var: Var) -> set[Dim] | None:
    """What a variable is divided by in a position that is affine but for that; None where more than
    the variable alone is divided."""
    found: set[Dim] = set()
    for monomial, _ in () if isinstance(dim, int) else dim.terms:
        for atom in monomial:
            if atom == var or var not in variables(atom):
                continue
            if not isinstance(atom, Floordiv) or atom.numerator != var:
                return None
            found.add(atom.divisor)
    return found


def is_affine(dim: Dim, variables: Sequence[Var]) -> bool:
    """Whether a position is a sum of loop variables times sizes, without divisions of them."""
    return all(coefficient(dim, var) is not None for var in variables)
