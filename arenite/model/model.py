"""Model: an ONNX file; its plan is made before any weight is read."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from arenite import lazy
from arenite.errors import (
    AreniteError,
    DeviceUnavailable,
    InvalidArgument,
    NotCompiled,
    NotSupported,
    printable,
)
from arenite.frontends.onnx.file import OnnxFile
from arenite.frontends.onnx.inputs import StructureNeeded
from arenite.garbage import collected_less_often
from arenite.model.arguments import Known, Signature, Structure, array_of
from arenite.model.compiled import CompiledModel
from arenite.model.file_record import FileRecord
from arenite.model.interface import Interface, ValueInfo, open_sizes, with_names
from arenite.model.programs import Source
from arenite.model.sizes import Form, GivenSize, SizeNames, bounds_of
from arenite.model.translations import TENSOR, Request, Translation, Translations
from arenite.program.options import Options, parse_nbytes
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from arenite.fetch.source import OnProgress
    from arenite.ir.graph import Graph
    from arenite.memory import MemoryPlan


class Metadata(NamedTuple):
    """What a file says about itself."""

    producer: str
    domain: str
    graph: str
    version: int
    description: str
    operator_sets: Mapping[str, int]  # versions by domain
    more: Mapping[str, str]  # whatever else its maker wrote


class Model:
    """An ONNX model. `arenite.load` makes one."""

    def __init__(self, file: OnnxFile) -> None:
        self.file = file
        self._record = FileRecord(file)
        self.description = self._record.description
        self._names = SizeNames()
        values = [
            ValueInfo(one.name, with_names(one.type, one.name, self._names), one.is_required)
            for one in self.description.inputs
        ]
        #: What goes in: those that a call must bring first.
        self.inputs = Interface(sorted(values, key=lambda one: not one.is_required))
        self.outputs = Interface([ValueInfo(*one) for one in self.description.outputs])

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Model:
        """Map a file; no weight is read."""
        return cls(OnnxFile.open(path))

    @classmethod
    def of_bytes(cls, data: bytes) -> Model:
        """A model that is in memory."""
        return cls(OnnxFile.of_bytes(data))

    @property
    def path(self) -> str:
        """Of the file."""
        return self.file.path

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the sizes that come with a call, which `plan` and `compile` take."""
        return tuple(
            dict.fromkeys(
                name for one in self.inputs if one.is_required for name in open_sizes(one.type)
            )
        )

    @cached_property
    def metadata(self) -> Metadata:
        """What the file says about itself."""
        told = self.description
        return Metadata(
            producer=" ".join(one for one in (told.producer_name, told.producer_version) if one),
            domain=told.domain,
            graph=told.graph_name,
            version=told.version or 0,
            description=told.text or told.graph_text,
            operator_sets=told.operator_sets,
            more=told.more,
        )

    # What it needs, and what it becomes.

    def plan(
        self,
        *,
        memory: int | str | None = None,
        plan: str = "memory",
        device: str = "cpu",
        values: Mapping[str, Any] | None = None,
        **sizes: GivenSize,
    ) -> MemoryPlan:
        """Where every value of a run will live, and what it takes in all. No weight is read.

        `sizes` are those of the inputs by name: a number, or a range such as "1..8", which is
        planned at its bound; what is not given is 1. `memory` is the most bytes it may take:
        DoesNotFit names the least that would do. `values` has inputs that decide structure.
        """
        from arenite.memory.plan import HOST
        from arenite.pipeline import plan_graph
        from arenite.pipeline.program import is_cut
        from arenite.program.backend import backend_of

        bounds = self._bounds(sizes)
        options = Options(parse_nbytes(memory), plan, device=device)
        request = self._request("planned", values, bounds)
        if request.form.is_open:
            try:
                return plan_graph(self._translation(request, bounds).interface, options)
            except AreniteError:  # ranges may be too much, where the largest sizes are not
                request = request._replace(form=Form.of_numbers(request.form.largest()))
        made = self._translation(request, bounds)
        try:
            return plan_graph(made.interface, options)
        except NotCompiled as refusal:
            if backend_of(device).memory == HOST or is_cut(made.interface.graph):
                raise self.explained(refusal, bounds) from None
            raise NotSupported(
                f"{self.path} is no one program on device {device!r}, and has no one plan: what "
                "the device does not do runs on the CPU, between programs of the device. Compile "
                "it for the plan of each, which `arenite show` draws. What the device does not "
                f"do: {refusal}"
            ) from None
        except AreniteError as error:
            raise self.explained(error, bounds) from None

    def graph(self, *, values: Mapping[str, Any] | None = None, **sizes: GivenSize) -> Graph:
        """What the model computes, for sizes and values as `plan` takes them; a range is a
        variable. NotSupported where an output is no tensor of numbers."""
        bounds = self._bounds(sizes)
        made = self._translation(self._request("made a graph", values, bounds), bounds)
        for name, kind in made.outputs.items():
            if kind != TENSOR:
                raise NotSupported(
                    f"output {name!r} of {self.path} is {self.outputs[name].type}; those of a "
                    "graph are tensors of numbers"
                )
        return made.interface.graph

    def _request(
        self, to_be: str, values: Mapping[str, Any] | None, bounds: dict[str, tuple[int, int]]
    ) -> Request:
        structure = self._structure(to_be)
        known = self._known(structure, values or {})
        names = structure.sizes(known)
        form = Form.of_bounds(names, dict.fromkeys(names, (1, 1)) | bounds)
        return Request(structure, form, Known(known))

    def _translation(self, request: Request, bounds: Mapping[str, object]) -> Translation:
        try:
            return Translations(self._record).obtain(request)
        except StructureNeeded as needed:
            raise _needing(needed) from None
        except AreniteError as error:
            raise self.explained(error, bounds) from None

    def compile(
        self,
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        plan: str = "memory",
        device: str = "cpu",
        values: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
        **sizes: GivenSize,
    ) -> CompiledModel:
        """Compile; what comes back is called with arrays.

        `sizes` are those of the inputs by name: a number, or a range such as "1..8", for whose
        bound memory is planned. One that is not given may be anything; memory is what the largest
        so far needs. `memory` is the most bytes it may take in all, and is honoured or refused with
        DoesNotFit before anything runs. `values` has inputs that decide structure, which are
        otherwise compiled for when a call brings them. `on_progress(what, done, total)` hears of
        long work.
        """
        if threads is not None and (type(threads) is not int or threads < 1):
            raise InvalidArgument(f"threads is a whole number from 1, not {threads!r}")
        lazy.begin_start()
        bounds = self._bounds(sizes)
        for name in values or {}:
            _ = self.inputs[name]
        options = Options(parse_nbytes(memory), plan, device=device)
        signature = Signature(self.inputs, self._names, bounds)
        source = Source(self._record, signature, bounds, options, threads, on_progress)
        with collected_less_often():
            made = CompiledModel(source, values or {})
        # Usual is that the file was not parsed, and nothing compiled.
        lazy.end_start(is_usual=not {"onnx", "arenite.codegen"} & sys.modules.keys())
        return made

    def size_name(self, given: str) -> str:
        """The name of a size as `sizes` has it; the file's own is taken too."""
        return self._names.find(given, self.sizes)

    def _bounds(self, sizes: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        return {self.size_name(name): bounds_of(name, one) for name, one in sizes.items()}

    def _structure(self, to_be: str) -> Structure:
        usual = Signature(self.inputs, self._names, {}).usual
        if usual is None:
            kinds = ", ".join(str(one) for one in self.inputs if one.shape is None)
            raise InvalidArgument(
                f"{self.path} can't be {to_be} before a call: what is in {kinds} comes with it; "
                "compile it, call it, and look at the plan of what was compiled"
            )
        return usual

    def _known(self, structure: Structure, values: Mapping[str, Any]) -> dict[str, Any]:
        leaves = {leaf.path: leaf for leaf in structure.leaves}
        return {name: array_of(name, leaves[self.inputs[name].name].type, one)
                for name, one in values.items()}  # fmt: skip

    def explained(self, error: AreniteError, sizes: Mapping[str, object]) -> AreniteError:
        """With the sizes that are not among those given, and may be why a plan can't be made."""
        missing = [name for name in self.sizes if name not in sizes]
        if not missing or isinstance(error, MemoryError | DeviceUnavailable):
            return error
        return InvalidArgument(
            f"{error}. Sizes that are not given are 1, here {', '.join(missing)}: give what is too "
            "small, as NAME=SIZE"
        )

    # What it shows.

    def __repr__(self) -> str:
        sizes = f"{len(self.inputs)} inputs, {len(self.outputs)} outputs"
        return f"<Model {printable(self.path)}: {sizes}>"

    def __str__(self) -> str:
        return f"{printable(self.path)}\n\ninputs\n{self.inputs}\n\noutputs\n{self.outputs}"

    def _repr_html_(self) -> str:
        from html import escape

        tables = self.inputs._repr_html_(), self.outputs._repr_html_()
        return f"<p>{escape(self.path)}</p>" + "".join(tables)


def _needing(needed: StructureNeeded) -> InvalidArgument:
    names = ", ".join(needed.names)
    return InvalidArgument(
        f"{needed}; give its numbers, values={{{names!r}: ...}}, on the command line --input"
    )
