"""Parts of complex numbers: of real ones, too, as NumPy has it."""

from __future__ import annotations

import math
from typing import Self

from arenite.dtype import FLOAT64, Kind
from arenite.ir import Node, full, make
from arenite.ir.compose import complex_numbers
from arenite.ir.compose.basic import cast, where
from arenite.ir.compose.complex_numbers import is_complex
from arenite.tensor.base import Base, node_of


def real_part(x: object) -> Node:
    node = node_of(x)
    return make("real", node) if is_complex(node) else node


def imaginary_part(x: object) -> Node:
    node = node_of(x)
    return make("imag", node) if is_complex(node) else full(node.shape, 0, node.dtype)


def conjugate(x: object) -> Node:
    node = node_of(x)
    return complex_numbers.conjugate(node) if is_complex(node) else node


def angle(x: object) -> Node:
    """Of real numbers 0, or pi where they are negative."""
    node = node_of(x)
    if is_complex(node):
        return complex_numbers.angle(node)
    node = cast(node, node.dtype if node.dtype.kind is Kind.FLOAT else FLOAT64)
    at = where(node < 0.0, math.pi, full(node.shape, 0.0, node.dtype))
    return where(make("isnan", node), node, at)


class ComplexMethods(Base):
    __slots__ = ()

    @property
    def real(self) -> Self:
        """The real part; of real numbers they themselves."""
        return self._new(real_part(self))

    @property
    def imag(self) -> Self:
        """The imaginary part; of real numbers zeros."""
        return self._new(imaginary_part(self))

    def conj(self) -> Self:
        """The complex conjugate; of real numbers they themselves."""
        return self._new(conjugate(self))

    conjugate = conj

    def angle(self) -> Self:
        """The angle of a complex number with the real line, from -pi to pi."""
        return self._new(angle(self))
