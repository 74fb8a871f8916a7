"""Linear algebra under NumPy's and the array API's names.

Products, norms, `det`, `slogdet`, `inv`, `solve`, `cholesky` and `qr` of real matrices are compiled
like all else. NumPy computes `eigh`, `svd` and what is made of them (`pinv`, `matrix_rank`, the
norms 2, -2 and "nuc"), and these functions of complex matrices, when the program comes there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import BY_NAME, FLOAT32, FLOAT64, DType, Kind
from arenite.errors import InvalidArgument, ShapeMismatch
from arenite.ir.compose import basic, elimination
from arenite.ir.compose.basic import cast
from arenite.ir.compose.complex_numbers import is_complex
from arenite.ir.element import numpy_dtype
from arenite.ir.node import Node
from arenite.ir.ops.define import broadcast
from arenite.tensor.base import Axis, DTypeLike, axes_of, axis_of, described
from arenite.tensor.creation import asarray, eye, full, ones, stack, where, wrap
from arenite.tensor.functions import matmul as matmul
from arenite.tensor.functions import matrix_transpose as matrix_transpose
from arenite.tensor.functions import tensordot as tensordot
from arenite.tensor.host import host_call
from arenite.tensor.linear import promoted_nodes
from arenite.tensor.numpy_functions import vecdot as vecdot
from arenite.tensor.signature import TensorSpec
from arenite.tensor.tensor import Tensor


class Eigen(NamedTuple):
    """What `eigh` finds."""

    eigenvalues: Tensor  # [..., n], in order
    eigenvectors: Tensor  # [..., n, n], each a column


class SignAndLogarithm(NamedTuple):
    """What `slogdet` finds."""

    sign: Tensor
    logabsdet: Tensor


class OrthogonalTriangular(NamedTuple):
    """What `qr` finds."""

    Q: Tensor
    R: Tensor


class SingularValues(NamedTuple):
    """What `svd` finds: U @ diag(S) @ Vh is the matrix."""

    U: Tensor
    S: Tensor  # [..., k], the largest first
    Vh: Tensor


def _floats(x: Any) -> Node:
    """In float32 or float64, or complex of these."""
    node = asarray(x).node
    if is_complex(node) or node.dtype.name in ("float32", "float64"):
        return node
    return cast(node, FLOAT32 if node.dtype.kind is Kind.FLOAT else FLOAT64)


def _matrices(x: Any, what: str, square: bool = False) -> Node:
    node = _floats(x)
    if node.ndim < 2:
        raise ShapeMismatch(f"{what} is of matrices, not of {described(node)}")
    if square and node.shape[-1] != node.shape[-2]:
        raise ShapeMismatch(f"{what} is of square matrices, not of {described(node)}")
    return node


def _sizes(node: Node, what: str) -> tuple[int, int]:
    m, n = node.shape[-2:]
    if not isinstance(m, int) or not isinstance(n, int):
        raise ShapeMismatch(f"{what}: the sizes of {described(node)} must be known")
    return m, n


def _by_numpy(
    function: Callable[..., Any], shape: Sequence[Any], dtype: DType, *of: Node
) -> Tensor:
    spec = TensorSpec(tuple(shape), dtype)
    result: Tensor = host_call(function, spec, *(Tensor.of_node(node) for node in of))
    return result


def _real_dtype(node: Node) -> DType:
    return BY_NAME[f"float{node.dtype.bits // 2}"] if is_complex(node) else node.dtype


def cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    """The lower triangle l of a symmetric matrix x with l @ l.mT = x, conjugated where complex, or
    with `upper` the upper one. Where x is not positive definite the result is NaN."""
    node = _matrices(x, "cholesky", square=True)
    if is_complex(node):
        lower = _by_numpy(np.linalg.cholesky, node.shape, node.dtype, node)
    elif node.shape[-1] == 0:
        lower = wrap(node)
    else:
        lower = wrap(elimination.cholesky(_swapped(node) if upper else node))
    return lower.mT.conj() if upper else lower


def _swapped(node: Node) -> Node:
    return basic.swap_axes(node, node.ndim - 2, node.ndim - 1)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along an axis; other axes broadcast."""
    a, b = (Tensor.of_node(node) for node in promoted_nodes(x1, x2))
    at = [axis_of(axis, t.ndim) - t.ndim for t in (a, b)]
    if a.ndim == 0 or a.shape[at[0]] != 3 or b.shape[at[1]] != 3:
        raise ShapeMismatch(
            f"cross: vectors have 3 elements along axis {axis}, not as in {described(a.node)} and "
            f"{described(b.node)}"
        )
    (a0, a1, a2), (b0, b1, b2) = a.moveaxis(at[0], 0), b.moveaxis(at[1], 0)
    made = stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], -1)
    return made.moveaxis(-1, axis)


