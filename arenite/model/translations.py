"""Translations: what a model's file becomes for a request, found in the cache or made now.

In: the structure of a call, a form of its sizes, and numbers that decide structure. Out: what a run
needs to know of the graph, and how its results become the model's outputs. An entry names tensors
by their places, never their content; one that does not fit the file is dropped and made again.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from arenite import saved_json
from arenite.errors import AreniteError
from arenite.frontends.onnx.inputs import StructureNeeded
from arenite.frontends.onnx.tensor_files import TensorPlace
from arenite.ir.interface import GraphInterface
from arenite.model.arguments import Known, Structure
from arenite.model.file_record import FileRecord
from arenite.model.sizes import Form
from arenite.pipeline.interface_cache import (
    NamedTensors,
    interface_from_sections,
    interface_to_sections,
)
from arenite.program import cache
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from arenite.frontends.onnx.translate import Translated
    from arenite.frontends.onnx.values import AnyValue
    from arenite.ir import BufferSource, Graph

_log = logging.getLogger("arenite.model")

#: Bytes of constants, made while translating, up to which an entry is kept.
MAX_DATA_NBYTES = 1 << 26

#: Of an output: how arrays become it. A list is a sequence, None an optional that is not there,
#: {"labels": [...]} a map for each row.
TENSOR, STRINGS = "tensor", "strings"
#: Its elements, and the shape that they have.
SHAPED, SHAPED_STRINGS = "shaped", "shaped strings"


class Request(NamedTuple):
    """What a program is made for."""

    structure: Structure
    form: Form
    known: Known

    def __repr__(self) -> str:
        parts = [str(self.form), repr(self.known)]
        if not self.structure.is_usual:
            parts.append(self.structure.key)
        return "; ".join(part for part in parts if part) or "as the file has it"

    @property
    def key(self) -> str:
        """Text that tells it from all others."""
        return repr((self.structure.key, self.form.to_json(), repr(self.known)))


class Translation(NamedTuple):
    """`outputs` are the model's, by name, each as one of these words, or made of them."""

    interface: GraphInterface
    outputs: dict[str, Any]
    is_cut: bool  # a run of it is planned in segments


class Translations:
    """Those of one file."""

    def __init__(self, record: FileRecord) -> None:
        self._record = record

    def obtain(self, request: Request) -> Translation:
        """The translation for a request; StructureNeeded where it must have more numbers."""
        kept = self._kept(request)
        if isinstance(kept, StructureNeeded):
            raise kept
        if kept is not None:
            return kept
        try:
            return self.keep(request, self._translated(request))
        except StructureNeeded as needed:
            self._put(request, {"needed": needed_to_json(needed, self._record.file.path)})
            raise

    def keep(self, request: Request, made: Translated) -> Translation:
        """What the file was translated to for a request, from now on in the cache. Strings are
        numbers of a table that only translating fills, and segments need the graph."""
        from arenite.pipeline.program import is_cut

        interface = GraphInterface.of(made.graph)
        outputs = {name: _template(value) for name, value in made.outputs.items()}
        found = Translation(interface, outputs, is_cut(made.graph))
        if found.is_cut or self._record.file.strings.has_kept:
            return found
        sections = interface_to_sections(interface, self._name_of)
        if sections is not None and len(sections["data"]) <= MAX_DATA_NBYTES:
            self._put(request, sections | {"outputs": saved_json.dumps(outputs).encode()})
        return found

    def _name_of(self, source: BufferSource) -> str | None:
        place = self._record.file.files.place_of(source)
        return None if place is None else place.to_json()

    def _translated(self, request: Request) -> Translated:
        from arenite.frontends.onnx.translate import Translator
        from arenite.garbage import collected_less_often

        given = request.structure.given(request.form, request.known.arrays)
        with collected_less_often(), self._record.translating():
            return Translator(self._record.file).translate(given)

    def _put(self, request: Request, sections: Mapping[str, bytes]) -> None:
        cache.default().put_all({self._key(request): sections})

    def _key(self, request: Request) -> str:
        return self._record.key("translation", request.key)

    def _kept(self, request: Request) -> Translation | StructureNeeded | None:
        key, store = self._key(request), cache.default()
        sections = store.get(key)
        if sections is None:
            return None
        try:
            if "needed" in sections:
                return needed_from_json(sections["needed"], self._record.file.path)
            return self._read(sections, key, request)
        except (AreniteError, AttributeError, LookupError, TypeError, ValueError) as problem:
            _log.info("what was kept of a translation is dropped: %r", problem)
            store.drop(key)
            return None

    def _read(self, sections: Mapping[str, memoryview], key: str, request: Request) -> Translation:
        files = self._record.file.files

        @functools.cache
        def source(name: str) -> BufferSource:
            return files.source(TensorPlace.from_json(name))

        def has(name: str) -> bool:
            return bool(source(name).id)  # or it raises what is wrong

        def build() -> Graph:
            return self._translated(request).graph

        interface = interface_from_sections(sections, key, NamedTensors(has, source), build)
        outputs = saved_json.loads(bytes(sections["outputs"]))
        if list(outputs) != [one.name for one in self._record.description.outputs]:
            raise ValueError("outputs are not those of the file")
        return Translation(interface, outputs, is_cut=False)


def needed_to_json(needed: StructureNeeded, path: str) -> bytes:
    """As `needed_from_json` reads it: the file may have another name then."""
    return saved_json.dumps([needed.names, str(needed).replace(path, "\0")]).encode()


def needed_from_json(data: memoryview | bytes, path: str) -> StructureNeeded:
    names, reason = saved_json.loads(bytes(data))
    return StructureNeeded([str(name) for name in names], str(reason).replace("\0", path))


def _template(value: AnyValue) -> Any:
    from arenite.frontends.onnx.values import Items, Maps, Maybe, Shaped, Value

    if isinstance(value, Maps):
        return {"labels": list(value.labels)}
    if isinstance(value, Shaped):
        return SHAPED if _template(value.elements) == TENSOR else SHAPED_STRINGS
    if isinstance(value, Items):
        return [_template(one) for one in value.values]
    if isinstance(value, Maybe):
        return None if value.value is None else _template(value.value)
    return STRINGS if isinstance(value, Value) and value.is_string else TENSOR
