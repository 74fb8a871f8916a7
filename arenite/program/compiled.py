"""Compiled: what a compiler leaves behind, as plain data that saves to a file and reads back.

Everything an Executable needs to run, and nothing that only compiling needs: code, launches,
values, plan, and texts to show. Constants that belong to the graph are not saved with it: the graph
has them, in a fixed order.

A program from a file has its plan and its frame as columns that lie in the file's bytes; its
launches, values, steps and kernels become objects when one of them is looked at.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from arenite import dtype as dtypes
from arenite import saved_json
from arenite.errors import AreniteError, DamagedCache, InvalidPlan
from arenite.ir.dim import Dim
from arenite.memory import MemoryPlan, ValueId
from arenite.memory.flat import flattened, unflattened
from arenite.memory.saved import plan_from_bytes, plan_to_bytes
from arenite.program.frame import Frame, prepared
from arenite.program.lazy_sequence import LazyMapping, LazySequence
from arenite.program.options import Options
from arenite.program.record_json import record_from_json, to_json
from arenite.program.steps import Cell, HostSpec, Pointer, Step, written
from arenite.program.value_spec import ValueSpec
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from arenite.ir.graph import Graph
    from arenite.ir.ops.host import HostFunction
    from arenite.program.cached_kernel import CachedKernel
    from arenite.program.launch import Launch
    from arenite.program.program_json import Objects

T = TypeVar("T")

SCHEMA = 8
#: What reading bytes that are no program raises.
_WRONG = (AreniteError, ArithmeticError, LookupError, TypeError, ValueError, zlib.error)


class _Parts(NamedTuple):
    options: Options
    passes: tuple[str, ...]  # that its graph went through, by name
    image: bytes
    load_kernels: Sequence[CachedKernel]
    load: Sequence[Launch]  # run once, in this order, before the first run
    kernels: Sequence[CachedKernel]
    launches: Sequence[Launch]
    values: Sequence[ValueSpec]
    outputs: tuple[int, ...]
    constants: tuple[NDArray[Any], ...]
    plan: MemoryPlan
    steps: Sequence[Step]
    cells: Sequence[Cell]
    found: Mapping[str, int]  # cells of the sizes that are found while running
    late: Mapping[Dim, int]  # cells of the sizes that depend on these
    hosts: tuple[HostSpec, ...]


class Compiled(_Parts):
    """One program: `outputs` are numbers of values."""

    def __str__(self) -> str:
        """The steps, one a line."""
        return written(self.steps, [launch.name for launch in self.launches])

    @property
    def pointers(self) -> dict[ValueId, Pointer]:
        return {
            number: Pointer(value.source, value.targets)
            for number, value in enumerate(self.values)
            if value.kind == "pointer"
        }

    @cached_property
    def frame(self) -> Frame:
        """What a start and a bind need of it; follows from the parts."""
        return Frame.of(self)

    def verify(self) -> None:
        """InvalidPlan unless the frame is that of launches, steps, values and plan."""
        if not self.frame.is_same(Frame.of(self)):
            raise InvalidPlan("the frame of a program is not that of its launches and values")

    def sections(self) -> dict[str, bytes]:
        """As sections of a model file."""
        from arenite.program.program_json import joined_modules, kernels_to_json, objects_to_json

        self.frame = frame = prepared(self)
        shown = {*frame.numbers("input", "output"), *self.outputs}
        about = {
            "schema": SCHEMA,
            "options": self.options._asdict(),
            "passes": self.passes,
            "frame": frame.data(),
            "lengths": [len(some) for some in (self.load, self.launches, self.steps, self.cells)],
            "outputs": self.outputs,
            "found": self.found,
            "hosts": to_json(self.hosts),
            "constants": [[str(array.dtype), array.shape] for array in self.constants],
            "values": to_json({number: self.values[number] for number in sorted(shown)}),
        }
        kernels = (*self.load_kernels, *self.kernels)
        return {
            "code": self.image,
            "frame": flattened(about, frame.arrays()),
            "plan": plan_to_bytes(self.plan),
            "data": b"".join(array.tobytes() for array in self.constants),
            "program": zlib.compress(saved_json.dumps(objects_to_json(self)).encode()),
            "kernels": zlib.compress(saved_json.dumps(kernels_to_json(kernels)).encode()),
            "llvm": joined_modules(kernels),
        }

    @classmethod
    def from_sections(cls, sections: Mapping[str, memoryview]) -> Compiled:
        """Read a program back; DamagedCache when it is not one. What is read later raises it
        then."""
        try:
            return cls._read(sections)
        except DamagedCache:
            raise
        except _WRONG as error:
            raise DamagedCache(f"a program that cannot be read: {error!r}") from None

    @classmethod
    def _read(cls, sections: Mapping[str, memoryview]) -> Compiled:
        data, arrays = unflattened(sections["frame"])
        if data["schema"] != SCHEMA:
            raise DamagedCache(f"a program of schema {data['schema']}, not {SCHEMA}")
        plan = plan_from_bytes(sections["plan"])
        frame = Frame.saved(data["frame"], arrays, plan)
        n_load, n_launches, n_steps, n_cells = map(int, data["lengths"])
        n_values = len(frame.kinds)
        if n_load != len(frame.load_order) or n_launches != len(frame.skeleton.ticks):
            raise DamagedCache("the launches are not those of the frame")
        shown = {
            int(number): record_from_json(ValueSpec, one) for number, one in data["values"].items()
        }
        outputs = tuple(map(int, data["outputs"]))
        if not {*outputs, *shown} <= set(range(n_values)):
            raise DamagedCache("outputs do not fit the values")

        def lazy(part: str, n: int, known: Mapping[int, Any] | None = None) -> LazySequence[Any]:
            return LazySequence(n, lambda: getattr(objects(), part), known)

        @cache
        @_reading
        def objects() -> Objects:
            from arenite.program.program_check import check_objects
            from arenite.program.program_json import objects_from_json

            found = objects_from_json(saved_json.loads(zlib.decompress(sections["program"])))
            check_objects(found, program)
            return found

        @cache
        @_reading
        def kernels() -> tuple[CachedKernel, ...]:
            from arenite.program.program_json import kernels_from_json

            text = zlib.decompress(sections["kernels"])
            return kernels_from_json(saved_json.loads(text), program, sections["llvm"])

        program = cls(
            options=Options(**data["options"]),
            passes=tuple(map(str, data["passes"])),
            image=bytes(sections["code"]),
            load_kernels=LazySequence(n_load, lambda: kernels()[:n_load]),
            load=lazy("load", n_load),
            kernels=LazySequence(n_launches, lambda: kernels()[n_load:]),
            launches=lazy("launches", n_launches),
            values=lazy("values", n_values, shown),
            outputs=outputs,
            constants=_constants(data["constants"], sections["data"]),
            plan=plan,
            steps=lazy("steps", n_steps),
            cells=lazy("cells", n_cells),
            found={str(name): int(cell) for name, cell in data["found"].items()},
            late=LazyMapping(lambda: objects().late),
            hosts=tuple(record_from_json(HostSpec, one) for one in data["hosts"]),
        )
        program.frame = frame
        return program


def _reading(read: Callable[[], T]) -> Callable[[], T]:
    """Whatever goes wrong while it reads is damage."""

    def reading() -> T:
        try:
            return read()
        except DamagedCache:
            raise
        except _WRONG as error:
            raise DamagedCache(f"a program that cannot be read: {error!r}") from None

    return reading


def functions_of(graph: Graph) -> list[HostFunction]:
    """The functions of the host that a graph calls, in the order saved programs count them by."""
    calls = (node for node in graph.everything if node.op == "host")
    return list(dict.fromkeys(node.attr("function") for node in calls))


def _constants(kinds: list[Any], joined: memoryview) -> tuple[NDArray[Any], ...]:
    arrays = []
    at = 0
    for name, shape in kinds:
        numpy_dtype = dtypes.of(str(name)).to_numpy()
        count = int(np.prod(shape, dtype=np.int64))
        nbytes = count * numpy_dtype.itemsize
        if count < 0 or at + nbytes > len(joined):
            raise DamagedCache("a constant lies behind the end of the data")
        raw = np.frombuffer(bytes(joined[at : at + nbytes]), numpy_dtype)
        arrays.append(raw.reshape(tuple(map(int, shape))))
        at += nbytes
    return tuple(arrays)