def det(x: Any, /) -> Tensor:
    """The determinants of the matrices of the last two axes."""
    node = _matrices(x, "det", square=True)
    if is_complex(node):
        return _by_numpy(np.linalg.det, node.shape[:-2], node.dtype, node)
    if node.shape[-1] == 0:
        return ones(node.shape[:-2], node.dtype)
    return wrap(elimination.determinant(node))


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """The diagonals of the last two axes; `offset` counts from the main one."""
    return asarray(x).diagonal(offset, -2, -1)


def _eigen(a: NDArray[Any]) -> NDArray[Any]:
    """Values and vectors side by side: one call gives both."""
    values, vectors = np.linalg.eigh(a)
    return np.concatenate([values[..., None, :].astype(a.dtype), vectors], -2)


def eigh(x: Any, /) -> Eigen:
    """Eigenvalues in order, and eigenvectors, of symmetric matrices; complex ones are Hermitian.
    NumPy computes them."""
    node = _matrices(x, "eigh", square=True)
    n = node.shape[-1]
    both = _by_numpy(_eigen, (*node.shape[:-2], n + 1, n), node.dtype, node)
    return Eigen(both[..., 0, :].real, both[..., 1:, :])


def eigvalsh(x: Any, /) -> Tensor:
    """Eigenvalues, in order, of symmetric matrices; NumPy computes them."""
    node = _matrices(x, "eigvalsh", square=True)
    return _by_numpy(np.linalg.eigvalsh, node.shape[:-1], _real_dtype(node), node)


def inv(x: Any, /) -> Tensor:
    """The inverses of the matrices of the last two axes; of singular ones infinite, or NaN."""
    node = _matrices(x, "inv", square=True)
    if is_complex(node):
        return _by_numpy(np.linalg.inv, node.shape, node.dtype, node)
    _, n = _sizes(node, "inv")
    if n == 0:
        return wrap(node)
    return wrap(elimination.inverse(node))


def solve(x1: Any, x2: Any, /) -> Tensor:
    """x with x1 @ x = x2: of a vector if x2 has one axis, else of matrices. Where x1 is singular
    the result is infinite, or NaN."""
    a, b = promoted_nodes(Tensor.of_node(_matrices(x1, "solve", square=True)), wrap(_floats(x2)))
    is_vector = b.ndim == 1
    if is_vector:
        b = basic.expand_dims(b, 1)
    n = a.shape[-1]
    if b.ndim < 2 or b.shape[-2] != n:
        raise ShapeMismatch(f"solve: {described(a)} does not go with {described(b)}")
    batch = broadcast("solve", a.shape[:-2], b.shape[:-2])
    a = basic.broadcast_to(a, (*batch, n, n))
    b = basic.broadcast_to(b, (*batch, n, b.shape[-1]))
    if is_complex(a):
        found = _by_numpy(np.linalg.solve, b.shape, b.dtype, a, b)
    else:
        found = wrap(b if n == 0 else elimination.solution(a, b))
    return found[..., 0] if is_vector else found


def slogdet(x: Any, /) -> SignAndLogarithm:
    """The sign of determinants, and the logarithm of their size; of complex numbers the sign is one
    of size 1."""
    node = _matrices(x, "slogdet", square=True)
    batch = node.shape[:-2]
    if is_complex(node):
        both = _by_numpy(_sign_and_logarithm, (*batch, 2), node.dtype, node)
        return SignAndLogarithm(both[..., 0], both[..., 1].real)
    if node.shape[-1] == 0:
        return SignAndLogarithm(ones(batch, node.dtype), full(batch, 0.0, node.dtype))
    sign, logarithm = elimination.sign_and_logarithm(node)
    return SignAndLogarithm(wrap(sign), wrap(logarithm))


