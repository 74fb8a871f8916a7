"""Side: a spatial axis of a convolution, and which of its taps lie inside the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arenite.backends.cpu.conv.strips import Line
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.values import index_expr
from arenite.ir import Dim, Node, Var, known_le

ZERO = ir.index(0)


@dataclass(frozen=True, slots=True)
class Side:
    """An axis: the variable of its output places, sizes in and out, and how taps walk it."""

    var: Var
    size: Dim
    places: Dim
    taps: int
    stride: int
    dilation: int
    before: Dim
    after: Dim

    @property
    def is_padded(self) -> bool:
        return self.before != 0 or self.after != 0

    @property
    def fixed(self) -> Line | None:
        """The same in numbers, if it is known in numbers."""
        size, places, before = self.size, self.places, self.before
        if isinstance(size, int) and isinstance(places, int) and isinstance(before, int):
            return Line(size, places, self.taps, self.stride, self.dilation, before)
        return None

    @property
    def is_plain(self) -> bool:
        """Whether a place is made of the element at the same place alone."""
        return self.taps == 1 and self.stride == 1 and not self.is_padded

    @property
    def reach(self) -> int:
        """From the first tap to the last."""
        return self.dilation * (self.taps - 1)

    @property
    def step(self) -> int:
        """From an element that is copied to the next one: with one tap those between are left."""
        return self.stride if self.taps == 1 else 1

    @property
    def place_step(self) -> int:
        """Elements of the copy from place to place."""
        return self.stride // self.step

    def copied(self, places: Dim) -> Dim:
        """Elements of the copy for so many places."""
        return (places - 1) * self.place_step + self.reach + 1

    @property
    def is_always_inside(self) -> bool:
        """Whether at every place some tap is inside the image."""
        return not self.is_padded or (
            known_le(self.before, self.reach)
            and known_le(self.after, self.reach)
            and known_le(self.dilation, self.size)
        )

    def origin(self, place: ir.Expr) -> ir.Expr:
        """The position of the first tap at a place; before the image it is negative."""
        return place * self.stride - index_expr(self.before)

    def position(self, place: Dim) -> Dim:
        """The same as a size."""
        return place * self.stride - self.before

    def first_tap(self, place: ir.Expr) -> ir.Expr:
        """The first tap that is inside."""
        if self.before == 0:
            return ZERO
        outside = ir.Binary("max", ZERO - self.origin(place), ZERO)
        return (outside + (self.dilation - 1)) // self.dilation

    def last_tap(self, place: ir.Expr) -> ir.Expr:
        """The tap after the last that is inside."""
        if self.after == 0:
            return ir.index(self.taps)
        inside = index_expr(self.size) - 1 - self.origin(place)
        return ir.Binary("min", inside // self.dilation + 1, ir.index(self.taps))

    def first_copied(self, place: ir.Expr) -> ir.Expr:
        """Of the elements copied from a place on, the first that is inside."""
        if self.before == 0:
            return ZERO
        outside = ir.Binary("max", ZERO - self.origin(place), ZERO)
        return (outside + (self.step - 1)) // self.step

    def last_copied(self, place: ir.Expr, count: ir.Expr) -> ir.Expr:
        """Of `count` elements copied from a place on, the one after the last that is inside."""
        if self.after == 0:
            return count
        inside = index_expr(self.size) - 1 - self.origin(place)
        return ir.Binary("min", ir.Binary("max", inside // self.step + 1, ZERO), count)


def sides_of(node: Node, variables: Sequence[Var], taps: Sequence[int]) -> list[Side]:
    """The spatial axes of a convolution with channels last; the rows of a product but for the first
    axis, as axes of one tap."""
    names, ones = {name for name, _ in node.attrs}, (1,) * len(variables)
    strides, dilations, padding = (
        node.attr(name) if name in names else usual
        for name, usual in (
            ("strides", ones),
            ("dilations", ones),
            ("padding", ((0, 0),) * len(variables)),
        )
    )
    sizes, places = node.inputs[0].shape[1:-1], node.shape[1:-1]
    parts = zip(variables, sizes, places, taps or ones, strides, dilations, padding, strict=True)
    return [Side(*own, *pair) for *own, pair in parts]
