"""What a run reports: the error words of its launches as errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arenite.device.webgpu import WORD_NBYTES
from arenite.errors import IndexOutOfRange, RunFailed


def check_errors(data: memoryview, names: Sequence[str]) -> None:
    """Raise for the first launch that has set its word; `names` say where they come from too."""
    words = np.frombuffer(data[: len(names) * WORD_NBYTES], np.uint32)
    if not words.any():
        return
    number = int(np.flatnonzero(words)[0])
    code, name = int(words[number]), names[number]
    if code == IndexOutOfRange.code:
        raise IndexOutOfRange(
            f"an index is outside its axis, in kernel {name}; correct the indices"
        )
    raise RunFailed(f"kernel {name}, failed with code {code}")
