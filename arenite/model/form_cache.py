"""Forms of sizes in the cache: which one a model was compiled for is searched for once.

In: the structure of a call, numbers that decide it, and its sizes, or none for what holds for all
calls. Out: the form that was found, or that there is none, or that more numbers are needed.
"""

from __future__ import annotations

from collections.abc import Mapping

from arenite.errors import AreniteError
from arenite.frontends.onnx.inputs import StructureNeeded
from arenite.model.arguments import Known, Structure
from arenite.model.file_record import FileRecord
from arenite.model.sizes import Form
from arenite.model.translations import needed_from_json, needed_to_json
from arenite.pipeline.identity import identity
from arenite.program import cache
from arenite.program.options import Options
from arenite.records import NamedTuple


class FoundForm(NamedTuple):
    """None: sizes are taken as numbers."""

    form: Form | None


class FormCache:
    """The forms of one file, for sizes within bounds and for options of compiling."""

    def __init__(
        self, record: FileRecord, bounds: Mapping[str, tuple[int, int]], options: Options
    ) -> None:
        self._record = record
        self._about = (repr(sorted(bounds.items())), repr(options), *identity(options))

    def get(self, structure: Structure, known: Known, sizes: Mapping[str, int]) -> FoundForm | None:
        """What a search has found; None: there was none. StructureNeeded where that was raised."""
        key, store = self._key(structure, known, sizes), cache.default()
        sections = store.get(key)
        if sections is None:
            return None
        needed: StructureNeeded | None = None
        try:
            if "needed" in sections:
                needed = needed_from_json(sections["needed"], self._record.file.path)
            else:
                text = bytes(sections["form"]).decode()
                return FoundForm(Form.from_json(text) if text else None)
        except (AreniteError, LookupError, TypeError, ValueError):
            store.drop(key)
            return None
        raise needed

    def put(
        self,
        structure: Structure,
        known: Known,
        sizes: Mapping[str, int],
        found: Form | StructureNeeded | None,
    ) -> None:
        """Keep what a search has found."""
        if isinstance(found, StructureNeeded):
            section = {"needed": needed_to_json(found, self._record.file.path)}
        else:
            section = {"form": b"" if found is None else found.to_json().encode()}
        cache.default().put_all({self._key(structure, known, sizes): section})

    def _key(self, structure: Structure, known: Known, sizes: Mapping[str, int]) -> str:
        sized = repr(sorted(sizes.items()))
        return self._record.key("form", *self._about, structure.key, repr(known), sized)
