"""Random tensors: a Generator is a seed and a count of draws, so the same program gives the same
numbers on every device, in any order of computing."""

from __future__ import annotations

import secrets

from arenite.dtype import INT64, UINT64, Kind
from arenite.dtype import of as dtype_of
from arenite.errors import InvalidArgument
from arenite.ir import Dim, Node, full, make
from arenite.ir.compose import basic, random
from arenite.ir.compose.basic import cast
from arenite.ir.element import limits
from arenite.tensor.base import DTypeLike
from arenite.tensor.creation import Shape, sizes_of, wrap
from arenite.tensor.promote import INTEGERS
from arenite.tensor.tensor import Tensor


class Generator:
    """Random numbers. Draws are numbered; draw i of a seed is always the same. The seed may be a
    tensor, then numbers are known when it is."""

    def __init__(self, seed: int | Tensor | None = None) -> None:
        if isinstance(seed, Tensor):
            if seed.shape != () or seed.dtype.kind not in INTEGERS:
                raise InvalidArgument(f"a seed is one integer, not {seed!r}")
            self._seed: Node = cast(seed.node, UINT64)
        else:
            number = secrets.randbits(64) if seed is None else seed
            if not 0 <= number < 2**64:
                raise InvalidArgument(f"a seed has 64 bits and no sign: {seed}")
            self._seed = full((), number, UINT64)
        self.n_draws = 0

    def _next(self) -> int:
        self.n_draws += 1
        return self.n_draws - 1

    def bits(self, shape: Shape = ()) -> Tensor:
        """uint32, each bit 0 or 1 equally often."""
        return wrap(random.bits(self._seed, self._next(), sizes_of(shape)))

    def random(self, shape: Shape = (), dtype: DTypeLike = "float64") -> Tensor:
        """In [0, 1)."""
        return wrap(random.uniform(self._seed, self._next(), sizes_of(shape), dtype_of(dtype)))

    def uniform(
        self, low: float = 0.0, high: float = 1.0, shape: Shape = (), dtype: DTypeLike = "float64"
    ) -> Tensor:
        """In [low, high)."""
        return self.random(shape, dtype) * float(high - low) + float(low)

    def standard_normal(self, shape: Shape = (), dtype: DTypeLike = "float64") -> Tensor:
        """Normal numbers of mean 0 and deviation 1."""
        wanted = dtype_of(dtype)
        if wanted.kind is not Kind.FLOAT:
            raise InvalidArgument(f"normal numbers are floats, not {wanted}")
        return wrap(random.normal(self._seed, self._next(), sizes_of(shape), wanted))

    def normal(
        self, loc: float = 0.0, scale: float = 1.0, shape: Shape = (), dtype: DTypeLike = "float64"
    ) -> Tensor:
        """Normal numbers of mean `loc` and deviation `scale`."""
        return self.standard_normal(shape, dtype) * float(scale) + float(loc)

    def integers(
        self, low: int, high: int | None = None, shape: Shape = (), dtype: DTypeLike = "int64"
    ) -> Tensor:
        """In [low, high), or in [0, low)."""
        if high is None:
            low, high = 0, low
        wanted = dtype_of(dtype)
        if wanted.kind not in INTEGERS:
            raise InvalidArgument(f"integers have an integer dtype, not {wanted}")
        least, greatest = limits(wanted)
        if low < least or high - 1 > greatest:
            raise InvalidArgument(f"[{low}, {high}) does not fit {wanted}")
        return wrap(random.integers(self._seed, self._next(), sizes_of(shape), low, high, wanted))

    def bernoulli(self, probability: float = 0.5, shape: Shape = ()) -> Tensor:
        """True with this probability."""
        return self.random(shape, "float32") < probability

    def permutation(self, n: Dim) -> Tensor:
        """0, 1, ... n - 1 in any order."""
        keys = random.bits64(self._seed, self._next(), (n,))
        return wrap(make("argsort", keys, axis=0, descending=False))

    def shuffled(self, tensor: Tensor) -> Tensor:
        """The rows of a tensor in any order."""
        order = self.permutation(tensor.shape[0]).node
        return wrap(make("gather", tensor.node, basic.cast(order, INT64), axis=0))
