"""The one way from a lazy tensor to numbers: through the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from arenite.ir.node import Node


def realize(nodes: Sequence[Node]) -> list[NDArray[Any]]:
    """Compile and run what the nodes stand for; one array each. Loaded late: a tensor that is
    only traced needs no compiler."""
    from arenite import pipeline

    return pipeline.realize(nodes)
