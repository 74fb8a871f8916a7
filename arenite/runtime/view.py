"""A compiled program as a page: its plan over time, what passes changed, kernels with their code,
who waits for whom, and a profiled run over time.

In: the programs that are one to a user, and a trace. Out: HTML in one piece. All becomes plain data
here, in texts of bounded length; the components of `show/` draw it, each when it is looked at
first.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arenite.errors import AreniteError
from arenite.ir.dim import Dim, bounds
from arenite.ir.graph import topological
from arenite.memory.page import STYLES as PLAN_STYLES
from arenite.memory.page import page_data, shown_name
from arenite.memory.plan import HOST
from arenite.passes.changes import Change, changes
from arenite.program.backend import backend_of
from arenite.program.conflicts import Wait, waits_of
from arenite.program.program_json import NAME, nameless
from arenite.runtime.trace import Trace
from arenite.schedule import Kernel, fuse
from arenite.show import document, read_part

if TYPE_CHECKING:
    from arenite.ir.graph import Graph
    from arenite.ir.node import Origin
    from arenite.program.cached_kernel import CachedKernel
    from arenite.runtime.executable import Executable
    from arenite.runtime.profile import Profile

#: Bytes of all texts of kernels, as they are packed: what is over is left out, and told.
MAX_TEXT_NBYTES = 4 * 2**20
#: Lines of differences, over all passes, and letters of a line.
MAX_LINES, MAX_LETTERS = 2000, 300
#: Nodes, origins and conflicts of one row.
MAX_NODES, MAX_ORIGINS, MAX_CONFLICTS = 40, 8, 12
STYLES = (*PLAN_STYLES, "viewer.css")
SCRIPTS = (
    *("elements.js", "scales.js", "box_map.js", "strip.js", "stepper.js", "memory.js"),
    *("passes.js", "kernels.js", "hazards.js", "timeline.js", "viewer.js"),
)


def program_page(
    programs: Mapping[str, Executable], title: str = "", trace: Trace | None = None
) -> str:
    """The page of programs by name (of one, the name is nothing) and of a run that was timed."""
    data = view_data(programs, title, trace)
    return document(data["title"], data, map(read_part, STYLES), map(read_part, SCRIPTS))


def save_page(
    path: str | PathLike[str],
    programs: Mapping[str, Executable],
    title: str,
    profile: Profile | None,
) -> None:
    """Write the page of programs, and of a profile of theirs, to a file."""
    trace = None if profile is None else Trace.of(profile)
    text = program_page(programs, title, trace)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def view_data(
    programs: Mapping[str, Executable], title: str = "", trace: Trace | None = None
) -> dict[str, Any]:
    """What the page shows, in plain data."""
    texts = _Texts()
    return {
        "title": shown_name(title) or "A program",
        "facts": _facts(list(programs.values()), trace),
        "programs": [_program(name, one, texts) for name, one in programs.items()],
        "texts": texts.packed,
        "nameMark": NAME,
        "trace": None if trace is None else _trace(trace),
    }


def _facts(programs: Sequence[Executable], trace: Trace | None) -> list[list[str]]:
    """What is told at the top, in pairs of a name and an amount."""
    facts = []
    if trace is not None:
        facts.append(["a run", _readable_micros(trace.wall_micros)])
    if programs:
        launches = sum(len(one.kernels) for one in programs)
        at_load = sum(len(one.load_kernels) for one in programs)
        run = "a run" if len(programs) == 1 else f"in {len(programs)} segments"
        facts += [
            ["launches", f"{launches:,} {run}, {at_load:,} at load"],
            ["device", ", ".join(sorted({one.device for one in programs}))],
        ]
        if any(backend_of(one.device).memory == HOST for one in programs):
            facts.append(["threads", str(programs[0].threads)])
    return facts


def _readable_micros(micros: float) -> str:
    return f"{micros / 1000:,.2f} ms" if micros >= 1000 else f"{micros:.1f} µs"


class _Texts:
    """Long texts, each once and packed, as long as there is room."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._left = MAX_TEXT_NBYTES

    def number(self, packed: bytes) -> int | None:
        """Of a text that zlib has compressed; None where there is no room for it."""
        if packed not in self._numbers:
            if len(packed) > self._left:
                return None
            self._left -= len(packed)
            self._numbers[packed] = len(self.packed)
            self.packed.append(base64.b64encode(packed).decode())
        return self._numbers[packed]


