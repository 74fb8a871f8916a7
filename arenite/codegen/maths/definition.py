"""Functions of scalars made from formulas: what every back end prints or runs.

In: a table of formulas, an op and the dtype of its operands. Out: a `Function`, made once: shared
parts of the formula named by Let, rare paths an If, repetitions a While.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from arenite.codegen import loop_ir as ir
from arenite.codegen.loop_ir import Expr
from arenite.codegen.maths.casts import cast
from arenite.dtype import DType, Kind

Formula = Callable[..., Expr]

_PARAMETERS = ("x", "y")


class Definitions:
    """The functions of one table of formulas.

    Nested ops in a function are again ops of the table, or what the device has.
    """

    def __init__(
        self,
        floats: Mapping[str, Formula],
        integers: Mapping[str, Formula],
        keeps_denormals: bool = True,
    ) -> None:
        self.floats, self.integers = floats, integers
        self.keeps_denormals = keeps_denormals
        self.functions: dict[tuple[str, DType, int | DType | None], ir.Function | None] = {}

    def op(self, op: str, dtype: DType, constant: int | None = None) -> ir.Function | None:
        """The op of operands of the dtype, the last one an integer constant if given; None: the
        device must have it."""
        key = (op, dtype, constant)
        if key not in self.functions:
            table = self.floats if dtype.kind is Kind.FLOAT else self.integers
            formula = table.get(op)
            self.functions[key] = None if formula is None else _op(formula, *key)
        return self.functions[key]

    def cast(self, source: DType, target: DType) -> ir.Function:
        key = ("cast", source, target)
        function = self.functions.get(key)
        if function is None:
            x = ir.Name("x", source)
            value = cast(x, target, self.keeps_denormals)
            function = function_of(f"{target}_from_{source}", (x,), value)
            self.functions[key] = function
        return function


def _op(formula: Formula, op: str, dtype: DType, constant: int | None) -> ir.Function:
    count = 1 if op in ir.UNARY_OPS else 2
    names = tuple(ir.Name(name, dtype) for name in _PARAMETERS[:count])
    operands: tuple[Expr, ...] = names
    title = f"{op}_{dtype}"
    if constant is not None:
        operands = (*names[:-1], ir.Const(constant, dtype))
        title += f"_{constant}".replace("-", "minus")
    return function_of(title, names, formula(*operands))


def function_of(name: str, parameters: tuple[ir.Name, ...], value: Expr) -> ir.Function:
    """A formula as a function: what is used twice is computed once."""
    uses: dict[int, int] = {}
    for expr in ir.walk(value):
        for child in ir.children(expr):
            uses[id(child)] = uses.get(id(child), 0) + 1
    writer = _Writer(uses)
    body: list[ir.Stmt] = []
    result = writer.write(value, {}, body)
    return ir.Function(name, parameters, tuple(body), result)


class _Writer:
    def __init__(self, uses: dict[int, int]) -> None:
        self.uses = uses
        self.n_names = 0

    def name(self, dtype: DType) -> ir.Name:
        self.n_names += 1
        return ir.Name(f"t{self.n_names}", dtype)

    def write(self, expr: Expr, known: dict[int, Expr], out: list[ir.Stmt]) -> Expr:
        """The expression over names; `known` holds what has one, `out` gets the statements."""
        if id(expr) in known:
            return known[id(expr)]
        if isinstance(expr, ir.Const | ir.Name):
            return expr
        if isinstance(expr, ir.Rare):
            value = self._rare(expr, known, out)
        elif isinstance(expr, ir.Iterate):
            value = self._iterate(expr, known, out)
        else:
            # The last operand first: of a select, the condition is made where it is used.
            parts = [self.write(child, known, out) for child in reversed(ir.children(expr))][::-1]
            value = ir.with_children(expr, parts)
            if self.uses.get(id(expr), 0) > 1:
                name = self.name(expr.dtype)
                out.append(ir.Let(name.name, value))
                value = name
        known[id(expr)] = value
        return value

    def _rare(self, expr: ir.Rare, known: dict[int, Expr], out: list[ir.Stmt]) -> Expr:
        cond = self.write(expr.cond, known, out)
        name = self.name(expr.dtype)
        out.append(ir.Accumulator(name.name, self.write(expr.b, known, out)))
        inside: list[ir.Stmt] = []
        value = self.write(expr.a, dict(known), inside)
        inside.append(ir.Accumulate(name.name, "set", value))
        out.append(ir.If(cond, tuple(inside)))
        return name

    def _iterate(self, expr: ir.Iterate, known: dict[int, Expr], out: list[ir.Stmt]) -> Expr:
        names = [self.name(part.dtype) for part in expr.start]
        starts = [self.write(part, known, out) for part in expr.start]
        for part in _outside(expr):
            self.write(part, known, out)
        out += [ir.Accumulator(n.name, start) for n, start in zip(names, starts, strict=True)]
        inside = known | {id(old): new for old, new in zip(expr.state, names, strict=True)}
        cond = _Writer({}).write(expr.cond, dict(inside), out)
        body: list[ir.Stmt] = []
        steps = [self.write(part, inside, body) for part in expr.step]
        if len(steps) > 1:  # all parts of the state change at once
            new = [self.name(step.dtype) for step in steps]
            body += [ir.Let(n.name, step) for n, step in zip(new, steps, strict=True)]
            steps = [*new]
        body += [ir.Accumulate(n.name, "set", step) for n, step in zip(names, steps, strict=True)]
        out.append(ir.While(cond, tuple(body)))
        after = known | {id(old): new for old, new in zip(expr.state, names, strict=True)}
        return self.write(expr.result, after, out)


def _outside(expr: ir.Iterate) -> list[Expr]:
    """The greatest parts of a repetition that do not depend on its state."""
    state = {id(name) for name in expr.state}
    changing: dict[int, bool] = {}

    def changes(part: Expr) -> bool:
        if id(part) not in changing:
            inner = [changes(child) for child in ir.children(part)]
            changing[id(part)] = id(part) in state or any(inner)
        return changing[id(part)]

    inside = [part for part in ir.walk(expr.cond, *expr.step) if changes(part)]
    return [child for part in inside for child in ir.children(part) if not changes(child)]