def _sign_and_logarithm(a: NDArray[Any]) -> NDArray[Any]:
    return np.stack([part.astype(a.dtype) for part in np.linalg.slogdet(a)], -1)


def qr(x: Any, /, *, mode: str = "reduced") -> OrthogonalTriangular:
    """Q and R with Q @ R = x, Q orthogonal and R an upper triangle; mode "complete" makes Q
    square."""
    if mode not in ("reduced", "complete"):
        raise InvalidArgument(f"qr: mode is 'reduced' or 'complete', not {mode!r}")
    node = _matrices(x, "qr")
    m, n = _sizes(node, "qr")
    is_complete = mode == "complete"
    k = m if is_complete else min(m, n)
    if is_complex(node):
        function = _orthogonal_complete if is_complete else _orthogonal
        both = _by_numpy(function, (*node.shape[:-2], m * k + k * n), node.dtype, node)
        shape = node.shape[:-2]
        q, r = both[..., : m * k].reshape(*shape, m, k), both[..., m * k :].reshape(*shape, k, n)
        return OrthogonalTriangular(q, r)
    if min(m, n) == 0:
        q = eye(m, k, dtype=node.dtype).broadcast_to(*node.shape[:-2], m, k)
        return OrthogonalTriangular(q, full((*node.shape[:-2], k, n), 0.0, node.dtype))
    left, right = elimination.orthogonal_and_triangle(node, is_complete)
    return OrthogonalTriangular(wrap(left), wrap(right))


def _orthogonal(a: NDArray[Any], mode: Any = "reduced") -> NDArray[Any]:
    q, r = np.linalg.qr(a, mode)
    return np.concatenate([part.reshape(*a.shape[:-2], -1) for part in (q, r)], -1)


def _orthogonal_complete(a: NDArray[Any]) -> NDArray[Any]:
    return _orthogonal(a, "complete")


def svd(x: Any, /, *, full_matrices: bool = True) -> SingularValues:
    """U, S and Vh with U @ diag(S) @ Vh = x, the largest of S first; NumPy computes them."""
    node = _matrices(x, "svd")
    m, n = _sizes(node, "svd")
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    function = _singular_full if full_matrices else _singular
    batch = node.shape[:-2]
    total = m * left + k + right * n
    whole = _by_numpy(function, (*batch, total), node.dtype, node)
    u = whole[..., : m * left].reshape(*batch, m, left)
    s = whole[..., m * left : m * left + k].real
    return SingularValues(u, s, whole[..., m * left + k :].reshape(*batch, right, n))


def _singular(a: NDArray[Any], full_matrices: bool = False) -> NDArray[Any]:
    u, s, vh = np.linalg.svd(a, full_matrices=full_matrices)
    batch = a.shape[:-2]
    sizes = (u.shape[-1] * u.shape[-2], s.shape[-1], vh.shape[-1] * vh.shape[-2])
    parts = zip((u, s.astype(a.dtype), vh), sizes, strict=True)
    return np.concatenate([part.reshape(*batch, size) for part, size in parts], -1)


def _singular_full(a: NDArray[Any]) -> NDArray[Any]:
    return _singular(a, True)


def svdvals(x: Any, /) -> Tensor:
    """The singular values of matrices, the largest first; NumPy computes them."""
    node = _matrices(x, "svdvals")
    shape = (*node.shape[:-2], min(_sizes(node, "svdvals")))
    return _by_numpy(_singular_values, shape, _real_dtype(node), node)


def _singular_values(a: NDArray[Any]) -> NDArray[Any]:
    return np.linalg.svd(a, compute_uv=False)


def _tolerance(node: Node, largest: Tensor, rtol: Any) -> Tensor:
    """What counts as 0 among singular values."""
    if rtol is None:
        eps = float(np.finfo(numpy_dtype(largest.dtype)).eps)
        return largest * (max(_sizes(node, "singular values")) * eps)
    given = asarray(rtol).astype(largest.dtype)
    return largest * (given.expand_dims(-1) if given.ndim else given)


def pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    """The pseudo-inverses of matrices; singular values up to `rtol` times the largest count as
    0."""
    node = _matrices(x, "pinv")
    m, n = _sizes(node, "pinv")
    if min(m, n) == 0:
        return full((*node.shape[:-2], n, m), 0.0, node.dtype)
    u, s, vh = svd(wrap(node), full_matrices=False)
    keeps = s > _tolerance(node, s.max(-1, keepdims=True), rtol)
    inverse = where(keeps, where(keeps, s, 1).reciprocal(), 0)
    return vh.mT.conj() @ (inverse.expand_dims(-1) * u.mT.conj())


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are larger than `rtol` times the largest."""
    node = _matrices(x, "matrix_rank")
    if min(_sizes(node, "matrix_rank")) == 0:
        return full(node.shape[:-2], 0, "int64")
    s = svdvals(wrap(node))
    return (s > _tolerance(node, s.max(-1, keepdims=True), rtol)).count_nonzero(-1)


def matrix_power(x: Any, n: int, /) -> Tensor:
    """A matrix times itself, n times; of negative n, of its inverse."""
    node = asarray(x).node
    if node.ndim < 2 or node.shape[-1] != node.shape[-2]:
        raise ShapeMismatch(f"matrix_power is of square matrices, not of {described(node)}")
    base = inv(x) if n < 0 else wrap(node)
    result, left = None, abs(n)
    while left:
        if left % 2:
            result = base if result is None else result @ base
        left //= 2
        base = base @ base if left else base
    if result is not None:
        return result
    return eye(_sizes(node, "matrix_power")[0], dtype=node.dtype).broadcast_to(node.shape)


def outer(x1: Any, x2: Any, /) -> Tensor:
    """Each element of one vector with each of the other."""
    a, b = asarray(x1), asarray(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeMismatch(
            f"outer is of vectors, not of {described(a.node)} and {described(b.node)}"
        )
    return a.outer(b)


def trace(x: Any, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sums of the diagonals of the last two axes."""
    return diagonal(x, offset=offset).sum(-1, dtype=dtype)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:  # noqa: A002
    """A norm of matrices: "fro" the root of all squares, "nuc" the sum of the singular values, 2
    and -2 the largest and smallest of them, 1 and inf the largest sum of sizes of a column or row,
    -1 and -inf the smallest."""
    node = _matrices(x, "matrix_norm")
    sizes = wrap(node).abs()
    if ord in ("fro", None):
        return vector_norm(wrap(node), axis=(-2, -1), keepdims=keepdims)
    if ord in ("nuc", 2, -2):
        values = svdvals(wrap(node))
        found = values.sum(-1) if ord == "nuc" else _end(values, -1, ord > 0)
    elif ord in (1, -1):
        found = _end(sizes.sum(-2), -1, ord > 0)
    elif ord in (math.inf, -math.inf):
        found = _end(sizes.sum(-1), -1, ord > 0)
    else:
        raise InvalidArgument(
            f"matrix_norm: ord is one of 'fro', 'nuc', 1, -1, 2, -2, inf, -inf, not {ord!r}"
        )
    return found.expand_dims((-2, -1)) if keepdims else found


def _end(x: Tensor, axis: Any, largest: bool, keepdims: bool = False) -> Tensor:
    """The largest or smallest; of no numbers 0."""
    shape = [1 if k in axes_of(axis, x.ndim) else n for k, n in enumerate(x.shape)]
    if any(x.shape[k] == 0 for k in axes_of(axis, x.ndim)):
        kept = [n for k, n in enumerate(shape) if keepdims or k not in axes_of(axis, x.ndim)]
        return full(kept, 0.0, x.dtype)
    return x.max(axis, keepdims) if largest else x.min(axis, keepdims)


def vector_norm(
    x: Any,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    ord: float = 2,  # noqa: A002
) -> Tensor:
    """A norm of vectors along axes, or of all elements: the `ord`-th root of the sum of sizes to
    that power; inf and -inf the largest and smallest size, 0 how many are not 0."""
    tensor = wrap(_floats(x))
    sizes = tensor.abs()
    if ord in (math.inf, -math.inf):
        return _end(sizes, axis, ord > 0, keepdims)
    if ord == 0:
        return (sizes != 0).sum(axis, keepdims=keepdims).astype(sizes.dtype)
    if ord == 1:
        return sizes.sum(axis, keepdims=keepdims)
    if ord == 2:
        return (sizes * sizes).sum(axis, keepdims=keepdims).sqrt()
    return (sizes**ord).sum(axis, keepdims=keepdims) ** (1 / ord)
