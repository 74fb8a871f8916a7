"""A Schedule becomes values and steps: what lies in memory, for how long, and what happens when.

In: the kernels, branches and loops of a graph. Out: values with their lifetimes, launches, steps
and cells. One step is one tick. A value lives from its first writer to its last reader; one that a
loop reads or writes but does not make lives over the whole loop.

    carried value   two places P and Q, of which the body reads one and writes the other; the first
                    iteration reads the initial value where it is, and where that dies with the
                    loop, it is Q
    row of a stack  written in place, at row i; the same for rows that are read
    branch          both sides write the bytes of its results; what is made in one side shares bytes
                    with what is made in the other
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from arenite.codegen.kernels.built import Scratch
from arenite.dtype import BY_NAME
from arenite.errors import InvalidGraph
from arenite.ir.dim import Dim, Expr, Floordiv, Found, Positive, bounds, found_in
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.control import is_always, trip_size
from arenite.memory import Lifetime, Value
from arenite.runtime.compiled import ValueSpec, constants_of
from arenite.runtime.steps import NO_CONDITION, ZERO, Cell, Instruction, Step, StepKind
from arenite.runtime.table import Ins
from arenite.schedule import Branch, Cut, Kernel, Loop, Schedule, is_in_memory

INT64 = BY_NAME["int64"]

#: Where values are that live as long as the program.
REGIONS = {"constant": "mapped", "input": "io", "output": "io", "packed": "packed"}

#: Numbers of the values that nodes of one region stand for.
Scope = dict[Node, int]


@dataclass(frozen=True, slots=True)
class LoweredLaunch:
    """A kernel with the numbers of its values."""

    kernel: Kernel
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    scratch: tuple[int, ...]


@dataclass(slots=True)
class Lowered:
    values: list[ValueSpec] = field(default_factory=list)
    load: list[LoweredLaunch] = field(default_factory=list)  # run once, before all else
    launches: list[LoweredLaunch] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    constants: list[NDArray[Any]] = field(default_factory=list)  # made while compiling
    outputs: list[int] = field(default_factory=list)
    lifetimes: list[Value] = field(default_factory=list)
    found: dict[str, int] = field(default_factory=dict)  # cells of sizes found while running
    late: dict[Dim, int] = field(default_factory=dict)  # cells of sizes that depend on these


def lowered(
    graph: Graph,
    schedule: Schedule,
    scratch: Mapping[int, Sequence[Scratch]],
    load: frozenset[int] = frozenset(),
    sizes: Iterable[Dim] = (),
) -> Lowered:
    """The program of a schedule of `graph`; `scratch` is what kernels need, by their number, `load`
    the numbers of those that run once, `sizes` what launches are given."""
    late = dict.fromkeys(size for size in sizes if found_in(size))
    return _Lowering(graph, scratch, load, tuple(late)).run(schedule)


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        scratch: Mapping[int, Sequence[Scratch]],
        load: frozenset[int],
        late: tuple[Dim, ...],
    ) -> None:
        self.made = Lowered()
        self.steps, self.values, self.cells = self.made.steps, self.made.values, self.made.cells
        self._graph = graph
        self._scratch = scratch
        self._load = load
        self._late = late
        self._names: set[str] = set()
        self._constants: Scope = {}
        self._of_graph = {node: k for k, node in enumerate(constants_of(graph))}
        self._addresses: dict[int, int] = {}
        self._sizes: dict[Dim, int] = {}
        self._n_constructs = 0
        self._open_loops: list[int] = []
        self._spans: list[tuple[int, int]] = []  # ticks of LOOP and NEXT
        self._made_in: list[tuple[int, ...]] = []  # for each value the loops around its maker
        self._ticks: list[list[int]] = []  # for each value those it is touched at, first and last
        self._in_loops: list[set[int]] = []  # for each value loops inside which it is touched
        self._takes_over: dict[int, list[int]] = {}
        self._shared: set[int] = set()  # values that two nodes stand for, or a pointer may

    def run(self, schedule: Schedule) -> Lowered:
        scope: Scope = {}
        for k, node in enumerate(schedule.inputs):
            scope[node] = self._value("input", node.attr("name"), node, source=k)
        for k, node in enumerate(schedule.outputs):
            if node not in scope and not is_in_memory(node):
                scope[node] = self._value("output", f"out{k}", node)
        for step in schedule.steps:
            if isinstance(step, Kernel) and step.number in self._load:
                self._kernel(step, scope)
        self._schedule(schedule, scope)
        for size in self._late:
            if size not in self.made.late:
                raise InvalidGraph(f"no cut of the graph says what size {size} is")
        self.made.outputs += [self._number(node, scope) for node in schedule.outputs]
        self.made.lifetimes += self._lifetimes()
        return self.made

    # Values and cells.

    def _value(
        self, kind: str, name: str, like: Node, *, source: int = 0, targets: tuple[int, ...] = ()
    ) -> int:
        return self._add(
            ValueSpec(kind, name, like.shape, like.dtype, like.nbytes, source, targets)
        )

    def _add(self, spec: ValueSpec) -> int:
        name = spec.name
        while name in self._names:
            name += "_"
        self._names.add(name)
        self.values.append(spec if name == spec.name else _named(spec, name))
        self._made_in.append(tuple(self._open_loops))
        self._ticks.append([])
        self._in_loops.append(set())
        return len(self.values) - 1

    def _number(self, node: Node, scope: Scope) -> int:
        if node in scope:
            return scope[node]
        if node not in self._constants:
            if node.op not in ("constant", "buffer"):
                raise InvalidGraph(f"{node!r} is read before it is made")
            source = self._of_graph.get(node)
            if source is None:
                self.made.constants.append(node.attr("data").array)
                source = -len(self.made.constants)
            name = f"constant{len(self.values)}"
            self._constants[node] = self._value("constant", name, node, source=source)
        return self._constants[node]

    def _pointer(self, name: str, like: Node, cell: int, targets: tuple[int, ...]) -> int:
        self._shared.update(targets)
        return self._value("pointer", name, like, source=cell, targets=targets)

    def _cell(self) -> int:
        """A register that instructions fill."""
        self.cells.append(Cell())
        return len(self.cells) - 1

    def _size(self, size: Dim, instructions: list[Instruction]) -> int:
        """The cell with a size; where that is found while running, instructions compute it."""
        return self._computed(size, instructions) if found_in(size) else self._bound(size)

    def _computed(self, size: Dim, instructions: list[Instruction], cell: int | None = None) -> int:
        """A cell that instructions fill with an expression over sizes found while running."""
        if not found_in(size):
            return self._bound(size)
        if isinstance(size, Found) and cell is None:
            return self.made.found[size.name]
        cell = self._cell() if cell is None else cell
        if isinstance(size, Found):
            instructions.append((Ins.MOV, cell, self.made.found[size.name], ZERO))
        elif isinstance(size, Floordiv):
            numerator = self._computed(size.numerator, instructions)
            divisor = self._computed(size.divisor, instructions)
            instructions.append((Ins.DIV, cell, numerator, divisor))
        elif isinstance(size, Positive):
            inner = self._computed(size.inner, instructions)
            instructions.append((Ins.MAX, cell, inner, ZERO))
        else:
            assert isinstance(size, Expr)
            term = self._cell()
            instructions.append((Ins.MOV, cell, ZERO, ZERO))
            for atoms, number in size.terms:
                instructions.append((Ins.MOV, term, self._bound(number), ZERO))
                for atom in atoms:
                    factor = self._computed(atom, instructions)
                    instructions.append((Ins.MUL, term, term, factor))
                instructions.append((Ins.ADD, cell, cell, term))
        return cell

    def _bound(self, size: Dim) -> int:
        if size not in self._sizes:
            self.cells.append(Cell(size=size))
            self._sizes[size] = len(self.cells) - 1
        return self._sizes[size]

    def _address(self, number: int) -> int:
        """The cell with the address of a value."""
        if self.values[number].kind == "pointer":
            return self.values[number].source
        if number not in self._addresses:
            self.cells.append(Cell(address=number))
            self._addresses[number] = len(self.cells) - 1
        return self._addresses[number]

    def _touch(self, *numbers: int) -> None:
        """Values, or what they may point to, are read or written by the step made next."""
        pending = [*numbers]
        tick = self._tick
        while pending:
            number = pending.pop()
            pending += self.values[number].targets
            depth = len(self._made_in[number])
            if len(self._open_loops) > depth:
                self._in_loops[number].add(self._open_loops[depth])
            else:
                self._ticks[number] = [*self._ticks[number][:1], tick]

    @property
    def _tick(self) -> int:
        """The tick of the step made next."""
        return len(self.made.load) + len(self.steps)

    def _eval(self, instructions: Sequence[Instruction]) -> None:
        if instructions:
            self.steps.append(Step(StepKind.EVAL, instructions=tuple(instructions)))

    # Steps.

    def _schedule(self, schedule: Schedule, scope: Scope) -> None:
        for k, step in enumerate(schedule.steps):
            if isinstance(step, Kernel):
                if step.number not in self._load:
                    self._kernel(step, scope)
            elif isinstance(step, Branch):
                self._branch(step, scope)
            elif isinstance(step, Cut):
                self._cut(step, scope)
            else:
                kept = {node for later in schedule.steps[k + 1 :] for node in later.inputs}
                # What belongs to others is theirs to keep.
                self._loop(step, scope, kept | {*schedule.inputs, *schedule.outputs})

    def _kernel(self, kernel: Kernel, scope: Scope) -> None:
        reads = tuple(self._number(node, scope) for node in kernel.inputs)
        fresh = [node for node in kernel.outputs if node not in scope]
        for k, node in enumerate(kernel.outputs):
            if node not in scope:
                kind = "packed" if kernel.number in self._load else "work"
                scope[node] = self._value(kind, f"{kernel.name}.{k}", node)
        writes = tuple(scope[node] for node in kernel.outputs)
        scratch = tuple(
            self._add(
                ValueSpec(
                    "work", f"{kernel.name}.scratch{k}", (need.count,), need.dtype, need.nbytes
                )
            )
            for k, need in enumerate(self._scratch[kernel.number])
        )
        for output, read in kernel.in_place:
            mine, theirs = scope[output], self._number(read, scope)
            same_loop = self._made_in[mine] == self._made_in[theirs]
            if output in fresh and self.values[theirs].kind == "work" and same_loop:
                self._takes_over.setdefault(mine, []).append(theirs)
        self._touch(*reads, *writes, *scratch)
        launch = LoweredLaunch(kernel, reads, writes, scratch)
        if kernel.number in self._load:
            self.made.load.append(launch)
        else:
            self.steps.append(Step(StepKind.LAUNCH, len(self.made.launches)))
            self.made.launches.append(launch)

    def _branch(self, branch: Branch, scope: Scope) -> None:
        name = self._construct("branch")
        condition = self._number(branch.condition, scope)
        for index, node in branch.outputs:
            if node not in scope:
                scope[node] = self._value("work", f"{name}.{index}", node)
        holds = self._cell()
        self._touch(condition)
        self._eval([(Ins.LOAD8, holds, self._address(condition), ZERO)])
        self.steps.append(Step(StepKind.IF, holds))
        for side in (branch.then, branch.otherwise):
            inner = self._given(side.inputs, branch.captures, scope)
            inner |= {side.outputs[index]: scope[node] for index, node in branch.outputs}
            self._schedule(side, inner)
            kind = StepKind.ELSE if side is branch.then else StepKind.END
            self.steps.append(Step(kind))

    def _cut(self, cut: Cut, scope: Scope) -> None:
        """The size is loaded, and what launches need of it computed; the rows stay where they
        are."""
        source, count = (self._number(node, scope) for node in cut.inputs)
        name = cut.size.name
        cell = self.made.found.setdefault(name, -1)
        if cell < 0:
            cell = self.made.found[name] = self._cell()
        self._touch(count)
        instructions: list[Instruction] = [(Ins.LOAD64, cell, self._address(count), ZERO)]
        limit = self._size(cut.source.shape[0], instructions)
        instructions += [(Ins.MIN, cell, cell, limit), (Ins.MAX, cell, cell, ZERO)]
        for size in self._late:
            names = {var.name for var in found_in(size)}
            if name in names and names <= self.made.found.keys():
                known = self.made.late.get(size)
                known = self._cell() if known is None else known
                self.made.late[size] = self._computed(size, instructions, known)
        self._eval(instructions)
        pointer = self._pointer(name, cut.output, self._address(source), (source,))
        scope[cut.output] = pointer

    def _given(self, parameters: Sequence[Node], values: Sequence[Node], scope: Scope) -> Scope:
        return {
            one: self._number(value, scope) for one, value in zip(parameters, values, strict=True)
        }

    def _construct(self, kind: str) -> str:
        self._n_constructs += 1
        return f"{kind}{self._n_constructs}"

    def _loop(self, loop: Loop, scope: Scope, kept: set[Node]) -> None:
        name = self._construct("loop")
        parts = loop.parts
        inner = self._given(parts.captured, parts.captures, scope)
        before: list[Instruction] = []
        at_start: list[Instruction] = []
        at_end: list[Instruction] = []
        for index, node in loop.outputs:
            if index >= len(parts.initial) and node not in scope:
                scope[node] = self._value("work", f"{name}.{index}", node)
        rows_of = [node for index, node in loop.outputs if index >= len(parts.initial)]
        for kernel, node in zip(loop.zeros, rows_of, strict=bool(loop.zeros)):
            self._kernel(kernel, {kernel.outputs[0]: scope[node]})
        counter = self._cell()
        trips = self._trips(loop, scope, before)
        condition = self._condition(loop, scope, before)
        for j in range(len(parts.initial)):
            self._carried(f"{name}.{j}", loop, j, (scope, inner), kept, (before, at_end))
        for row, node in zip(loop.rows, rows_of, strict=True):
            made = parts.rows[row]
            inner[made] = self._row(f"{name}.row{row}", made, scope[node], counter, at_start)
        for k, (window, captured) in enumerate(loop.windows):
            number = inner[captured]
            inner[window] = self._row(f"{name}.in{k}", window, number, counter, at_start)
        self._eval(before)
        loop_number = len(self._spans)
        self._spans.append((self._tick, 0))
        self.steps.append(Step(StepKind.LOOP, counter, trips, condition))
        self._open_loops.append(loop_number)
        if any(parts.iteration in step.inputs for step in loop.body.steps):
            slot = self._value("work", f"{name}.i", parts.iteration)
            inner[parts.iteration] = slot
            self._touch(slot)
            at_start.append((Ins.STORE64, ZERO, self._address(slot), counter))
        self._eval(at_start)
        self._schedule(loop.body, inner)
        if not is_always(parts.goes_on):
            goes_on = self._number(parts.goes_on, inner)
            self._touch(goes_on)
            at_end.insert(0, (Ins.LOAD8, condition, self._address(goes_on), ZERO))
        self._eval(at_end)
        self._open_loops.pop()
        self._spans[loop_number] = (self._spans[loop_number][0], self._tick)
        self.steps.append(Step(StepKind.NEXT))

    def _trips(self, loop: Loop, scope: Scope, before: list[Instruction]) -> int:
        """The cell with the trip count."""
        size = trip_size(loop.parts.trips)
        if size is not None:
            return self._size(size, before)
        cell, number = self._cell(), self._number(loop.parts.trips, scope)
        self._touch(number)
        before.append((Ins.LOAD64, cell, self._address(number), ZERO))
        return cell

    def _condition(self, loop: Loop, scope: Scope, before: list[Instruction]) -> int:
        """The cell with the condition, if there is one."""
        if not loop.has_condition:
            return NO_CONDITION
        cell = self._cell()
        if is_always(loop.parts.condition):
            before.append((Ins.MOV, cell, self._bound(1), ZERO))
        else:
            number = self._number(loop.parts.condition, scope)
            self._touch(number)
            before.append((Ins.LOAD8, cell, self._address(number), ZERO))
        return cell

    def _carried(
        self,
        name: str,
        loop: Loop,
        j: int,
        scopes: tuple[Scope, Scope],
        kept: set[Node],
        instructions: tuple[list[Instruction], list[Instruction]],
    ) -> None:
        """Places and pointers of a carried value; `kept` are nodes whose values stay."""
        (scope, inner), (before, at_end) = scopes, instructions
        parts = loop.parts
        initial, one, following = parts.initial[j], parts.carried[j], parts.following[j]
        result = next((node for index, node in loop.outputs if index == j), None)
        start = self._number(initial, scope)
        if following is one:
            inner[one] = start
            if result is not None:
                scope[result] = start
                self._shared.add(start)
            return
        p = self._value("work", f"{name}.p", one)
        dies = (
            self.values[start].kind == "work"
            and self._made_in[start] == tuple(self._open_loops)
            and initial not in kept
            and start not in self._shared
            and loop.inputs.count(initial) == 1
        )
        q = start if dies else self._value("work", f"{name}.q", one)
        current, upcoming, both = self._cell(), self._cell(), self._cell()
        inner[one] = self._pointer(f"{name}.now", one, current, (start, p, q))
        inner[following] = self._pointer(f"{name}.next", one, upcoming, (p, q))
        if result is not None:
            scope[result] = inner[one]
        before += [
            (Ins.MOV, current, self._address(start), ZERO),
            (Ins.MOV, upcoming, self._address(p), ZERO),
            (Ins.ADD, both, self._address(p), self._address(q)),
        ]
        at_end += [
            (Ins.MOV, current, upcoming, ZERO),
            (Ins.SUB, upcoming, both, upcoming),
        ]

    def _row(
        self, name: str, like: Node, whole: int, counter: int, at_start: list[Instruction]
    ) -> int:
        """A pointer to row `counter` of a value."""
        cell = self._cell()
        nbytes = self._size(like.nbytes, at_start)
        at_start += [
            (Ins.MUL, cell, counter, nbytes),
            (Ins.ADD, cell, cell, self._address(whole)),
        ]
        return self._pointer(name, like, cell, (whole,))

    # Lifetimes.

    def _lifetimes(self) -> list[Value]:
        """Values with the ticks they live; sizes at their largest."""
        end = max(1, self._tick)
        found = []
        for number, spec in enumerate(self.values):
            nbytes = bounds(spec.nbytes)[1]
            if spec.kind == "pointer":
                continue
            if spec.kind != "work":
                region = REGIONS[spec.kind]
                found.append(Value(spec.name, nbytes, Lifetime(0, end), region=region))
                continue
            ticks = [*self._ticks[number]]
            for loop in self._in_loops[number]:
                ticks += self._spans[loop]
            span = Lifetime(min(ticks), max(ticks) + 1)
            takes_over = tuple(self.values[k].name for k in self._takes_over.get(number, ()))
            found.append(Value(spec.name, nbytes, span, takes_over=takes_over))
        return found


def _named(spec: ValueSpec, name: str) -> ValueSpec:
    return ValueSpec(
        spec.kind, name, spec.shape, spec.dtype, spec.nbytes, spec.source, spec.targets
    )
