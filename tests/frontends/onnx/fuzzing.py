"""One round of fuzzing: a file is read and translated, and may be compiled, within limits.

A round ends with a graph, or with one clear AreniteError that names the file. Anything else is a
finding: another exception, more processor time or more memory than the limits.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arenite.errors import AreniteError
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.inputs import Absent, StructureNeeded
from arenite.frontends.onnx.translate import Argument, Given, Translated, translate
from arenite.frontends.onnx.types import OptionalType, SequenceType, TensorType, ValueType
from arenite.ir import Dim
from arenite.ir.element import numpy_dtype

NAME = "m.onnx"
#: What the translator says of an exception that no handler meant.
UNFORESEEN = "makes no sense, or Arenite makes none of it"
#: Characters of a clear message.
MAX_MESSAGE = 4000


class TooLong(BaseException):
    """A round took more processor time than its limit; no handler of Exception takes it away."""


@contextlib.contextmanager
def limited(seconds: float, nbytes: int) -> Iterator[None]:
    """At most so much processor time, and address space beyond what the process has now."""

    def stop(*_: Any) -> None:
        raise TooLong(f"more than {seconds} s of processor time")

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    old = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + nbytes, before[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, old)


def read(data: bytes, known: Mapping[str, NDArray[Any]]) -> Translated | AreniteError:
    """The graph of a model, or the error that says why there is none; checks that it is clear.

    `known` has numbers of inputs for when they decide structure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _translated(OnnxFile.of_bytes(data, NAME), known)
    except AreniteError as error:
        text = str(error)
        if NAME not in text or len(text) > MAX_MESSAGE:
            raise AssertionError(f"not one clear error: {type(error).__name__}: {text}") from error
        if UNFORESEEN in text and error.__cause__ is not None:
            raise error.__cause__ from None  # a handler took too much for granted
        return error


def _translated(file: OnnxFile, known: Mapping[str, NDArray[Any]]) -> Translated:
    given = {name: _given(kind) for name, kind in file.inputs.items()}
    while True:
        try:
            return translate(file, given)
        except StructureNeeded as needed:
            new = [name for name in needed.names if isinstance(given.get(name), Argument)]
            if not new:
                raise
            for name in new:
                one = given[name]
                assert isinstance(one, Argument)
                given[name] = known.get(name, _numbers(one))


def _given(kind: ValueType) -> Given:
    if isinstance(kind, TensorType):
        shape: tuple[Dim, ...] = tuple(
            3 if not isinstance(one, int) else one for one in kind.shape or ()
        )
        return Argument(shape, kind.dtype, kind.is_string)
    if isinstance(kind, SequenceType):
        return (_given(kind.element),) * 2
    assert isinstance(kind, OptionalType)
    return Absent()


def _numbers(one: Argument) -> NDArray[Any]:
    shape = tuple(size if isinstance(size, int) and size < 64 else 1 for size in one.shape)
    return np.ones(shape, numpy_dtype(one.dtype))