def _program(name: str, program: Executable, texts: _Texts) -> dict[str, Any]:
    compiled = program.compiled
    fused = {kernel.name: kernel for kernel in program.schedule.kernels}
    plan = page_data(program.plan)
    rows = {slot: row for row, slot in enumerate(program.plan.slots)}
    row_of = [rows.get(value.name) for value in compiled.values]
    kernels = [
        *((one, program.load_kernels.named_reads(one), True) for one in program.load_kernels),
        *((one, program.kernels.named_reads(one), False) for one in program.kernels),
    ]
    shown = {
        id(kernel): _kernel(kernel, reads, at_load, fused.get(kernel.entry_point), texts)
        # Those with the most work first: there may not be room for the texts of all.
        for kernel, reads, at_load in sorted(kernels, key=lambda row: -_largest(row[0].operations))
    }
    return {
        "name": shown_name(name),
        "plan": plan,
        "passes": _passes(program),
        "kernels": [shown[id(kernel)] for kernel, _, _ in kernels],
        "hazards": _hazards(program, row_of),
    }


def _kernel(
    kernel: CachedKernel,
    reads: Iterable[str],
    at_load: bool,
    fused: Kernel | None,
    texts: _Texts,
) -> dict[str, Any]:
    nodes = [] if fused is None else _fused(fused)
    return {
        "name": shown_name(kernel.entry_point),
        "atLoad": at_load,
        "reads": _largest(kernel.reads_nbytes),
        "writes": _largest(kernel.writes_nbytes),
        "operations": _largest(kernel.operations),
        "tiles": shown_name(kernel.global_size[0]),
        "group": [] if kernel.local_size is None else list(map(shown_name, kernel.local_size)),
        "border": shown_name(kernel.border),
        "origins": [shown_name(_place(one)) for one in kernel.origins[:MAX_ORIGINS]],
        "varies": not all(
            isinstance(one, int)
            for one in (kernel.reads_nbytes, kernel.writes_nbytes, kernel.operations)
        ),
        "readsOf": [shown_name(one) for one in list(reads)[:MAX_ORIGINS]],
        "space": "" if fused is None else shown_name(_space(fused)),
        "nodes": nodes[:MAX_NODES],
        "nNodes": len(nodes),
        "loops": texts.number(zlib.compress(nameless(kernel).encode(), 6)),
        "source": texts.number(kernel.module.packed),
    }


def _fused(kernel: Kernel) -> list[tuple[str, str, str]]:
    """The nodes that are computed in it: op, what it is there, type. Those that are no stage are
    computed where others read them."""
    roles = {stage.node: stage.role.value for stage in kernel.stages}
    nodes = topological([*roles, *kernel.outputs], stop=kernel.inputs)
    return [
        (shown_name(one.op), roles.get(one, "inside"), shown_name(one.type_text)) for one in nodes
    ]


def _space(kernel: Kernel) -> str:
    """The iteration space: sizes that are reduced have a mark."""
    return " x ".join(
        f"{size} (reduced)" if k in kernel.axes else str(size)
        for k, size in enumerate(kernel.space)
    )


def _largest(amount: Dim) -> int:
    """With sizes at their largest, as in the plan."""
    return bounds(amount)[1]


def _place(origin: Origin) -> str:
    """The node of a model file, or the line of a source."""
    if origin.name:
        return origin.name
    return f"{Path(origin.file).name}:{origin.line}"


