"""Graph interfaces in the cache: a graph that was built once need not be built again to be run.

In: a recipe. Out: the interface of its graph: the one that was kept under the recipe's key, or that
of the graph, built now. An entry names tensors, never their content: that comes from the recipe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from arenite import dtype as dtypes
from arenite import saved_json
from arenite.errors import AreniteError
from arenite.ir import ConstantData, Var, bounds, nbytes_of
from arenite.ir.interface import Constant, GraphInterface, Port
from arenite.memory.columns import SlotColumns
from arenite.pipeline.identity import graph_sources, identity
from arenite.program import cache
from arenite.program.record_json import dim_from_json, dim_to_json
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from arenite.frontends.language.recipe import Recipe
    from arenite.ir import BufferSource, Graph
    from arenite.program.compiled import Compiled

_log = logging.getLogger("arenite.pipeline")


def interface_of(recipe: Recipe) -> GraphInterface:
    """What a run needs to know of a recipe's graph."""
    key = cache.key_of("interface", *identity(), graph_sources(), recipe.key)
    store = cache.default()
    sections = store.get(key)
    if sections is not None:
        try:
            return interface_from_sections(sections, key, _tensors(recipe), recipe.build)
        except (AreniteError, LookupError, TypeError, ValueError) as problem:
            _log.info("what was kept of a graph is dropped: %r", problem)
            store.drop(key)
    from arenite.garbage import collected_less_often

    with collected_less_often():
        interface = GraphInterface.of(recipe.build())
        written = interface_to_sections(interface, recipe.name_of)
    if written is not None:
        store.put(key, written)
    return interface


class NamedTensors(NamedTuple):
    """The tensors of a file that graphs read: whether there is one of a name, and which."""

    has: Callable[[str], bool]
    source: Callable[[str], BufferSource]


def _tensors(recipe: Recipe) -> NamedTensors:
    tensors = recipe.file.tensors
    return NamedTensors(tensors.__contains__, lambda name: tensors[name].source)


def fits(interface: GraphInterface, program: Compiled) -> bool:
    """Whether inputs, states and constants of a graph have the bytes that a program counts on."""
    frame, slots = program.frame, SlotColumns.of(program.plan.slots)
    ports: dict[str, Sequence[Port | Constant]] = {
        "input": interface.inputs,
        "state": interface.states,
        "constant": interface.constants,
    }
    for kind, some in ports.items():
        for number in frame.numbers(kind):
            source = int(frame.sources[number])
            if source >= len(some):
                return False
            if source >= 0:
                nbytes = bounds(nbytes_of(some[source].shape, some[source].dtype))[1]
                if nbytes != slots.nbytes[frame.rows[number]]:
                    return False
    return True


class _Constants(Sequence[Constant]):
    """Arrays of a graph, made when they are asked for: most of a file, some kept."""

    def __init__(self, kinds: list[Any], data: memoryview, tensors: NamedTensors) -> None:
        self._kinds = kinds
        self._data = data
        self._tensors = tensors
        self._made: dict[int, Constant] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    @overload
    def __getitem__(self, number: int) -> Constant: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Constant]: ...
    def __getitem__(self, number: int | slice) -> Constant | Sequence[Constant]:
        if isinstance(number, slice):
            return [self[k] for k in range(*number.indices(len(self)))]
        if number not in self._made:
            self._made[number] = self._make(self._kinds[number])
        return self._made[number]

    def _make(self, kind: Any) -> Constant:
        if isinstance(kind, str):
            return self._tensors.source(kind)
        name, shape, digest, start, nbytes = kind
        dtype = dtypes.of(name)
        array = np.frombuffer(self._data[start : start + nbytes], dtype.to_numpy()).reshape(shape)
        array = array.copy()
        array.flags.writeable = False
        return ConstantData(array, dtype, digest)


def interface_to_sections(
    interface: GraphInterface, name_of: Callable[[BufferSource], str | None]
) -> dict[str, bytes] | None:
    """A graph interface as sections; None where it has arrays that cannot be kept. `name_of` are
    the names of tensors of a file."""
    kinds: list[Any] = []
    data = bytearray()
    for constant in interface.constants:
        if not isinstance(constant, ConstantData):
            name = name_of(constant)
            if name is None:
                return None
            kinds.append(name)
        elif constant.dtype.has_numpy:
            raw = constant.array.tobytes()
            kinds.append(
                [constant.dtype.name, constant.array.shape, constant.digest, len(data), len(raw)]
            )
            data += raw
        else:
            return None
    content = {
        "digest": interface.digest(),
        "inputs": [_port_to_json(port) for port in interface.inputs],
        "states": [_port_to_json(port) for port in interface.states],
        "vars": [[var.name, var.low, var.high] for var in interface.vars],
        "constants": kinds,
    }
    return {"ports": saved_json.dumps(content).encode(), "data": bytes(data)}


def interface_from_sections(
    sections: Mapping[str, memoryview],
    key: str,
    tensors: NamedTensors,
    build: Callable[[], Graph],
) -> GraphInterface:
    """A graph interface that was kept under a key, of a graph that `build` makes; ValueError,
    TypeError, LookupError or AreniteError where it is none."""
    content = saved_json.loads(bytes(sections["ports"]))
    digest, kinds, data = content["digest"], content["constants"], sections["data"]
    if type(digest) is not str:
        raise ValueError("a digest is a text")
    for kind in kinds:
        if not isinstance(kind, str):
            name, shape, _, start, nbytes = kind
            if dtypes.of(name).nbytes(tuple(shape)) != nbytes or start + nbytes > len(data):
                raise ValueError("a constant is not where it should be")
        elif not tensors.has(kind):
            raise ValueError(f"there is no tensor {kind!r}")
    return GraphInterface(
        tuple(map(_port_from_json, content["inputs"])),
        tuple(map(_port_from_json, content["states"])),
        tuple(Var(name, low, high) for name, low, high in content["vars"]),
        _Constants(kinds, data, tensors),
        digest,
        build,
        kept_as=key,
    )


def _port_to_json(port: Port) -> list[Any]:
    return [port.name, [dim_to_json(size) for size in port.shape], port.dtype.name]


def _port_from_json(data: list[Any]) -> Port:
    name, shape, dtype = data
    return Port(str(name), tuple(map(dim_from_json, shape)), dtypes.of(dtype))
