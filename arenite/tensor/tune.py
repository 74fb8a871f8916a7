"""`arenite.tune`: how the kernels of a program are best cut on this machine, measured and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arenite.errors import InvalidArgument
from arenite.pipeline.segmented import SegmentedExecutable
from arenite.program.options import Options
from arenite.runtime.executable import Executable
from arenite.tensor.compile import compile as compile_function

if TYPE_CHECKING:
    from arenite.pipeline.tune import OnProgress
    from arenite.pipeline.tuning import Tuning


def tune(
    what: Any,
    *specs: Any,
    threads: int | None = None,
    sizes: Sequence[Mapping[str, int]] = (),
    seconds: float | None = None,
    winograd: bool = True,
    on_progress: OnProgress | None = None,
) -> Tuning:
    """Measure other ways to cut the kernels of a program, and keep the best in the cache.

    `what` is a function, with specs as for `arenite.compile`, or something that was compiled: what
    that returns, what `compile` of an ONNX model returns, or a language model. What is compiled
    from now on is cut so, and gives the same results, bit for bit. Returns the table of what was
    tried.

    `threads` are those measured beside one, `sizes` values of Vars by name (several, where a
    program is to be quick with all of them), `seconds` about how long it may take, `winograd` as
    for `arenite.compile`. Of a program in segments those are tuned that are compiled: before its
    first call, the ones that need no size to be found.
    """
    from arenite.pipeline.tune import tune_graph
    from arenite.pipeline.tuning import joined

    compiled = getattr(what, "executable", what)
    if not isinstance(compiled, Executable | SegmentedExecutable):
        with compile_function(what, *specs, winograd=winograd) as made:
            return tune(
                made,
                threads=threads,
                sizes=sizes,
                seconds=seconds,
                winograd=winograd,
                on_progress=on_progress,
            )
    if specs:
        raise InvalidArgument(f"{what!r} is compiled and takes no specs")

    def tuned(program: Executable, left: float | None) -> Tuning:
        return tune_graph(
            program.graph,
            Options(winograd=winograd, device=program.device),
            threads=threads,
            sizes=sizes,
            seconds=left,
            on_progress=on_progress,
        )

    if isinstance(compiled, Executable):
        return tuned(compiled, seconds)
    # A segment may be compiled for several sizes; the last are the largest.
    programs = {one.segment.number: one.executable for one in compiled.segments}
    tables: dict[int, Tuning] = {}
    for number, program in programs.items():
        spent = sum(one.spent_seconds for one in tables.values())
        tables[number] = tuned(program, None if seconds is None else max(0.0, seconds - spent))
    return joined(tables)
