"""What goes into a program and what comes out: arrays checked against the types they are to have.

In: the arrays of a caller. Out: arrays that native code can read in place, and the sizes that are
read off their shapes; one clear error where something does not fit.

Sizes that are variables, read off the shapes of arrays.

In: the shapes that arrays are to have. Out: how each variable follows from them, decided once; then
its value for the shapes of a call. A variable follows from a size that is linear in it, such as
`n`, `2 * n + 1` or `m * n` where `m` is known: first from those it is alone in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import byte_bounds

from arenite.dtype import Array, DType, Kind
from arenite.errors import BoundsError, InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.ir import Dim, Expr, Var, bounds, product, typed, variables
from arenite.ir.dim import Found, check_binding, evaluate, found_in
from arenite.ir.element import in_native_order, numpy_dtype
from arenite.ir.interface import Port
from arenite.ir.node import Shape
from arenite.records import NamedTuple


class _Reading(NamedTuple):
    """variable = (size of an axis of an array - rest) / factor"""

    variable: Var
    array: int
    axis: int
    factor: Dim
    rest: Dim


class SizeReader:
    """How the values of variables follow from shapes."""

    def __init__(self, shapes: Sequence[Sequence[Dim]], wanted: Sequence[Var]) -> None:
        self._readings: list[_Reading] = []
        known: set[Var] = set()
        sizes = [
            (array, axis, dim)
            for array, shape in enumerate(shapes)
            for axis, dim in enumerate(shape)
            if isinstance(dim, Expr)
        ]
        sizes.sort(key=lambda one: not isinstance(one[2], Var))  # which says it at once
        while found := next(self._readable(sizes, known), None):
            self._readings.append(found)
            known.add(found.variable)
        #: Names of variables that no size tells.
        self.missing = tuple(var.name for var in wanted if var not in known)

    def _readable(
        self, sizes: Sequence[tuple[int, int, Expr]], known: set[Var]
    ) -> Iterator[_Reading]:
        for array, axis, dim in sizes:
            unknown = [var for var in variables(dim) if var not in known]
            if len(unknown) != 1 or isinstance(unknown[0], Found):
                continue
            [var] = unknown
            factor: Dim = 0
            for monomial, number in dim.terms:
                if monomial.count(var) == 1:
                    factor += number * product(atom for atom in monomial if atom != var)
            rest = dim - factor * var
            if bounds(factor)[0] > 0 and var not in variables(factor) | variables(rest):
                yield _Reading(var, array, axis, factor, rest)

    def sizes(self, shapes: Sequence[Sequence[int]]) -> dict[str, int] | int:
        """The values of the variables by name; or the number of an array that fits none."""
        sizes: dict[str, int] = {}
        for one in self._readings:
            value = shapes[one.array][one.axis]
            if one.factor != 1 or one.rest != 0:
                left = value - evaluate(one.rest, sizes)
                value, over = divmod(left, evaluate(one.factor, sizes))
                if over:
                    return one.array
            sizes[one.variable.name] = check_binding(one.variable, value)
        return sizes


class Arguments:
    """The inputs of a graph; what a call checks of each is looked up once."""

    def __init__(self, inputs: tuple[Port, ...], variables: tuple[Var, ...]) -> None:
        self.inputs = inputs
        self._reader = SizeReader([port.shape for port in inputs], variables)
        self._wanted = [
            (numpy_dtype(port.dtype), None if _is_open(port) else port.shape) for port in inputs
        ]
        #: Whether some size is known only when arrays are given.
        self.is_open = any(shape is None for _, shape in self._wanted)

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """NumPy's, of each input."""
        return [dtype for dtype, _ in self._wanted]

    def fitting(self, arrays: list[Array]) -> list[Array]:
        """The arrays as native code can read them in place; what does not fit raises."""
        if len(arrays) != len(self._wanted):
            raise InvalidArgument(f"{len(self._wanted)} inputs are needed, not {len(arrays)}")
        fitting = []
        for k, array in enumerate(arrays):
            dtype, shape = self._wanted[k]
            given = array.dtype
            if given is not dtype and given != dtype:
                array = in_native_order(array)
                if array.dtype != dtype:
                    _explain(array, self.inputs[k])
            if array.shape != shape and (
                shape is not None or array.ndim != len(self.inputs[k].shape)
            ):
                _explain(array, self.inputs[k])
            flags = array.flags
            fitting.append(array if flags.c_contiguous and flags.aligned else array.copy())
        return fitting

    def sizes(self, arrays: list[Array]) -> dict[str, int]:
        """The values of all variables, read off the shapes; every other size is checked."""
        reader = self._reader
        if reader.missing:
            raise BoundsError(no_size(reader.missing[0]))
        sizes = reader.sizes([array.shape for array in arrays])
        if isinstance(sizes, int):
            _explain(arrays[sizes], self.inputs[sizes])
        pairs = zip(self.inputs, arrays, strict=True)
        for port, array in pairs:
            if any(
                _value(dim, sizes) != size
                for dim, size in zip(port.shape, array.shape, strict=True)
            ):
                _explain(array, port)
        return sizes