def _passes(program: Executable) -> dict[str, Any]:
    graph, records = program.graph, program.passes
    files = {
        origin.file for node in graph.nodes for origin in graph.origins.of(node) if origin.name
    }
    found, left = [], MAX_LINES
    last: Graph | None = None
    for record, change in zip(records, changes(graph, records), strict=True):
        n_kernels = None
        if record.graph is not last and change.hunks:
            n_kernels = _n_kernels(record.graph)
        last = record.graph
        row, n_lines = _pass(change, files, left)
        left -= n_lines
        found.append(row | {"kernels": n_kernels})
    return {"nodes": len(graph), "kernels": _n_kernels(graph), "passes": found}


def _n_kernels(graph: Graph) -> int | None:
    """Kernels that a graph would become; None where it has ops that only later passes take away."""
    try:
        return len(fuse(graph).kernels)
    except AreniteError:
        return None


def _pass(change: Change, files: Iterable[str], left: int) -> tuple[dict[str, Any], int]:
    """Its row, and how many lines that has."""
    hunks: list[tuple[int, int, list[list[str]]]] = []
    n_lines = 0
    for hunk in change.hunks:
        lines = hunk.lines[: max(left - n_lines, 0)]
        if lines:
            n_lines += len(lines)
            shown = [[line.sign, _line(line.text, files)] for line in lines]
            hunks.append((hunk.before, hunk.after, shown))
    row = {
        "name": shown_name(change.name),
        "seconds": change.seconds,
        "nodes": change.n_nodes,
        "ops": [[shown_name(op), *counts] for op, counts in change.ops.items()],
        "lines": change.n_lines,
        "shown": sum(sign != " " for _, _, lines in hunks for sign, _ in lines),
        "hunks": hunks,
    }
    return row, n_lines


def _line(text: str, files: Iterable[str]) -> str:
    """A line of a printed graph, without the file that all nodes of a model are from."""
    for file in files:
        text = text.replace(f"{file} ", "")
    return shown_name(text)


def _hazards(program: Executable, row_of: Sequence[int | None]) -> dict[str, Any]:
    compiled, skeleton = program.compiled, program.compiled.frame.skeleton
    is_shared = skeleton.is_shared.tolist()
    is_in_order = backend_of(program.device).runs_in_order

    def wait(one: Wait) -> list[Any]:
        has_flag = not is_in_order or is_shared[one.before] or is_shared[one.after]
        conflicts = [
            [c.kind.name, row_of[int(c.before)], row_of[int(c.after)], c.storage_id, c.start, c.end]
            for c in one.conflicts[:MAX_CONFLICTS]
        ]
        return [one.before, one.after, has_flag, one.is_reuse, len(one.conflicts), conflicts]

    return {
        "launches": [shown_name(launch.name) for launch in compiled.launches],
        "blocks": skeleton.blocks.reshape(-1, 2).tolist(),
        "shared": is_shared,
        "waits": [wait(one) for one in waits_of(compiled, program.places)],
    }


def _trace(trace: Trace) -> dict[str, Any]:
    return {
        "lanes": [shown_name(lane) for lane in trace.lanes],
        "names": [shown_name(name) for name in trace.names],
        "bars": [
            [
                bar.lane,
                bar.name,
                *(round(at, 3) for at in (bar.start, bar.end, bar.busy)),
                bar.n_tiles,
            ]
            for bar in trace.bars
        ],
        "leftOut": trace.n_left_out,
        "about": shown_name(trace.about),
        "kernels": [
            {
                "name": shown_name(one.name),
                "seconds": one.seconds,
                "share": one.share,
                "runs": one.n_runs,
                "tiles": one.n_tiles,
                "gops": one.gops,
                "gbytes": one.gbytes,
                "limitShare": one.limit_share,
                "bound": shown_name(one.bound),
                "origin": shown_name(one.origin),
            }
            for one in trace.kernels
        ],
    }
