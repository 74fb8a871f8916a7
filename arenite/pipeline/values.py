"""The values of a program and the cells it computes with, in the making.

In: what a lowering needs, step by step: a value like a node, the address of one, a size, and which
values a step touches. Out: numbered values with their lifetimes, and cells. A value lives from its
first writer to its last reader; one that a loop reads or writes but does not make lives over the
whole loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from arenite.errors import InvalidGraph
from arenite.ir import OPS, Dim, Expr, Graph, Node, bounds
from arenite.ir.dim import Floordiv, Found, Positive, found_in
from arenite.memory import Alias, Lifetime, Value
from arenite.program.frame import REGIONS
from arenite.program.steps import ZERO, Cell, Instruction
from arenite.program.table import Ins
from arenite.program.value_spec import ValueSpec, copy_name

if TYPE_CHECKING:
    from arenite.pipeline.windows import Windows

#: Numbers of the values that nodes of one region stand for.
Scope = dict[Node, int]


class Book:
    """Values by number, cells by number, and who touches which value when."""

    def __init__(self, graph: Graph) -> None:
        self.values: list[ValueSpec] = []
        self.cells: list[Cell] = []
        self.constants: list[NDArray[Any]] = []  # made while compiling
        self.found: dict[str, int] = {}  # cells of sizes found while running
        self.shared: set[int] = set()  # values that two nodes stand for, or a pointer may
        self.takes_over: dict[int, list[int]] = {}
        self.states = graph.states
        self._name_of = graph.name_of
        self._of_graph = {node: k for k, node in enumerate(graph.constants)}
        self._names: set[str] = set()
        self._constants: Scope = {}
        self._addresses: dict[int, int] = {}
        self._sizes: dict[Dim, int] = {}
        self._open_loops: list[int] = []
        self._spans: list[tuple[int, int]] = []  # ticks of LOOP and NEXT
        self._made_in: list[tuple[int, ...]] = []  # for each value the loops around its maker
        self._ticks: list[list[int]] = []  # for each value those it is touched at, in order
        self._in_loops: list[set[int]] = []  # for each value loops inside which it is touched

    # Loops.

    def open_loop(self, tick: int) -> None:
        self._open_loops.append(len(self._spans))
        self._spans.append((tick, tick))

    def close_loop(self, tick: int) -> None:
        loop = self._open_loops.pop()
        self._spans[loop] = (self._spans[loop][0], tick)

    def is_made_here(self, number: int) -> bool:
        """Whether a value is made in the innermost loop that is open, not around it."""
        return self._made_in[number] == tuple(self._open_loops)

    def are_made_together(self, one: int, other: int) -> bool:
        return self._made_in[one] == self._made_in[other]

    # Values and cells.

    def value(
        self, kind: str, name: str, like: Node, *, source: int = 0, targets: tuple[int, ...] = ()
    ) -> int:
        return self.add(ValueSpec(kind, name, like.shape, like.dtype, like.nbytes, source, targets))

    def add(self, spec: ValueSpec) -> int:
        name = spec.name
        while name in self._names:
            name += "_"
        self._names.add(name)
        self.values.append(spec._replace(name=name))
        self._made_in.append(tuple(self._open_loops))
        self._ticks.append([])
        self._in_loops.append(set())
        return len(self.values) - 1

    def number(self, node: Node, scope: Scope) -> int:
        if node in scope:
            return scope[node]
        if node not in self._constants:
            if OPS[node.op].storage != "constant":
                raise InvalidGraph(f"{node!r} is read before it is made")
            source = self._of_graph.get(node)
            if source is None:
                self.constants.append(node.attr("data").array)
                source = -len(self.constants)
            name = self._name_of(node) or f"constant{len(self.values)}"
            self._constants[node] = self.value("constant", name, node, source=source)
        return self._constants[node]

    def pointer(self, name: str, like: Node, cell: int, targets: tuple[int, ...]) -> int:
        self.shared.update(targets)
        return self.value("pointer", name, like, source=cell, targets=targets)

    def cell(self) -> int:
        """A register that instructions fill."""
        self.cells.append(Cell())
        return len(self.cells) - 1

    def size(self, size: Dim, instructions: list[Instruction]) -> int:
        """The cell with a size; where that is found while running, instructions compute it."""
        return self.computed(size, instructions) if found_in(size) else self.bound(size)

    def computed(self, size: Dim, instructions: list[Instruction], cell: int | None = None) -> int:
        """A cell that instructions fill with an expression over sizes found while running."""
        if not found_in(size):
            return self.bound(size)
        if isinstance(size, Found) and cell is None:
            return self.found[size.name]
        cell = self.cell() if cell is None else cell
        if isinstance(size, Found):
            instructions.append((Ins.MOV, cell, self.found[size.name], ZERO))
        elif isinstance(size, Floordiv):
            numerator = self.computed(size.numerator, instructions)
            divisor = self.computed(size.divisor, instructions)
            instructions.append((Ins.DIV, cell, numerator, divisor))
        elif isinstance(size, Positive):
            inner = self.computed(size.inner, instructions)
            instructions.append((Ins.MAX, cell, inner, ZERO))
        else:
            assert isinstance(size, Expr)
            term = self.cell()
            instructions.append((Ins.MOV, cell, ZERO, ZERO))
            for atoms, number in size.terms:
                instructions.append((Ins.MOV, term, self.bound(number), ZERO))
                for atom in atoms:
                    factor = self.computed(atom, instructions)
                    instructions.append((Ins.MUL, term, term, factor))
                instructions.append((Ins.ADD, cell, cell, term))
        return cell

    def bound(self, size: Dim) -> int:
        if size not in self._sizes:
            self.cells.append(Cell(size=size))
            self._sizes[size] = len(self.cells) - 1
        return self._sizes[size]

    def address(self, number: int) -> int:
        """The cell with the address of a value."""
        if self.values[number].kind == "pointer":
            return self.values[number].source
        if number not in self._addresses:
            self.cells.append(Cell(address=number))
            self._addresses[number] = len(self.cells) - 1
        return self._addresses[number]

    def touch(self, tick: int, *numbers: int) -> None:
        """Values, or what they may point to, are read or written at a tick."""
        pending = [*numbers]
        while pending:
            number = pending.pop()
            pending += self.values[number].targets
            depth = len(self._made_in[number])
            if len(self._open_loops) > depth:
                self._in_loops[number].add(self._open_loops[depth])
            else:
                self._ticks[number].append(tick)

    # Lifetimes.

    @property
    def n_state_sets(self) -> int:
        """Copies of every state."""
        return max((state.attr("copies") for state in self.states), default=1)

    def lifetimes(self, load_end: int, end: int, windows: Windows | None = None) -> list[Value]:
        """Values with the ticks they live, up to `end`; sizes at their largest. Constants that only
        launches before `load_end` read are there at load alone.

        With windows, a value lives while whoever touches it may run.
        """
        spans = []
        owners = {} if windows is None else self._owners(windows)
        for number, spec in enumerate(self.values):
            nbytes = bounds(spec.nbytes)[1]
            if spec.kind == "pointer":
                continue
            if spec.kind != "work":
                region, until = REGIONS[spec.kind], end
                ticks = self._ticks[number]
                is_read_once = bool(ticks) and ticks[-1] < load_end and not self._in_loops[number]
                if spec.kind == "constant" and is_read_once:
                    region, until = "source", load_end
                spans.append(Value(spec.name, nbytes, Lifetime(0, until), region=region))
                if spec.kind == "state":
                    copies = range(1, self.states[spec.source].attr("copies"))
                    spans += [spans[-1]._replace(id=copy_name(spec.name, k)) for k in copies]
                continue
            ticks = [*self._ticks[number]]
            if windows is not None:
                ticks = [at for tick in ticks for at in windows.of(tick)]
            for loop in self._in_loops[number]:
                ticks += self._spans[loop]
            span = Lifetime(min(ticks), max(ticks) + 1)
            takes_over: tuple[str, ...] = ()
            if windows is None:
                takes_over = tuple(self.values[k].name for k in self.takes_over.get(number, ()))
            owner = owners.get(number)
            alias = None if owner is None else Alias(self.values[owner].name)
            spans.append(Value(spec.name, nbytes, span, alias=alias, takes_over=takes_over))
        return spans

    def _owners(self, windows: Windows) -> dict[int, int]:
        """Values that lie in the bytes of another, because all others who touch that one are over
        when its last reader, which makes the value, begins; and whose bytes they are first."""
        owners: dict[int, int] = {}
        taken: set[int] = set()
        for number, candidates in self.takes_over.items():
            made_at = self._ticks[number][0]
            for other in candidates:
                ticks = [tick for tick in self._ticks[other] if tick != made_at]
                ticks += [self._spans[loop][1] for loop in self._in_loops[other]]
                if (
                    other not in taken
                    and self.values[other].nbytes == self.values[number].nbytes
                    and all(windows.is_before(tick, made_at) for tick in ticks)
                ):
                    taken.add(other)
                    owners[number] = owners.get(other, other)
                    break
        return owners