def check_targets(out: Sequence[Any], names: Sequence[str] | None = None) -> None:
    """InvalidArgument unless each of these is an array that can be written to, of bytes that no
    other has; `names` is what the caller calls them. They may be inputs too: these are read before.
    """
    names = names or [f"out[{k}]" for k in range(len(out))]
    spans = []
    for k, (name, array) in enumerate(zip(names, out, strict=True)):
        if not isinstance(array, np.ndarray) or not array.flags.writeable:
            raise InvalidArgument(f"{name} is no array that can be written to")
        if array.size:
            if not array.flags.forc and _overlaps_itself(array):
                raise InvalidArgument(
                    f"elements of {name} share bytes, so some would be lost; give an array that "
                    "has bytes for each"
                )
            spans.append((*byte_bounds(array), k))
    open_spans: list[tuple[int, int]] = []  # end, and which
    for start, end, k in sorted(spans):
        open_spans = [one for one in open_spans if one[0] > start]
        for _, other in open_spans:
            if np.shares_memory(out[k], out[other]):  # views may lie between one another
                first, second = (names[n] for n in sorted((k, other)))
                raise InvalidArgument(
                    f"{first} and {second} share bytes, so one result would overwrite the other; "
                    "give each an array of its own"
                )
        open_spans.append((end, k))


def _overlaps_itself(array: Array) -> bool:
    """Whether a step along some axis is shorter than what lies within it."""
    extent = array.itemsize
    for stride, size in sorted(
        (abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)
    ):
        if size > 1 and stride < extent:
            return True
        extent += (size - 1) * stride
    return False


def check_room(
    out: Sequence[Array | None], outputs: Sequence[tuple[Shape, DType]], sizes: Mapping[str, int]
) -> None:
    """ShapeMismatch unless outputs of these types go into the caller's arrays, by all that is known
    before a run; InvalidArgument for too few. Sizes that are found in it may still differ. What is
    None gets a new array."""
    if len(out) != len(outputs):
        raise InvalidArgument(f"{len(outputs)} outputs do not go into {len(out)} arrays")
    for target, (shape, dtype) in zip(out, outputs, strict=True):
        if target is None:
            continue
        if target.dtype != numpy_dtype(dtype) or not _has_room(target.shape, shape, sizes):
            known = [dim if found_in(dim) else _value(dim, sizes) for dim in shape]
            raise ShapeMismatch(
                f"an output of {typed(known, dtype)} does not go into an array of "
                f"{target.dtype}{list(target.shape)}"
            )


def _has_room(given: tuple[int, ...], shape: Shape, sizes: Mapping[str, int]) -> bool:
    """Whether an output may turn out to be as large as what is given."""
    return len(given) == len(shape) and all(
        size <= bounds(dim)[1] if found_in(dim) else size == _value(dim, sizes)
        for size, dim in zip(given, shape, strict=True)
    )


def capacity_of(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Of an output whose rows are found while running: the shape of an array that has room for all
    there may be. Their sizes are known before."""
    if not shape or not found_in(shape[0]) or any(map(found_in, shape[1:])):
        return None
    return (bounds(shape[0])[1], *(_value(dim, sizes) for dim in shape[1:]))


def write_to(
    out: Sequence[Array | None],
    results: list[Array],
    capacities: Sequence[tuple[int, ...] | None],
    written: str,
) -> list[Array]:
    """Results in the caller's arrays, copied but for those that are there: all of them, or none
    where the run has found one to be of another size. Of an array with a capacity that was not
    needed the first rows. `written` says what the run has changed nevertheless."""
    places = []
    for target, result, capacity in zip(out, results, capacities, strict=True):
        if target is None:
            place = result
        elif target.shape == result.shape:
            place = target
        elif target.shape == capacity:
            place = target[: len(result)]
        else:
            raise unfitting(target, result.shape, written)
        places.append(place)
    for place, result in zip(places, results, strict=True):
        # A result that begins where it is to be is there: nothing else is made in such an array.
        if place.size and place.__array_interface__["data"] != result.__array_interface__["data"]:
            place[...] = result
    return places


def unfitting(target: Array, shape: Sequence[int], written: str) -> ShapeMismatch:
    """What is raised where a run finds that an output does not go into the caller's array."""
    return ShapeMismatch(
        f"an output turned out to be {target.dtype}{list(shape)} and does not go into an array of "
        f"{target.dtype}{list(target.shape)}: {written}. Where sizes are found while running, call "
        "without out=, or give an array of the largest size there may be"
    )


def in_place(array: Array, inputs: Sequence[tuple[int, int]]) -> bool:
    """Whether native code can write a result where this array has it; `inputs` are the addresses
    of what is read meanwhile, from the first to the one behind the last. Arrays of a kind of their
    own may do more on being written to."""
    flags = array.flags
    if type(array) not in (np.ndarray, np.memmap) or not (flags.c_contiguous and flags.aligned):
        return False
    return not overlaps(array, inputs)


def overlaps(array: Array, spans: Sequence[tuple[int, int]]) -> bool:
    """Whether an array reaches into one of these spans of addresses."""
    if not array.size:
        return False
    first, end = byte_bounds(array)
    return any(first < other_end and other < end for other, other_end in spans)


def no_size(name: str) -> str:
    """Why a variable has no value."""
    return (
        f"no input has {name!r} as a size from which it follows, by itself or in a form such as "
        f"2 * {name} + 1, so it is not known"
    )


def _is_open(port: Port) -> bool:
    return not all(isinstance(size, int) for size in port.shape)


def _explain(array: Array, port: Port) -> NoReturn:
    """Say what is wrong with an array for an input."""
    if array.dtype != numpy_dtype(port.dtype):
        hint = ""
        if array.dtype == np.float64 and port.dtype.kind is Kind.FLOAT:
            hint = f"; NumPy makes arrays of float64: give x.astype({port.dtype.name!r})"
        raise TypeMismatch(
            f"input {port.name!r} is {port.dtype}, the array given {array.dtype}{hint}"
        )
    raise ShapeMismatch(
        f"input {port.name!r} is {typed(port.shape, port.dtype)}, the array given has shape "
        f"{array.shape}"
    )


def _value(dim: Dim, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, sizes)
