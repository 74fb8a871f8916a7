"""JSON from strangers: what parsing it may take is bounded before it is parsed.

A list of nothing is two characters of a file and 64 bytes of memory, a short text with a key five
characters and 200 bytes: the size of a file alone bounds little. So its values are counted first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from arenite.errors import InvalidFile

Pairs = list[tuple[str, Any]]


def parsed_object(
    raw: bytes | memoryview,
    where: str,
    max_values: int,
    max_keys: int,
    of_pairs: Callable[[Pairs], Any] | None = None,
    of_constant: Callable[[str], Any] | None = None,
) -> dict[str, Any]:
    """The JSON object in UTF-8 bytes, of at most `max_values` values (lists, objects and what is
    in them), `max_keys` of them with keys. `of_pairs` makes what it likes of each object,
    `of_constant` of NaN and Infinity; a ValueError refuses them."""
    try:
        text = str(raw, "utf-8")
        n_values, n_keys = sum(map(text.count, "{[,")), text.count(":")
        if n_values > max_values or n_keys > max_keys:
            raise InvalidFile(
                f"{where} has some {n_values} values and {n_keys} keys; at most {max_values} and "
                f"{max_keys} are read"
            )
        parsed = json.loads(text, object_pairs_hook=of_pairs, parse_constant=of_constant)
    except InvalidFile:
        raise
    except RecursionError:
        raise InvalidFile(f"{where} is not JSON that is read: it nests too deep") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are kinds of it
        raise InvalidFile(f"{where} is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise InvalidFile(f"{where} is no JSON object")
    return parsed
