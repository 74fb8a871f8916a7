"""What an exported program is called and where it lies: names of C, arguments, offsets of weights.

In: a Compiled of this back end, whose image holds the functions of its kernels, the interface of
its graph, and options. Out: a Layout, from which source and header are written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from arenite.backends.c.c_types import Names, argument_type, identifier
from arenite.backends.c.kernel import CKernel
from arenite.dtype import DType
from arenite.errors import IndexOutOfRange, NotCompiled
from arenite.ir.dim import Dim, bounds, found_in
from arenite.ir.interface import GraphInterface
from arenite.memory.values import align_up
from arenite.program.compiled import Compiled

#: Arena and weights begin at a multiple of this, and so do values inside.
ALIGNMENT = 64

Memory = Literal["static", "caller"]
#: Where weights are: bytes that the caller has read, an array of C, or an address for each.
Weights = Literal["file", "array", "table"]

#: Errors of a program, beside those of its kernels.
ERRORS = {
    "INDEX_OUT_OF_RANGE": (IndexOutOfRange.code, "an index of the input is outside its axis"),
    "SIZE_OUT_OF_BOUNDS": (2, "a size is outside its bounds"),
    "NOT_INITIALISED": (3, "init was not called, or failed"),
    "MEMORY_TOO_SMALL": (4, "the memory given has too few bytes"),
    "MISALIGNED": (5, f"memory or weights do not begin at a multiple of {ALIGNMENT}"),
    "CANCELLED": (6, "the run was cancelled"),
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What can be chosen of a program's text."""

    name: str = "program"
    memory: Memory = "static"
    weights: Weights = "file"
    openmp: bool = False
    freestanding: bool = False
    cancellable: bool = False  # by another thread, in process


@dataclass(frozen=True, slots=True)
class Image:
    """Functions of kernels by name."""

    kernels: dict[str, CKernel]

    def to_bytes(self) -> bytes:
        return json.dumps([asdict(one) for one in self.kernels.values()]).encode()

    @staticmethod
    def from_bytes(raw: bytes) -> Image:
        kernels = {}
        for one in json.loads(raw or b"[]"):
            lists = {name: tuple(one[name]) for name in ("sizes", "helpers")}
            kernels[one["name"]] = CKernel(**{**one, **lists})
        return Image(kernels)

    @property
    def helpers(self) -> tuple[str, ...]:
        """Functions that kernels call."""
        return tuple(dict.fromkeys(name for one in self.kernels.values() for name in one.helpers))


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of `run`: an array of an input or an output, or a size."""

    name: str
    type: str
    about: str


class Layout:
    """Names of C for all that a program has, and where its weights lie."""

    def __init__(
        self, compiled: Compiled, interface: GraphInterface, options: SourceOptions
    ) -> None:
        self.compiled, self.interface, self.options = compiled, interface, options
        self.prefix = identifier(options.name)
        self.image = Image.from_bytes(compiled.image)
        self.names = Names(self.prefix, "status", "self", *self.image.kernels, *self.image.helpers)
        self.inputs = [self.names.take(port.name) for port in interface.inputs]
        self.outputs = [self._output_name(k) for k in range(len(compiled.outputs))]
        self.sizes = {var: self.names.take(self._free(var.name)) for var in interface.vars}
        found = {
            size for n in compiled.outputs for d in compiled.values[n].shape for size in found_in(d)
        }
        self.found = {
            size: self.names.take(f"n_{size.name}") for size in sorted(found, key=lambda s: s.name)
        }
        self.values = self._value_names()
        self.offsets, self.weights_nbytes = self._weight_offsets()
        self.arena_nbytes = compiled.plan.peak_nbytes
        if compiled.hosts:
            raise NotCompiled(
                "a program that calls functions of the host can't be written in C: they are Python"
            )

    def _free(self, name: str) -> str:
        """The name of a size, which an array may have too."""
        return f"n_{name}" if identifier(name) in {*self.inputs, *self.outputs} else name

    def _output_name(self, k: int) -> str:
        number = self.compiled.outputs[k]
        value = self.compiled.values[number]
        return self.names.take(value.name if value.kind == "output" else f"out{k}")

    def _value_names(self) -> list[str]:
        """What pointers to values are called."""
        outputs = dict(zip(reversed(self.compiled.outputs), reversed(self.outputs), strict=True))
        names = []
        for number, value in enumerate(self.compiled.values):
            if value.kind == "input":
                names.append(self.inputs[value.source])
            elif value.kind == "output":
                names.append(outputs[number])
            else:
                names.append(self.names.take(value.name))
        return names

    def _weight_offsets(self) -> tuple[dict[int, int], int]:
        """Where constants lie in the weights; in a table their places in it."""
        numbers = [k for k, v in enumerate(self.compiled.values) if v.kind == "constant"]
        if self.options.weights == "table":
            return {number: k for k, number in enumerate(numbers)}, len(numbers)
        offsets: dict[int, int] = {}
        end = 0
        for number in numbers:
            offsets[number] = end
            end = align_up(end + bounds(self.compiled.values[number].nbytes)[1], ALIGNMENT)
        return offsets, end

    @property
    def macro(self) -> str:
        return self.prefix.upper()

    def arguments(self) -> list[Argument]:
        """Those of `run`, in order."""
        inputs = zip(self.inputs, self.interface.inputs, strict=True)
        made = [_array(name, port.shape, port.dtype, "const ") for name, port in inputs]
        for name, number in zip(self.outputs, self.compiled.outputs, strict=True):
            value = self.compiled.values[number]
            made.append(_array(name, value.shape, value.dtype))
        for var, name in self.sizes.items():
            made.append(Argument(name, "int64_t ", f"{var.name}, {var.low} to {var.high}"))
        for size, name in self.found.items():
            made.append(Argument(name, "int64_t *", f"{size.name}, which the run finds"))
        return made

    def run_signature(self) -> list[str]:
        parts = [f"{one.type}{one.name}" for one in self.arguments()]
        return self.with_self(parts)

    def init_signature(self) -> list[str]:
        parts = []
        if self.options.memory == "caller":
            parts += ["void *memory", "size_t memory_nbytes"]
        if self.offsets and self.options.weights == "file":
            parts.append("const void *weights_bytes")
        if self.offsets and self.options.weights == "table":
            parts.append("const void *const *weights_table")
        return self.with_self(parts)

    def with_self(self, parts: list[str]) -> list[str]:
        """Parameters of a function, behind the program where there may be several."""
        if self.options.memory == "caller":
            return [f"{self.prefix}_program *self", *parts]
        return parts or ["void"]


def _array(name: str, shape: Sequence[Dim], dtype: DType, const: str = "") -> Argument:
    about = f"{dtype} [{', '.join(map(str, shape))}]"
    return Argument(name, f"{const}{argument_type(dtype)} *", about)
