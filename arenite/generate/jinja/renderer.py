"""Renderer: walks a template's tree, as Jinja would run it.

Scopes are Jinja's: loops, macros, blocks of `with`, `set`, `filter` and `call` have their own, `if`
has none. A signal says how a list of statements was left: at its end, by `break` or by `continue`.
"""

# ruff: noqa: N802 - methods are named after the nodes of a tree

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError

from arenite.generate.jinja.expressions import Expressions
from arenite.generate.jinja.functions import Loop, functions
from arenite.generate.jinja.meter import STEP_SIZE, Meter, OverBudget
from arenite.generate.jinja.text import GIVEN, Text
from arenite.generate.jinja.values import (
    ELEMENT_NBYTES,
    FUNCTION_NBYTES,
    Dict,
    Items,
    Macro,
    Namespace,
    Scope,
    Undefined,
    Value,
    as_list,
    is_true,
)
from arenite.generate.jinja.writing import text_of

MAX_CALLS = 200  # of macros inside of macros
BATCH = 256  # texts of a loop that are joined at once

Signal = type[nodes.Break] | type[nodes.Continue] | None
Statement = Callable[[Any, Scope, list[Text]], Signal]


class Renderer:
    """Renders one template once, each statement by the method named after its node."""

    def __init__(self, tree: nodes.Template, meter: Meter, variables: Mapping[str, Value]) -> None:
        self._tree = tree
        self._meter = meter
        self._root = Scope(Scope(None, functions(meter)), dict(variables))
        self._expressions = Expressions(meter, self._expanded)
        self._signatures: dict[int, tuple[list[str], frozenset[str]]] = {}
        self._n_calls = 0

    def render(self) -> Text:
        text = self._rendered(self._tree.body, self._root)
        if len(text) > self._meter.max_length:
            raise OverBudget(f"writes {len(text)} characters, more than any conversation has")
        return text

    # Statements.

    def _run(self, body: Sequence[nodes.Node], scope: Scope, out: list[Text]) -> Signal:
        for node in body:
            self._meter.spend()
            statement: Statement | None = getattr(self, f"_on_{type(node).__name__}", None)
            if statement is None:
                raise SecurityError(f"has a statement that is not allowed: {type(node).__name__}")
            signal = statement(node, scope, out)
            if signal is not None:
                return signal
        return None

    def _rendered(self, body: Sequence[nodes.Node], scope: Scope) -> Text:
        out: list[Text] = []
        self._run(body, scope, out)
        return Text.join(out, self._meter)

    def _on_Output(self, node: nodes.Output, scope: Scope, out: list[Text]) -> Signal:
        for part in node.nodes:
            out.append(text_of(self._meter, self._expressions.value(part, scope)))
        return None

    def _on_If(self, node: nodes.If, scope: Scope, out: list[Text]) -> Signal:
        if is_true(self._expressions.value(node.test, scope)):
            return self._run(node.body, scope, out)
        for branch in node.elif_:
            if is_true(self._expressions.value(branch.test, scope)):
                return self._run(branch.body, scope, out)
        return self._run(node.else_, scope, out)

    def _on_For(self, node: nodes.For, scope: Scope, out: list[Text]) -> Signal:
        self._loop(node, self._expressions.value(node.iter, scope), scope, out, 1)
        return None

    def _loop(
        self, node: nodes.For, values: Value, scope: Scope, out: list[Text], depth: int
    ) -> None:
        if node.test is not None:
            chosen = []
            for item in as_list(self._meter, values):
                inner = Scope(scope)
                self._bind(node.target, item, inner)
                if is_true(self._expressions.value(node.test, inner)):
                    chosen.append(item)
            values = Items(self._meter, chosen)

        def again(values: Value, depth: int) -> Text:
            def run() -> Text:
                inner: list[Text] = []
                self._loop(node, values, scope, inner, depth)
                return Text.join(inner, self._meter)

            return self._nested(run)

        loop = Loop(self._meter, values, depth, again if node.recursive else None)
        first = len(out)
        for item in loop:
            inner = Scope(scope, {"loop": loop})
            self._bind(node.target, item, inner)
            signal = self._run(node.body, inner, out)
            if len(out) - first >= BATCH:  # texts of a few characters take hundreds of bytes each
                out[first:] = [Text.join(out[first:], self._meter)]
                first += 1
            if signal is nodes.Break:
                break
        if loop.index0 < 0:
            self._run(node.else_, Scope(scope), out)

    def _on_Break(self, node: nodes.Break, scope: Scope, out: list[Text]) -> Signal:
        return nodes.Break

    def _on_Continue(self, node: nodes.Continue, scope: Scope, out: list[Text]) -> Signal:
        return nodes.Continue

    def _on_Assign(self, node: nodes.Assign, scope: Scope, out: list[Text]) -> Signal:
        self._bind(node.target, self._expressions.value(node.node, scope), scope)
        return None

    def _on_AssignBlock(self, node: nodes.AssignBlock, scope: Scope, out: list[Text]) -> Signal:
        value: Value = self._rendered(node.body, Scope(scope))
        if node.filter is not None:
            value = self._expressions.filtered(node.filter, value, scope)
        self._bind(node.target, value, scope)
        return None

    def _on_FilterBlock(self, node: nodes.FilterBlock, scope: Scope, out: list[Text]) -> Signal:
        inner = Scope(scope)
        value = self._expressions.filtered(node.filter, self._rendered(node.body, inner), inner)
        out.append(text_of(self._meter, value))
        return None

    def _on_With(self, node: nodes.With, scope: Scope, out: list[Text]) -> Signal:
        inner = Scope(scope)
        for target, value in zip(node.targets, node.values, strict=True):
            self._bind(target, self._expressions.value(value, scope), inner)
        return self._run(node.body, inner, out)

    def _on_Block(self, node: nodes.Block, scope: Scope, out: list[Text]) -> Signal:
        return self._run(node.body, Scope(scope if node.scoped else self._root), out)

    def _on_Macro(self, node: nodes.Macro, scope: Scope, out: list[Text]) -> Signal:
        scope.values[node.name] = self._macro_of(node, scope)
        return None

    def _macro_of(self, node: nodes.Macro | nodes.CallBlock, scope: Scope) -> Macro:
        signature = self._signatures.get(id(node))
        if signature is None:
            used = {name.name for part in node.body for name in part.find_all(nodes.Name)}
            takes = frozenset(used & {"varargs", "kwargs", "caller"})
            signature = self._signatures[id(node)] = ([name.name for name in node.args], takes)
        macro = Macro(node, scope, *signature)
        self._meter.take(macro, FUNCTION_NBYTES)
        return macro

    def _on_CallBlock(self, node: nodes.CallBlock, scope: Scope, out: list[Text]) -> Signal:
        function, (args, kwargs) = self._expressions.called(node.call, scope)
        kwargs["caller"] = self._macro_of(node, scope)
        out.append(text_of(self._meter, self._expressions.result(function, args, kwargs)))
        return None

    def _bind(self, target: nodes.Node, value: Value, scope: Scope) -> None:
        self._meter.spend()
        if isinstance(target, nodes.Name):
            scope.values[target.name] = value
        elif isinstance(target, nodes.NSRef):
            owner = scope.find(target.name)
            if not isinstance(owner, Namespace):
                raise TemplateRuntimeError("cannot assign attribute on non-namespace object")
            owner.values[target.attr] = value
        elif isinstance(target, nodes.Tuple):
            values = as_list(self._meter, value)
            if len(values) != len(target.items):
                raise ValueError(f"{len(values)} values for {len(target.items)} names")
            for part, item in zip(target.items, values, strict=True):
                self._bind(part, item, scope)
        else:
            raise SecurityError(f"assigns to a {type(target).__name__}")

    # Macros.

    def _nested(self, run: Callable[[], Text]) -> Text:
        self._n_calls += 1
        if self._n_calls > MAX_CALLS:
            raise OverBudget("calls itself too deeply")
        result = run()
        self._n_calls -= 1
        return result

    def _expanded(self, macro: Macro, args: list[Value], kwargs: dict[str, Value]) -> Text:
        names, n_given = macro.arguments, min(len(args), len(macro.arguments))
        self._meter.spend(STEP_SIZE * len(names))
        scope = Scope(macro.scope, dict(zip(names, args, strict=False)))
        defaults = macro.node.defaults
        for place in range(n_given, len(names)):
            name, default = names[place], place - len(names) + len(defaults)
            if name in kwargs:
                scope.values[name] = kwargs.pop(name)
            elif default >= 0:
                scope.values[name] = self._expressions.value(defaults[default], scope)
            else:
                scope.values[name] = Undefined(f"parameter {name!r} was not provided")
        if "caller" in macro.takes and "caller" not in names:
            scope.values["caller"] = kwargs.pop("caller", Undefined("No caller defined"))
        if "kwargs" in macro.takes:
            pairs = ((Text.of(key, GIVEN, self._meter), item) for key, item in kwargs.items())
            scope.values["kwargs"] = Dict(self._meter, pairs)
        elif kwargs:
            raise TypeError(
                f"macro {macro.name!r} takes no keyword argument {next(iter(kwargs))[:80]!r}"
            )
        if "varargs" in macro.takes:
            rest = args[len(names) :]
            self._meter.keep(56 + ELEMENT_NBYTES * len(rest))
            scope.values["varargs"] = tuple(rest)
        elif len(args) > len(names):
            raise TypeError(f"macro {macro.name!r} takes not more than {len(names)} argument(s)")
        return self._nested(lambda: self._rendered(macro.node.body, scope))
