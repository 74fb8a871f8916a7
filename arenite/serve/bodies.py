"""Bodies: what a client sent, read with bounds; whatever is wrong with it becomes one ApiError.

In: bytes of a request. Out: a `Body`, whose fields are asked for by name and kind. An error names
the field by its path, as the client wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arenite.errors import (
    AreniteError,
    BoundsError,
    DoesNotFit,
    IndexOutOfRange,
    InvalidArgument,
    NotSupported,
    ShapeMismatch,
    SizeMismatch,
    TypeMismatch,
)

#: Lists and objects within each other, at the most.
MAX_DEPTH = 64
#: Errors of what a client asked for; the others are the server's.
ASKED = (
    BoundsError,
    DoesNotFit,
    IndexOutOfRange,
    InvalidArgument,
    NotSupported,
    ShapeMismatch,
    SizeMismatch,
    TypeMismatch,
)
#: Characters of a value that an error shows.
SHOWN = 60


class ApiError(Exception):
    """What a client is told instead of an answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        field: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,  # seconds
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.code = code
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["retry-after"] = str(retry_after)


def api_error(problem: AreniteError) -> ApiError:
    """An error of the library as a client sees it: of what it asked for, or of the server."""
    return ApiError(400 if isinstance(problem, ASKED) else 500, str(problem))


class Body:
    """An object that a client sent. What is null counts as not given."""

    def __init__(self, fields: dict[str, Any], path: str = "") -> None:
        self._fields = fields
        self._path = path

    @classmethod
    def read(cls, content: bytes | bytearray) -> Body:
        """The JSON object of a request."""
        try:
            value = json.loads(content, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"the body is not JSON: {str(error)[:200]}") from None
        if not isinstance(value, dict):
            raise ApiError(400, f"the body is a JSON {_kind(value)}; an object is needed")
        if _is_deep(value):
            raise ApiError(400, f"the body nests over {MAX_DEPTH} lists and objects")
        return cls(value)

    def name_of(self, field: str) -> str:
        """A field's path from the top of the body."""
        return f"{self._path}{field}"

    def wrong(self, field: str, wanted: str) -> ApiError:
        """The error for a field that is not what it should be."""
        if field not in self._fields:
            return ApiError(400, f"{self.name_of(field)} is missing; {wanted} is needed",
                            field=self.name_of(field))  # fmt: skip
        shown = json.dumps(self._fields[field])
        shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
        message = f"{self.name_of(field)} is {shown}; {wanted} is needed"
        return ApiError(400, message, field=self.name_of(field))

    def refused(self, field: str, why: str) -> ApiError:
        """The error for a field that nothing is done with, and that would change the answer."""
        name = self.name_of(field)
        return ApiError(400, f"{name} is given, and {why}; leave it out", field=name)

    def __contains__(self, field: str) -> bool:
        return self._fields.get(field) is not None

    def get(self, field: str) -> Any:
        """Whatever was sent, or None."""
        return self._fields.get(field)

    def text(self, field: str, usual: str | None = None) -> str:
        value = self._fields.get(field, None)
        if value is None and usual is not None:
            return usual
        if not isinstance(value, str):
            raise self.wrong(field, "a text")
        return value

    def flag(self, field: str, usual: bool = False) -> bool:
        value = self._fields.get(field)
        if value is None:
            return usual
        if not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    def whole(self, field: str, least: int, most: int) -> int | None:
        """A whole number within bounds; None where none was sent."""
        value = self._fields.get(field)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.wrong(field, f"a whole number from {least} to {most}")
        return value

    def number(self, field: str, least: float, most: float) -> float | None:
        """A number within bounds; None where none was sent."""
        value = self._fields.get(field)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise self.wrong(field, f"a number from {least} to {most}")
        return float(value)

    def texts(self, field: str, most: int) -> list[str]:
        """One text or a list of them."""
        value = self._fields.get(field)
        if value is None:
            return []
        found = [value] if isinstance(value, str) else value
        is_good = isinstance(found, list) and all(isinstance(text, str) for text in found)
        if not is_good or len(found) > most:
            raise self.wrong(field, f"a text or a list of at most {most} texts")
        return list(found)

    def object(self, field: str) -> Body | None:
        """An object inside of this one; None where none was sent."""
        value = self._fields.get(field)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(field, "an object")
        return Body(value, f"{self.name_of(field)}.")

    def objects(self, field: str, most: int) -> list[Body]:
        """A list of objects."""
        value = self._fields.get(field)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(field, "a list of objects")
        if len(value) > most:
            raise ApiError(
                400,
                f"{self.name_of(field)} has {len(value)} entries; at most {most} are read",
                field=self.name_of(field),
            )
        name = self.name_of(field)
        return [Body(item, f"{name}[{number}].") for number, item in enumerate(value)]

    def plain(self) -> dict[str, Any]:
        """What was sent, as it is."""
        return self._fields


def tokens_of(body: Body, field: str, n_tokens: int, value: Sequence[Any]) -> list[int]:
    """Numbers of tokens, each of which there is."""
    for token in value:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < n_tokens:
            raise body.wrong(field, f"a list of whole numbers from 0 to {n_tokens - 1}")
    return list(value)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


def _is_deep(value: object) -> bool:
    """Whether lists and objects nest too deeply, found without recursion."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for item in level for inner in _inside(item)]
        if not level:
            return False
    return True


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _kind(value: object) -> str:
    kinds = {list: "list", str: "text", bool: "value", type(None): "null"}
    return kinds.get(type(value), "number")
