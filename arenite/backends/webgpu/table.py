"""The launches of a program as a table that is bound once: pipelines, what they bind, parameters.

In: launches with the places of their arrays. Out: rows to record. Where an array begins, sizes and
numbers of tiles are parameters, in one uniform buffer: a run with other sizes, or on another set of
states, writes them anew, and makes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arenite.backends.webgpu.compile import pipelines_of
from arenite.backends.webgpu.dispatch import (
    Bound,
    Dispatch,
    bind,
    bound_shaders,
    check_groups,
    new_buffer,
)
from arenite.backends.webgpu.shader import Shader
from arenite.backends.webgpu.siblings import can_be_joined, joined
from arenite.device.webgpu import WORD_NBYTES, WebGpuAllocator
from arenite.ir.dim import Dim, bounds, evaluate, variables

#: A row as native code reads it: handles of wgpu-native, and groups along two axes.
ROW = np.dtype([("pipeline", np.uint64), ("group", np.uint64), ("x", np.int64), ("y", np.int64)])


class _Choice(NamedTuple):
    """Which launches are one dispatch, and what is bound for each."""

    runs: list[range]  # rows of one dispatch each
    leaders: NDArray[np.int64]  # the first row of each row's dispatch
    pipelines: NDArray[np.uint64]  # of each launch, and of what follows it
    groups: NDArray[np.uint64]


class DispatchTable:
    """`rows[k]` is launch k: a dispatch, and one that follows it; one without work has no groups,
    as the second where nothing follows."""

    def __init__(
        self,
        device: WebGpuAllocator,
        launches: Sequence[Bound],
        sizes: Sequence[Sequence[Dim]],
        tiles: Sequence[Dim],
        errors: Any,
        sets: Sequence[range] = (),
    ) -> None:
        """`launches` are bound to places alone: `sizes` and `tiles` are those of each. `sets` are
        rows that wait for none of each other, and may be one dispatch."""
        self._device = device
        self._most = device.limits.groups
        self._regions = [frozenset(region for region, _ in one.places) for one in launches]
        for one, count in zip(launches, tiles, strict=True):
            check_groups(device, one.name, bounds(count)[1])
        alignment = max(device.limits.uniform_alignment, 16)
        widest = max((one.shader.n_parameters for one in launches), default=1) * WORD_NBYTES
        self._stride = -(-widest // alignment) * alignment
        self._words = np.zeros((len(launches), self._stride // WORD_NBYTES), np.int32)
        self._dims: list[Dim] = []
        self._fill(launches, sizes, tiles)
        self._known: dict[str, int] = {}
        self._is_sized = False
        self._parameters = new_buffer(device, max(self._words.nbytes, 16), "UNIFORM COPY_DST")
        self._is_written = False
        self._launches, self._errors = launches, errors
        self._bound: dict[tuple[range, tuple[int, ...]], Dispatch] = {}  # by rows and shaders
        #: What decides about shaders: sizes that are no more than a number, or are.
        self._thresholds = list(
            dict.fromkeys(
                (sizes[row][size], most)
                for row, one in enumerate(launches)
                for shader in one.shader.every()
                for size, most, _ in shader.smaller
            )
        )
        self._is_below: list[bool] = []  # of each threshold, in the sizes bound last
        self._sets = sets
        self._runs: list[range] = []
        self._leaders = np.arange(len(launches))
        self._choices: dict[tuple[int, ...], _Choice] = {}
        self.is_joined = True
        self.rows = np.zeros((len(launches), 2), ROW)

    @property
    def dispatches(self) -> list[Dispatch]:
        """As they are bound now."""
        runs = sorted(self._runs, key=lambda run: run.start)
        return [self._dispatch(run, tuple(map(self._shader, run))) for run in runs]

    def _choose(self) -> None:
        """Put into rows the pipelines for the sizes that are bound, launches joined where they can
        be. A prompt and what follows it take turns: each is looked for once."""
        shaders = [self._shader(row) for row in range(len(self._launches))]
        key = (self.is_joined, *map(id, shaders))
        if key not in self._choices:
            self._choices[key] = self._choice(shaders)
        self._runs, self._leaders, pipelines, groups = self._choices[key]
        self.rows["pipeline"], self.rows["group"] = pipelines, groups[:, None]

    def _choice(self, shaders: Sequence[Shader]) -> _Choice:
        runs: list[range] = []
        for rows in self._sets if self.is_joined else ():
            runs += self._joinable(rows, shaders)
        covered = {row for run in runs for row in run}
        runs += [range(row, row + 1) for row in range(len(shaders)) if row not in covered]
        shaders_of = {run: tuple(shaders[row] for row in run) for run in runs}
        new = [one for one in shaders_of.items() if _key(*one) not in self._bound]
        made = (bound_shaders(self._joined(*one)) for one in new)
        pipelines_of(self._device, [one for some in made for one in some])
        pipelines = np.zeros(self.rows.shape, np.uint64)
        groups, leaders = np.zeros(len(shaders), np.uint64), np.arange(len(shaders))
        for run, own in shaders_of.items():
            chosen = self._dispatch(run, own)
            for k, pipeline in enumerate(chosen.pipelines):
                pipelines[run.start, k] = handle(pipeline)
            groups[run.start] = handle(chosen.bind_group)
            leaders[run.start : run.stop] = run.start
        return _Choice(runs, leaders, pipelines, groups)

    def _joinable(self, rows: range, shaders: Sequence[Shader]) -> Iterator[range]:
        """A set of rows as runs that are joined."""
        first = rows.start
        for end in rows[1:]:
            given = [shaders[row] for row in range(first, end + 1)]
            if not can_be_joined(given, self._device.limits.shared_nbytes):
                yield range(first, end)
                first = end
        yield range(first, rows.stop)

    def _shader(self, row: int) -> Shader:
        one = self._launches[row]
        if not one.shader.smaller:
            return one.shader
        first = len(one.places)
        sizes: list[int] = self._words[row, first : first + one.shader.n_sizes].tolist()
        return one.shader.of_sizes(sizes)

    def _joined(self, rows: range, shaders: tuple[Shader, ...]) -> Bound:
        """Launches as one."""
        launches = [self._launches[row] for row in rows]
        return replace(
            launches[0],
            name=", ".join(launch.name for launch in launches),
            shader=shaders[0] if len(rows) == 1 else joined(shaders, self._words.shape[1]),
            places=[place for launch in launches for place in launch.places],
            tiles=int(self._tiles[rows.start : rows.stop].sum()),
        )

    def _dispatch(self, rows: range, shaders: tuple[Shader, ...]) -> Dispatch:
        key = _key(rows, shaders)
        if key not in self._bound:
            one = self._joined(rows, shaders)
            parameters = (self._parameters, rows.start * self._stride, len(rows) * self._stride)
            with self._device.failures("bind launches"):
                self._bound[key] = bind(self._device, one, self._errors, parameters)
        return self._bound[key]

    def _fill(
        self,
        launches: Sequence[Bound],
        sizes: Sequence[Sequence[Dim]],
        tiles: Sequence[Dim],
    ) -> None:
        """Parameters that stay; which others are which of `_dims`."""
        numbers: dict[Dim, int] = {}
        cells: list[tuple[int, int, int]] = []  # row, column, number of the size
        self._tiles = np.zeros(len(launches), np.int64)
        late: list[tuple[int, int]] = []  # row, number of its tiles
        for row, one in enumerate(launches):
            given: list[Dim] = [*sizes[row], tiles[row]]
            first = len(one.places)
            for column, size in enumerate(given, first):
                if isinstance(size, int):
                    self._words[row, column] = size
                else:
                    cells.append((row, column, numbers.setdefault(size, len(numbers))))
            count = tiles[row]
            if isinstance(count, int):
                self._tiles[row] = count
            else:
                late.append((row, numbers[count]))
            self._words[row, first + len(given)] = one.number
            self.place(row, [at for _, at in one.places])
        self._dims = list(numbers)
        self._names = [frozenset(var.name for var in variables(size)) for size in self._dims]
        self._values = np.zeros(len(self._dims), np.int64)
        self._cells = np.array(cells, np.int64).reshape(-1, 3).T
        self._late = np.array(late, np.int64).reshape(-1, 2).T

    @property
    def n_dispatches(self) -> int:
        """Those with work, in the sizes bound last."""
        return int(np.count_nonzero(self.rows["x"]))

    @property
    def n_barriers(self) -> int:
        """Dispatches that wait for those before: wgpu lets them where they bind a buffer that was
        bound to be written to, or write to one that was bound."""
        written: set[str] = set()
        used: set[str] = set()
        count = 0
        for k in np.nonzero(self.rows["x"])[0]:
            regions = [
                region
                for row in np.flatnonzero(self._leaders == k)
                for region in self._regions[row]
            ]
            own = {region.name for region in regions if not region.read_only}
            read = {region.name for region in regions}
            count += not (own.isdisjoint(used) and read.isdisjoint(written))
            written |= own
            used |= read
        return count

    def place(self, row: int, words: Sequence[int]) -> None:
        """Where the arrays of a launch begin."""
        self._words[row, : len(words)] = words
        self._is_written = False

    def join(self, is_joined: bool) -> None:
        """Whether launches may be one dispatch from now on."""
        if is_joined != self.is_joined:
            self.is_joined = is_joined
            self._choose()
            self._count_groups()

    def _count_groups(self) -> None:
        """Groups of each dispatch, along two axes, since one has a limit."""
        tiles = np.zeros(len(self.rows), np.int64)
        np.add.at(tiles, self._leaders, self._tiles)
        x = np.minimum(tiles, self._most)
        self.rows["x"] = np.where(self.rows["pipeline"] != 0, x[:, None], 0)
        self.rows["y"] = np.where(tiles > self._most, -(-tiles // self._most), 1)[:, None]

    def resize(self, sizes: Mapping[str, int]) -> None:
        """Bind these sizes: rows are for these, and parameters once they are written."""
        known = self._known
        changed = {name for name, size in sizes.items() if known.get(name) != size}
        if changed or not self._is_sized:
            self._is_sized = True
            for k, names in enumerate(self._names):
                if not names.isdisjoint(changed):
                    self._values[k] = evaluate(self._dims[k], sizes)
            rows, columns, which = self._cells
            self._words[rows, columns] = self._values[which]
            rows, which = self._late
            tiles = self._values[which]
            is_below = [evaluate(size, sizes) <= most for size, most in self._thresholds]
            is_new = not self._runs or is_below != self._is_below
            self._is_below = is_below
            if is_new or not np.array_equal(self._tiles[rows], tiles):
                self._tiles[rows] = tiles
                if is_new:
                    self._choose()
                self._count_groups()
            self._known = dict(sizes)
            self._is_written = self._is_written and not changed

    def write(self) -> None:
        """Put the parameters on the device, ahead of what is submitted next."""
        if not self._is_written and len(self._words):
            # In order with the queue: launches that were submitted before keep theirs.
            self._device.device.queue.write_buffer(self._parameters, 0, self._words)
            self._is_written = True


def _key(rows: range, shaders: tuple[Shader, ...]) -> tuple[range, tuple[int, ...]]:
    return rows, tuple(map(id, shaders))


def handle(wrapped: Any) -> int:
    """The address of an object of wgpu-native."""
    from wgpu.backends.wgpu_native import ffi

    return int(ffi.cast("uintptr_t", wrapped._internal))
