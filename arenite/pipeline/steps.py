"""A Schedule becomes values and steps: what lies in memory, for how long, and what happens when.

In: the kernels, branches and loops of a graph. Out: values with their lifetimes, launches, steps
and cells. One step is one tick.

    carried value   two places P and Q, of which the body reads one and writes the other; the first
                    iteration reads the initial value where it is, and where that dies with the
                    loop, it is Q. One place, where each element is read last when it is written
    row of a stack  written in place, at row i; the same for rows that are read
    branch          both sides write the bytes of its results; what is made in one side shares bytes
                    with what is made in the other
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from arenite.codegen.kernels.built import Scratch
from arenite.errors import InvalidGraph
from arenite.ir import Dim, Graph, Node
from arenite.ir.dim import found_in
from arenite.ir.ops.control import is_always, trip_size
from arenite.memory import Value
from arenite.pipeline.values import Book, Scope
from arenite.program.compiled import functions_of
from arenite.program.launch import Launch
from arenite.program.steps import NO_CONDITION, ZERO, HostSpec, Instruction, Step, StepKind
from arenite.program.table import Ins
from arenite.program.value_spec import ValueSpec
from arenite.schedule import Branch, Cut, HostCall, Kernel, Loop, Schedule, is_in_memory

if TYPE_CHECKING:
    from arenite.pipeline.windows import Windows


#: The launch of a kernel with these values: those it reads, writes and has as scratch.
Record: TypeAlias = Callable[[Kernel, tuple[int, ...], tuple[int, ...], tuple[int, ...]], Launch]


@dataclass(eq=False, slots=True)
class Lowered:
    """A program, before it is known where anything lies; `book` has its values and cells."""

    book: Book
    load: list[Launch] = field(default_factory=list)  # run once, before all else
    load_kernels: list[Kernel] = field(default_factory=list)  # of these launches
    launches: list[Launch] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    late: dict[Dim, int] = field(default_factory=dict)  # cells of sizes that a run finds
    hosts: list[HostSpec] = field(default_factory=list)

    @property
    def values(self) -> list[ValueSpec]:
        return self.book.values

    def lifetimes(self, windows: Windows | None = None) -> list[Value]:
        """What is to be placed: for the order the program is written in, or for all orders that
        windows leave open."""
        n_load = len(self.load)
        return self.book.lifetimes(n_load, max(1, n_load + len(self.steps)), windows)


def lowered(
    graph: Graph,
    schedule: Schedule,
    scratch: Mapping[int, Sequence[Scratch]],
    record: Record,
    load: frozenset[int] = frozenset(),
    sizes: Iterable[Dim] = (),
) -> Lowered:
    """The program of a schedule of `graph`; `scratch` is what kernels need, by their number,
    `record` makes their launches, `load` are the numbers of those that run once, `sizes`
    what launches are given."""
    late = dict.fromkeys(size for size in sizes if found_in(size))
    return _Lowering(graph, scratch, record, load, tuple(late)).run(schedule)


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        scratch: Mapping[int, Sequence[Scratch]],
        record: Record,
        load: frozenset[int],
        late: tuple[Dim, ...],
    ) -> None:
        self.book = Book(graph)
        self.program = Lowered(self.book)
        self.steps, self.launches = self.program.steps, self.program.launches
        self.late, self.hosts = self.program.late, self.program.hosts
        self._scratch = scratch
        self._record = record
        self._load = load
        self._late = late
        self._n_constructs = 0
        self._functions = functions_of(graph)
        self._names = graph.names  # of outputs

    def run(self, schedule: Schedule) -> Lowered:
        scope: Scope = {}
        for k, node in enumerate(schedule.inputs):
            scope[node] = self.book.value("input", node.attr("name"), node, source=k)
        # The names of inputs and states stay as they are.
        taken = {value.name for value in self.book.values}
        taken |= {str(state.attr("name")) for state in self.book.states}
        names = [f"out{k}" if one in taken else one for k, one in enumerate(self._names)]
        for k, node in enumerate(schedule.outputs):
            if node not in scope and not is_in_memory(node):
                scope[node] = self.book.value("output", names[k], node)
        for k, state in enumerate(self.book.states):
            scope[state] = self.book.value("state", state.attr("name"), state, source=k)
        scope |= {value: scope[state] for state, value in schedule.updates}
        for step in schedule.steps:
            if isinstance(step, Kernel) and step.number in self._load:
                self._kernel(step, scope)
        self._schedule(schedule, scope)
        for size in self._late:
            if size not in self.late:
                raise InvalidGraph(f"no cut of the graph says what size {size} is")
        self.program.outputs = [self.book.number(node, scope) for node in schedule.outputs]
        return self.program

    @property
    def _tick(self) -> int:
        """The tick of the step made next."""
        return len(self.program.load) + len(self.steps)

    def _eval(self, instructions: Sequence[Instruction]) -> None:
        if instructions:
            self.steps.append(Step(StepKind.EVAL, instructions=tuple(instructions)))

    # Steps.

    def _schedule(self, schedule: Schedule, scope: Scope) -> None:
        read_last = {node: k for k, step in enumerate(schedule.steps) for node in step.inputs}
        # What belongs to others is theirs to keep.
        read_last |= dict.fromkeys((*schedule.inputs, *schedule.results), len(schedule.steps))
        for k, step in enumerate(schedule.steps):
            if isinstance(step, Kernel):
                if step.number not in self._load:
                    self._kernel(step, scope)
            elif isinstance(step, Branch):
                self._branch(step, scope)
            elif isinstance(step, Cut):
                self._cut(step, scope)
            elif isinstance(step, HostCall):
                self._host(step, scope)
            else:
                dying = {node for node in step.parts.initial if read_last[node] == k}
                self._loop(step, scope, dying)

    def _kernel(self, kernel: Kernel, scope: Scope) -> None:
        for size in kernel.space:
            for var in found_in(size):
                if var.name not in self.book.found:
                    raise InvalidGraph(f"kernel {kernel.name} needs size {var} before it is found")
        reads = tuple(self.book.number(node, scope) for node in kernel.inputs)
        scope |= {output: self.book.number(read, scope) for output, read in kernel.overwrites}
        fresh = [node for node in kernel.outputs if node not in scope]
        for k, node in enumerate(kernel.outputs):
            if node not in scope:
                kind = "packed" if kernel.number in self._load else "work"
                name = f"{kernel.name}.{k}"
                if kind == "packed" and len(reads) == 1:
                    name = f"{self.book.values[reads[0]].name} packed"
                scope[node] = self.book.value(kind, name, node)
        writes = tuple(scope[node] for node in kernel.outputs)
        scratch = tuple(
            self.book.add(
                ValueSpec(
                    "work", f"{kernel.name}.scratch{k}", (need.count,), need.dtype, need.nbytes
                )
            )
            for k, need in enumerate(self._scratch[kernel.number])
        )
        for output, read in kernel.in_place:
            mine, theirs = scope[output], self.book.number(read, scope)
            same_loop = self.book.are_made_together(mine, theirs)
            if output in fresh and self.book.values[theirs].kind == "work" and same_loop:
                self.book.takes_over.setdefault(mine, []).append(theirs)
        self.book.touch(self._tick, *reads, *writes, *scratch)
        # What lies in the bytes of a state lies nowhere else, and nothing else lies there.
        touched = (*reads, *writes)
        parts = tuple(p for p in kernel.parts if self.book.values[touched[p[0]]].kind == "state")
        launch = self._record(kernel, reads, writes, scratch)._replace(parts=parts)
        if kernel.number in self._load:
            self.program.load.append(launch)
            self.program.load_kernels.append(kernel)
        else:
            self.steps.append(Step(StepKind.LAUNCH, len(self.launches)))
            self.launches.append(launch)
            self.program.kernels.append(kernel)

    def _branch(self, branch: Branch, scope: Scope) -> None:
        name = self._construct("branch")
        condition = self.book.number(branch.condition, scope)
        for index, node in branch.outputs:
            if node not in scope:
                scope[node] = self.book.value("work", f"{name}.{index}", node)
        holds = self.book.cell()
        self.book.touch(self._tick, condition)
        self._eval([(Ins.LOAD8, holds, self.book.address(condition), ZERO)])
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
        source, count = (self.book.number(node, scope) for node in cut.inputs)
        name = cut.size.name
        cell = self.book.found.setdefault(name, -1)
        if cell < 0:
            cell = self.book.found[name] = self.book.cell()
        self.book.touch(self._tick, count)
        instructions: list[Instruction] = [(Ins.LOAD64, cell, self.book.address(count), ZERO)]
        limit = self.book.size(cut.source.shape[0], instructions)
        instructions += [(Ins.MIN, cell, cell, limit), (Ins.MAX, cell, cell, ZERO)]
        for size in self._late:
            names = {var.name for var in found_in(size)}
            if name in names and names <= self.book.found.keys():
                known = self.late.get(size)
                known = self.book.cell() if known is None else known
                self.late[size] = self.book.computed(size, instructions, known)
        self._eval(instructions)
        pointer = self.book.pointer(name, cut.output, self.book.address(source), (source,))
        scope[cut.output] = pointer

    def _host(self, call: HostCall, scope: Scope) -> None:
        reads = [self.book.number(node, scope) for node in call.inputs]
        if call.output not in scope:
            name = self._construct("host")
            scope[call.output] = self.book.value("work", f"{name}.0", call.output)
        write = scope[call.output]
        self.book.touch(self._tick, *reads, write)
        addresses = tuple(map(self.book.address, (*reads, write)))
        self.steps.append(Step(StepKind.HOST, len(self.hosts)))
        function = self._functions.index(call.function)
        self.hosts.append(HostSpec(function, tuple(reads), write, addresses))

    def _given(self, parameters: Sequence[Node], values: Sequence[Node], scope: Scope) -> Scope:
        return {
            one: self.book.number(value, scope)
            for one, value in zip(parameters, values, strict=True)
        }

    def _construct(self, kind: str) -> str:
        self._n_constructs += 1
        return f"{kind}{self._n_constructs}"

    def _loop(self, loop: Loop, scope: Scope, dying: set[Node]) -> None:
        name = self._construct("loop")
        parts = loop.parts
        inner = self._given(parts.captured, parts.captures, scope)
        before: list[Instruction] = []
        at_start: list[Instruction] = []
        at_end: list[Instruction] = []
        for index, node in loop.outputs:
            if index >= len(parts.initial) and node not in scope:
                scope[node] = self.book.value("work", f"{name}.{index}", node)
        rows_of = [node for index, node in loop.outputs if index >= len(parts.initial)]
        for kernel, node in zip(loop.zeros, rows_of, strict=bool(loop.zeros)):
            self._kernel(kernel, {kernel.outputs[0]: scope[node]})
        counter = self.book.cell()
        trips = self._trips(loop, scope, before)
        condition = self._condition(loop, scope, before)
        for j in range(len(parts.initial)):
            self._carried(f"{name}.{j}", loop, j, (scope, inner), dying, (before, at_end))
        for row, node in zip(loop.rows, rows_of, strict=True):
            out = parts.rows[row]
            inner[out] = self._row(f"{name}.row{row}", out, scope[node], counter, at_start)
        for k, (window, captured) in enumerate(loop.windows):
            number = inner[captured]
            inner[window] = self._row(f"{name}.in{k}", window, number, counter, at_start)
        self._eval(before)
        self.book.open_loop(self._tick)
        self.steps.append(Step(StepKind.LOOP, counter, trips, condition))
        if any(parts.iteration in step.inputs for step in loop.body.steps):
            slot = self.book.value("work", f"{name}.i", parts.iteration)
            inner[parts.iteration] = slot
            self.book.touch(self._tick, slot)
            at_start.append((Ins.STORE64, ZERO, self.book.address(slot), counter))
        self._eval(at_start)
        self._schedule(loop.body, inner)
        if not is_always(parts.goes_on):
            goes_on = self.book.number(parts.goes_on, inner)
            self.book.touch(self._tick, goes_on)
            at_end.insert(0, (Ins.LOAD8, condition, self.book.address(goes_on), ZERO))
        self._eval(at_end)
        self.book.close_loop(self._tick)
        self.steps.append(Step(StepKind.NEXT))

    def _trips(self, loop: Loop, scope: Scope, before: list[Instruction]) -> int:
        """The cell with the trip count."""
        size = trip_size(loop.parts.trips)
        if size is not None:
            return self.book.size(size, before)
        cell, number = self.book.cell(), self.book.number(loop.parts.trips, scope)
        self.book.touch(self._tick, number)
        before.append((Ins.LOAD64, cell, self.book.address(number), ZERO))
        return cell

    def _condition(self, loop: Loop, scope: Scope, before: list[Instruction]) -> int:
        """The cell with the condition, if there is one."""
        if not loop.has_condition:
            return NO_CONDITION
        cell = self.book.cell()
        if is_always(loop.parts.condition):
            before.append((Ins.MOV, cell, self.book.bound(1), ZERO))
        else:
            number = self.book.number(loop.parts.condition, scope)
            self.book.touch(self._tick, number)
            before.append((Ins.LOAD8, cell, self.book.address(number), ZERO))
        return cell

    def _carried(
        self,
        name: str,
        loop: Loop,
        j: int,
        scopes: tuple[Scope, Scope],
        dying: set[Node],
        instructions: tuple[list[Instruction], list[Instruction]],
    ) -> None:
        """Places and pointers of a carried value; `dying` are nodes that nobody reads later."""
        (scope, inner), (before, at_end) = scopes, instructions
        parts = loop.parts
        initial, one, following = parts.initial[j], parts.carried[j], parts.following[j]
        result = next((node for index, node in loop.outputs if index == j), None)
        start = self.book.number(initial, scope)
        if following is one:
            inner[one] = start
            if result is not None:
                scope[result] = start
                self.book.shared.add(start)
            return
        dies = (
            self.book.values[start].kind == "work"
            and self.book.is_made_here(start)
            and initial in dying
            and start not in self.book.shared
            and loop.inputs.count(initial) == 1
        )
        if initial in loop.overwritten and not dies:
            raise InvalidGraph(f"{name} writes rows of {initial!r}, which others read")
        current, upcoming = self.book.cell(), self.book.cell()
        before.append((Ins.MOV, current, self.book.address(start), ZERO))
        at_end.append((Ins.MOV, current, upcoming, ZERO))
        if _is_updated_in_place(loop, j):
            p = q = start if dies else self.book.value("work", f"{name}.p", one)
        else:
            p = self.book.value("work", f"{name}.p", one)
            q = start if dies else self.book.value("work", f"{name}.q", one)
            both = self.book.cell()
            before.append((Ins.ADD, both, self.book.address(p), self.book.address(q)))
            at_end.append((Ins.SUB, upcoming, both, upcoming))
        before.append((Ins.MOV, upcoming, self.book.address(p), ZERO))
        inner[one] = self.book.pointer(f"{name}.now", one, current, (start, p, q))
        inner[following] = self.book.pointer(f"{name}.next", one, upcoming, (p, q))
        if result is not None:
            scope[result] = inner[one]

    def _row(
        self, name: str, like: Node, whole: int, counter: int, at_start: list[Instruction]
    ) -> int:
        """A pointer to row `counter` of a value."""
        cell = self.book.cell()
        nbytes = self.book.size(like.nbytes, at_start)
        at_start += [
            (Ins.MUL, cell, counter, nbytes),
            (Ins.ADD, cell, cell, self.book.address(whole)),
        ]
        return self.book.pointer(name, like, cell, (whole,))


def _is_updated_in_place(loop: Loop, j: int) -> bool:
    """Whether nothing reads a carried value after its elements are written anew, each where it was
    read."""
    one, following = loop.parts.carried[j], loop.parts.following[j]
    steps = loop.body.steps
    makers = [k for k, s in enumerate(steps) if isinstance(s, Kernel) and following in s.outputs]
    if len(makers) != 1 or loop.parts.goes_on is one:
        return False
    [k] = makers
    maker = steps[k]
    assert isinstance(maker, Kernel)
    return (following, one) in maker.in_place and not any(one in s.inputs for s in steps[k + 1 :])
