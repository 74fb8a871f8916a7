"""The arguments of a call of a model, checked against the types of its inputs.

In: arrays by position or by name, of NumPy or of who speaks DLPack; lists for sequences, None for
optionals that are not there. Out: the arrays, their structure (which inputs there are, ranks,
lengths of sequences) and the values of all sizes; or one error that names the input, what was
expected and what was given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from arenite.digests import digest_of
from arenite.dtype import Array
from arenite.errors import BoundsError, InvalidArgument, ShapeMismatch, TypeMismatch
from arenite.frontends.onnx.inputs import Absent
from arenite.frontends.onnx.types import OptionalType, SequenceType, TensorType, ValueType
from arenite.frontends.stored_tensor import quoted
from arenite.ir.element import in_native_order, numpy_dtype
from arenite.model.interface import Interface, element_of
from arenite.model.sizes import Form, SizeNames
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from arenite.frontends.onnx.translate import Given


#: Elements of a value that decides structure which it is shown by.
_SHOWN = 16


class Leaf:
    """A tensor of a call; `path` is the name of its input, or where in that it is; sizes in `type`
    are numbers and names."""

    __slots__ = ("path", "type")

    def __init__(self, path: str, type: TensorType) -> None:  # noqa: A002
        self.path = path
        self.type = type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaf) and (self.path, self.type) == (other.path, other.type)

    def __hash__(self) -> int:
        return hash((self.path, self.type))

    def __repr__(self) -> str:
        return f"{self.path!r} {self.type}"


#: What an input is in a call: a tuple is a sequence.
Part: TypeAlias = "Leaf | Absent | tuple[Part, ...]"


class Structure:
    """What the inputs of a call are, but for the numbers in them; usual where each input that is
    needed is a tensor, and no other is given."""

    def __init__(self, parts: tuple[tuple[str, Part], ...], is_usual: bool = False) -> None:
        self.parts = parts
        self.is_usual = is_usual

    @cached_property
    def key(self) -> str:
        """Text that tells it from all others."""
        return repr(self.parts)

    @cached_property
    def leaves(self) -> list[Leaf]:
        return [leaf for _, part in self.parts for leaf in _leaves(part)]

    def sizes(self, known: Collection[str] = ()) -> list[str]:
        """Names of the sizes that come with a call, but for those of leaves that are known."""
        leaves = (leaf for leaf in self.leaves if leaf.path not in known)
        found = (one for leaf in leaves for one in leaf.type.shape or ())
        return list(dict.fromkeys(one for one in found if isinstance(one, str)))

    @cached_property
    def may_be_empty(self) -> set[str]:
        """Sizes that are 0 in usual calls: the lengths of caches, which several inputs of three
        axes or more have, and no other input."""
        inside: list[str] = []
        elsewhere: set[str] = set()
        for leaf in self.leaves:
            front, *others = leaf.type.shape or (0,)
            is_cache = len(others) > 1
            elsewhere |= {name for name in (front, *others * (not is_cache)) if type(name) is str}
            inside += [name for name in others * is_cache if isinstance(name, str)]
        return {name for name in inside if inside.count(name) > 1} - elsewhere

    def given(self, form: Form, known: Mapping[str, Array]) -> dict[str, Given]:
        """What the inputs are for a translation; `known` has the numbers of some leaves."""
        return {name: _given(part, form, known) for name, part in self.parts}


def _leaves(part: Part) -> Iterator[Leaf]:
    if isinstance(part, Leaf):
        yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from _leaves(one)


def _given(part: Part, form: Form, known: Mapping[str, Array]) -> Given:
    from arenite.frontends.onnx.translate import Argument

    if isinstance(part, tuple):
        return tuple(_given(one, form, known) for one in part)
    if isinstance(part, Absent):
        return part
    if part.path in known:
        return known[part.path]
    shape = tuple(form.dim(one) if isinstance(one, str) else one for one in part.type.shape or ())
    return Argument(shape, part.type.dtype, part.type.is_string)  # type: ignore[arg-type]


class Known(NamedTuple):
    """Values of inputs that decide structure, by path."""

    arrays: Mapping[str, Array]

    def __repr__(self) -> str:
        """Text that tells values apart."""
        return ", ".join(f"{path} = {_text(one)}" for path, one in self.arrays.items())


def _text(array: Array) -> str:
    if array.dtype.hasobject:  # strings
        return f"{list(array.shape)} {array.tolist()!r}"
    if 0 < array.size <= _SHOWN and array.dtype.kind in "biu":
        return f"{array.tolist()} {array.dtype}"
    digest = digest_of(np.ascontiguousarray(array).tobytes()).hex()
    return f"{array.dtype}{list(array.shape)} {digest}"


class Call(NamedTuple):
    """Arrays of the leaves of a structure, in order, and the sizes they have."""

    structure: Structure
    arrays: list[Array]
    sizes: dict[str, int]


class Signature:
    """The inputs of a model."""

    def __init__(
        self, inputs: Interface, names: SizeNames, bounds: Mapping[str, tuple[int, int]]
    ) -> None:
        self.inputs = inputs
        self._names = names
        self._bounds = bounds
        self._required = [one.name for one in inputs if one.is_required]
        #: Of inputs that are tensors, each size of which has a name or is a number.
        self._leaves = {
            one.name: Leaf(one.name, one.tensor)
            for one in inputs
            if one.tensor is not None and one.tensor.shape is not None
        }

    @cached_property
    def usual(self) -> Structure | None:
        """That of every call, where it is one: each input that is needed is a tensor of known
        rank."""
        parts: list[tuple[str, Part]] = []
        for one in self.inputs:
            if not one.is_required:
                continue
            if one.tensor is None or one.tensor.shape is None:
                return None
            parts.append((one.name, Leaf(one.name, one.tensor)))
        return Structure(tuple(parts), is_usual=True)

    def by_name(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, in the order of the inputs; InvalidArgument for those that are missing
        or too many."""
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            arrays, named = [], {**arrays[0], **named}
        names = self.inputs.names
        if len(arrays) > len(names):
            raise InvalidArgument(
                f"{len(arrays)} inputs were given, and the model has {len(names)}: {self._shown()}"
            )
        given = dict(zip(names, arrays, strict=False))
        for name, value in named.items():
            if name not in names:
                raise InvalidArgument(f"the model has no input {name!r}; it has {self._shown()}")
            if name in given:
                raise InvalidArgument(f"input {name!r} was given twice, by position and by name")
            given[name] = value
        for name in self._required:
            if name not in given:
                kind = self.inputs[name].type
                if isinstance(kind, OptionalType):
                    given[name] = None
                    continue
                raise InvalidArgument(
                    f"input {name!r} ({kind}) is missing; the model needs {self._shown()}"
                )
        return {name: given[name] for name in names if name in given}

    def _shown(self) -> str:
        return ", ".join(f"{quoted(one.name)} {one.type}" for one in self.inputs) or "none"

    def call(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Call:
        """The arguments of a call, checked."""
        given = self.by_name(arrays, named)
        found: list[tuple[Leaf, Array]] = []
        parts = tuple(
            (name, self._part(name, self.inputs[name].type, value, found))
            for name, value in given.items()
        )
        usual = self.usual
        structure = usual if usual is not None and usual.parts == parts else Structure(parts)
        return Call(structure, [array for _, array in found], self._sizes(found))

    def _part(
        self, path: str, kind: ValueType, value: Any, found: list[tuple[Leaf, Array]]
    ) -> Part:
        if isinstance(kind, OptionalType):
            if value is None:
                return Absent()
            return self._part(path, element_of(kind, path), value, found)
        if isinstance(kind, SequenceType):
            if not isinstance(value, list | tuple):
                raise TypeMismatch(
                    f"input {path!r} is a {kind}: a list is expected, "
                    f"and {type(value).__name__} was given"
                )
            inner = element_of(kind, path)
            return tuple(
                self._part(f"{path}.{k}", inner, one, found) for k, one in enumerate(value)
            )
        assert isinstance(kind, TensorType)  # inputs that are maps are refused with the file
        array = array_of(path, kind, value)
        leaf = self._leaf(path, kind, array)
        found.append((leaf, array))
        return leaf

    def _leaf(self, path: str, kind: TensorType, array: Array) -> Leaf:
        leaf = self._leaves.get(path)
        if leaf is None:
            # Of any rank, optional, or in a sequence, where sizes are each element's own.
            shape = (None,) * array.ndim if kind.shape is None else kind.shape
            is_input = path in self.inputs.names
            named = tuple(
                one
                if isinstance(one, int) or (is_input and one is not None)
                else self._names.named(None, path, axis)
                for axis, one in enumerate(shape)
            )
            leaf = Leaf(path, kind._replace(shape=named))
        shape = leaf.type.shape or ()
        if len(shape) != array.ndim or any(
            isinstance(a, int) and a != b for a, b in zip(shape, array.shape, strict=True)
        ):
            raise _unfitting(path, leaf.type, array)
        return leaf

    def _sizes(self, found: Sequence[tuple[Leaf, Array]]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        first: dict[str, str] = {}
        for leaf, array in found:
            for name, size in zip(leaf.type.shape or (), array.shape, strict=True):
                if not isinstance(name, str):
                    continue
                if sizes.setdefault(name, size) != size:
                    raise ShapeMismatch(
                        f"input {leaf.path!r} is {leaf.type}, and an array of shape {array.shape} "
                        f"was given: {name} is {sizes[name]} in input {first[name]!r}"
                    )
                first.setdefault(name, leaf.path)
                low, high = self._bounds.get(name, (size, size))
                if not low <= size <= high:
                    raise BoundsError(
                        f"input {leaf.path!r} is {leaf.type}, and an array of shape {array.shape} "
                        f"was given: {name} is {size}, and the model was compiled for {low}..{high}"
                    )
        return sizes


def array_of(path: str, kind: TensorType, value: Any) -> Array:
    """An array of the type of an input; numbers and lists of them become one."""
    if kind.is_string:
        return _strings(path, kind, value)
    wanted = numpy_dtype(kind.dtype)
    if isinstance(value, np.ndarray):
        array = in_native_order(value)
    elif isinstance(value, bool | int | float | complex | list | tuple):
        array = _of_numbers(path, kind, value, wanted)
    elif hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        array = _of_dlpack(value)
    else:
        array = np.asarray(value)
    if array.dtype != wanted:
        hint = f"; give x.astype({str(wanted)!r})" if array.dtype.kind in "biufc" else ""
        raise TypeMismatch(
            f"input {path!r} is {kind}, and an array of {array.dtype}{list(array.shape)} was given"
            f"{hint}"
        )
    return array


def _of_numbers(path: str, kind: TensorType, value: Any, wanted: np.dtype[Any]) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:
        raise ShapeMismatch(
            f"input {path!r} is {kind}, and lists of different lengths were given"
        ) from None
    is_empty = array.size == 0  # which NumPy takes for floats
    if is_empty or np.can_cast(array.dtype, wanted, "same_kind") or _is_exact(array, wanted):
        return array.astype(wanted)
    return array


def _is_exact(array: Array, wanted: np.dtype[Any]) -> bool:
    """Whether numbers that Python wrote are the same in another type."""
    if array.dtype.kind not in "biuf" or wanted.kind not in "biufV":
        return False
    with np.errstate(all="ignore"):
        return bool((array.astype(wanted).astype(array.dtype) == array).all())


def _of_dlpack(value: Any) -> Array:
    numpy = getattr(value, "numpy", None)
    if type(value).__module__.startswith("arenite.") and callable(numpy):
        array: Array = numpy()
        return array
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):  # a type that NumPy has no word for
        from arenite.device.buffer import Buffer

        return Buffer.from_dlpack(value).as_array()


def _strings(path: str, kind: TensorType, value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "OUST":
        raise TypeMismatch(
            f"input {path!r} is {kind}, and an array of {array.dtype}{list(array.shape)} was given"
        )
    texts = np.empty(array.shape, object)
    for place, one in np.ndenumerate(array):
        if isinstance(one, bytes):
            one = one.decode("utf-8", "surrogateescape")
        if not isinstance(one, str):
            raise TypeMismatch(
                f"input {path!r} is {kind}, and {type(one).__name__} is at {list(place)}"
            )
        texts[place] = str(one)
    return texts


def _unfitting(path: str, kind: TensorType, array: Array) -> ShapeMismatch:
    return ShapeMismatch(f"input {path!r} is {kind}, and an array of shape {array.shape} was given")
