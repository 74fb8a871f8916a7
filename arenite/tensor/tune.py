"""`arenite.tune`: how the kernels of a function are best cut on this machine, measured and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arenite.tensor.compile import compile as compile_function

if TYPE_CHECKING:
    from arenite.pipeline.tune import OnProgress
    from arenite.pipeline.tuning import Tuning


def tune(
    function: Callable[..., Any],
    *specs: Any,
    threads: int | None = None,
    sizes: Sequence[Mapping[str, int]] = (),
    seconds: float | None = None,
    on_progress: OnProgress | None = None,
) -> Tuning:
    """Measure other ways to cut the kernels of a function, and keep the best in the cache.

    `function` and `specs` are as for `arenite.compile`; what is compiled from now on is cut so, and
    gives the same results, bit for bit. Returns the table of what was tried. `threads` are those
    measured beside one, `sizes` values of Vars by name (several, where a program is to be quick
    with all of them), `seconds` about how long it may take.
    """
    from arenite.pipeline.tune import tune_graph

    with compile_function(function, *specs) as compiled:
        graph = compiled.executable.graph
    return tune_graph(graph, threads=threads, sizes=sizes, seconds=seconds, on_progress=on_progress)
