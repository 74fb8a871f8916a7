"""Inputs of a model from the command line: files, numbers, or random ones of a shape.

    --input x=photo.npy           an array of NumPy
    --input inputs.npz            several, by name
    --input x=random:1x3x224x224  random numbers; random:1x128:0..30000 within bounds
    --input sr=16000              numbers as JSON has them

What is not given is random, where its shape is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.cli import output
from arenite.dtype import Array, Kind
from arenite.errors import InvalidArgument, InvalidFile

if TYPE_CHECKING:
    from arenite.frontends.onnx.types import TensorType
    from arenite.model import Model, ValueInfo


_RANDOM = re.compile(
    r"random(?::(?P<shape>[0-9]{1,12}(?:x[0-9]{1,12})*|scalar))?"
    r"(?::(?P<low>-?[0-9.eE+-]+)\.\.(?P<high>-?[0-9.eE+-]+))?"
)
#: The most bytes of an array that is made up.
MOST_NBYTES = 2**34
#: Below this integers are that are made up: numbers of classes, tokens and the like may be few.
USUAL_HIGH = 2
#: What a size that is open is in examples of messages.
EXAMPLE_SIZE = 4


def arrays_of(
    model: Model, given: Sequence[str] | None, sizes: Mapping[str, str], seed: int
) -> dict[str, Any]:
    """All inputs that a call needs, by name."""
    generator = np.random.default_rng(seed)
    found = given_arrays(model, given, sizes, generator)
    for one in model.inputs:
        if one.is_required and one.name not in found:
            found[one.name] = _random(one, "random", sizes, generator)
    return found


def given_arrays(
    model: Model,
    given: Sequence[str] | None,
    sizes: Mapping[str, str],
    generator: np.random.Generator,
) -> dict[str, Any]:
    """The inputs that were given, by name."""
    found: dict[str, Any] = {}
    for text in given or ():
        for name, value in _parsed(model, text, sizes, generator).items():
            if name in found:
                raise InvalidArgument(f"--input {name} was given twice")
            found[name] = value
    return found


def _parsed(
    model: Model, text: str, sizes: Mapping[str, str], generator: np.random.Generator
) -> dict[str, Any]:
    name, is_there, value = text.partition("=")
    # Names may have "=" in them: the longest that is one counts.
    for one in sorted(model.inputs.names, key=len, reverse=True):
        if text.startswith(f"{one}="):
            name, value = one, text[len(one) + 1 :]
            break
    if not is_there:
        if not text.endswith(".npz"):
            raise InvalidArgument(
                f"--input {text}: write NAME=FILE.npy, FILE.npz, NAME=random:1x3x224x224 or "
                "NAME=[1, 2]"
            )
        loaded = _loaded(Path(text))
        return {key: loaded[key] for key in loaded.files}
    info = model.inputs[name]
    if value.startswith("random"):
        return {name: _random(info, value, sizes, generator)}
    if value.endswith((".npy", ".npz")):
        return {name: _array(Path(value), name)}
    try:
        return {name: json.loads(value)}
    except (ValueError, RecursionError):
        raise InvalidArgument(
            f"--input {name}={value} is no file .npy or .npz, no random:SHAPE, and no number or "
            "list as JSON has it"
        ) from None


def _loaded(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidFile(f"{path} is no file of NumPy: {error}") from None


def _array(path: Path, name: str) -> Any:
    loaded = _loaded(path)
    if isinstance(loaded, np.ndarray):
        return loaded
    if name in loaded.files:
        return loaded[name]
    if len(loaded.files) == 1:
        return loaded[loaded.files[0]]
    raise InvalidArgument(f"{path} has no array {name!r}; it has {', '.join(loaded.files)}")


def _random(
    info: ValueInfo, text: str, sizes: Mapping[str, str], generator: np.random.Generator
) -> Array:
    found = _RANDOM.fullmatch(text)
    if found is None:
        raise InvalidArgument(
            f"--input {info.name}={text}: write random:1x3x224x224, or with bounds "
            "random:1x128:0..100"
        )
    kind = info.tensor
    if kind is None or kind.is_string:
        raise InvalidArgument(f"input {info.name!r} is {info.type}, and can't be made up: give it")
    shape = _shape(info, kind, found["shape"], sizes)
    n_elements = int(np.prod(shape, dtype=object))
    if n_elements * 8 > MOST_NBYTES:
        raise InvalidArgument(f"input {info.name!r} would have {n_elements} random numbers")
    return _numbers(info, kind, shape, (found["low"], found["high"]), generator)


def _shape(
    info: ValueInfo, kind: TensorType, text: str | None, sizes: Mapping[str, str]
) -> tuple[int, ...]:
    if text is not None:
        return () if text == "scalar" else tuple(map(int, text.split("x")))
    if kind.shape is None:
        raise InvalidArgument(
            f"input {info.name!r} is {kind}, of any shape: give it, --input {info.name}=1 for a "
            f"number, {info.name}=random:1x3 for an array of that shape"
        )
    from arenite.model.sizes import bounds_of

    known = {name: bounds_of(name, size)[1] for name, size in sizes.items()}
    shape = [one if isinstance(one, int) else known.get(one or "", -1) for one in kind.shape]
    if min(shape, default=0) < 0:
        example = "x".join(str(EXAMPLE_SIZE if one < 0 else one) for one in shape)
        missing = [one for one, size in zip(kind.shape, shape, strict=True) if size < 0]
        by_name = " ".join(f"--dim {one}={EXAMPLE_SIZE}" for one in dict.fromkeys(missing))
        raise InvalidArgument(
            f"input {info.name!r} is {kind}: give it, --input {info.name}=random:{example} say, "
            f"or its sizes, {by_name}"
        )
    return tuple(shape)


def _numbers(
    info: ValueInfo,
    kind: TensorType,
    shape: tuple[int, ...],
    bounds: tuple[str | None, str | None],
    generator: np.random.Generator,
) -> Array:
    from arenite.ir.element import numpy_dtype

    wanted = numpy_dtype(kind.dtype)
    try:
        low, high = (None if one is None else float(one) for one in bounds)
        if kind.dtype.kind in (Kind.FLOAT, Kind.COMPLEX):
            if low is None or high is None:
                return generator.standard_normal(shape).astype(wanted)
            return generator.uniform(low, high, shape).astype(wanted)
        first, last = int(low or 0), USUAL_HIGH - 1 if high is None else int(high)
        return generator.integers(first, last, shape, endpoint=True).astype(wanted)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"--input {info.name}: {error}") from None


def described(value: Any) -> tuple[str, str, str]:
    """Type, shape and range of an output, for a table."""
    if isinstance(value, list):
        kind = "maps" if value and isinstance(value[0], dict) else ""
        return f"sequence of {len(value)} {kind}".rstrip(), "", ""
    if value is None:
        return "nothing", "", ""
    if value.dtype.kind in "OUS":
        return "string", str(list(value.shape)), ""
    if not value.size or value.dtype.kind not in "biuf":
        return str(value.dtype), str(list(value.shape)), ""
    plain = value.astype(np.float64)
    facts = f"{plain.min():.6g} to {plain.max():.6g}, mean {plain.mean():.6g}"
    return str(value.dtype), str(list(value.shape)), facts


def saved(path: Path, outputs: Mapping[str, Any]) -> None:
    """Write outputs to an .npz file; elements of sequences have their numbers behind the name,
    columns of maps their labels."""
    flat: dict[str, Array] = {}
    for name, value in outputs.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            flat |= {f"{name}.{key}": np.asarray([row[key] for row in value]) for key in value[0]}
        elif isinstance(value, list):
            flat |= {f"{name}.{k}": np.asarray(one) for k, one in enumerate(value)}
        elif value is not None:
            flat[name] = value.astype(str) if value.dtype == object else value
    with output.writing(path), path.open("wb") as file:
        # By file: a name such as "file" would be taken for an argument.
        _write_npz(file, flat)


def _write_npz(file: Any, arrays: Mapping[str, Array]) -> None:
    import zipfile

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
