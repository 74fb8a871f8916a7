"""Options: all that decides about a program beside its graph; and amounts of memory as people write
them."""

from __future__ import annotations

import re
from numbers import Integral

from arenite.errors import InvalidArgument
from arenite.memory.plan import MEMORY
from arenite.records import NamedTuple

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?)(?:i?b)?\s*"


class Options(NamedTuple):
    """`memory` is the most bytes a program may take in all, inputs and outputs among them; `plan`
    what its plan is made for, "memory" or "concurrency"; `winograd` whether convolutions may be
    done by that method; `device` what it runs on. With `same_sums` a row of a product is added up
    in the same order whatever the number of rows. With `fixed_places` values lie where the plan for
    the largest sizes has them, so that other sizes are bound in no time."""

    memory: int | None = None
    plan: str = MEMORY
    winograd: bool = True
    device: str = "cpu"
    same_sums: bool = False
    fixed_places: bool = False


#: Nothing was asked for.
USUAL = Options()


def parse_nbytes(text: int | str | None) -> int | None:
    """Bytes from a number or a text such as "300MiB"; KB and KiB are both 1024 bytes."""
    if text is None:
        return None
    if isinstance(text, Integral) and not isinstance(text, bool) and text >= 0:
        return int(text)
    match = re.fullmatch(_SIZE, text, re.IGNORECASE) if isinstance(text, str) else None
    if match is None:
        raise InvalidArgument(
            f"{text!r} is no size in bytes; write 300MiB, 2GiB or a number from 0"
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])
