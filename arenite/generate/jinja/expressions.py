"""Expressions: the value of every expression in a template's tree."""

# ruff: noqa: N802, N815 - methods are named after the nodes of a tree

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError

from arenite.generate.jinja.access import get_attribute, get_item, get_slice
from arenite.generate.jinja.comparison import contains, equal, in_order
from arenite.generate.jinja.filters import apply, check
from arenite.generate.jinja.functions import Loop
from arenite.generate.jinja.meter import Meter
from arenite.generate.jinja.methods import need_text
from arenite.generate.jinja.operators import binary, unary
from arenite.generate.jinja.text import TEMPLATE, Text
from arenite.generate.jinja.values import (
    ELEMENT_NBYTES,
    Dict,
    Function,
    Items,
    Macro,
    Scope,
    Undefined,
    Value,
    as_list,
    is_true,
    kind,
    whole,
)
from arenite.generate.jinja.writing import text_of

_SIGNS = {"lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}

Arguments = tuple[list[Value], dict[str, Value]]
Expression = Callable[[Any, Scope], Value]
Expand = Callable[[Macro, list[Value], dict[str, Value]], Text]


class Expressions:
    """Evaluates expressions, each by the method named after its node; `expand` runs a macro."""

    def __init__(self, meter: Meter, expand: Expand) -> None:
        self._meter = meter
        self._expand = expand
        self._literals: dict[int, Text] = {}

    def value(self, node: nodes.Node, scope: Scope) -> Value:
        self._meter.spend()
        expression: Expression | None = getattr(self, f"_on_{type(node).__name__}", None)
        if expression is None:
            raise SecurityError(f"has an expression that is not allowed: {type(node).__name__}")
        return expression(node, scope)

    # Calls.

    def called(self, node: nodes.Call, scope: Scope) -> tuple[Value, Arguments]:
        return self.value(node.node, scope), self._arguments(node, scope)

    def _arguments(self, node: nodes.Call | nodes.Filter | nodes.Test, scope: Scope) -> Arguments:
        args = [self.value(part, scope) for part in node.args]
        kwargs: dict[str, Value] = {}
        for part in node.kwargs:
            assert isinstance(part, nodes.Keyword)
            kwargs[part.key] = self.value(part.value, scope)
        if node.dyn_args is not None:
            args += as_list(self._meter, self.value(node.dyn_args, scope))
        if node.dyn_kwargs is not None:
            more = self.value(node.dyn_kwargs, scope)
            if not isinstance(more, Dict):
                raise TypeError(f"argument after ** must be a mapping, not {kind(more)}")
            for key, item in more.items():
                self._meter.spend()
                kwargs[need_text(key).chars] = item
        return args, kwargs

    def result(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self._meter.spend(16 * (len(args) + len(kwargs)))
        if isinstance(function, Function):
            return function.call(*args, **kwargs)
        if isinstance(function, Macro):
            return self._expand(function, args, kwargs)
        if isinstance(function, Loop):
            return function.again(*args, **kwargs)
        if isinstance(function, Undefined):
            raise function.fail()
        raise TypeError(f"{kind(function)!r} object is not callable")

    # By kind of node.

    def _literal(self, node: nodes.Node, chars: str) -> Text:
        text = self._literals.get(id(node))
        if text is None:
            text = self._literals[id(node)] = Text.of(chars, TEMPLATE, self._meter)
        return text

    def _on_TemplateData(self, node: nodes.TemplateData, scope: Scope) -> Value:
        return self._literal(node, node.data)

    def _on_Const(self, node: nodes.Const, scope: Scope) -> Value:
        value = node.value
        if isinstance(value, str):
            return self._literal(node, value)
        return whole(value) if isinstance(value, int) else value

    def _on_Name(self, node: nodes.Name, scope: Scope) -> Value:
        return scope.find(node.name)

    def _on_List(self, node: nodes.List, scope: Scope) -> Value:
        return Items(self._meter, [self.value(item, scope) for item in node.items])

    def _on_Tuple(self, node: nodes.Tuple, scope: Scope) -> Value:
        self._meter.keep(56 + ELEMENT_NBYTES * len(node.items))
        return tuple(self.value(item, scope) for item in node.items)

    def _on_Dict(self, node: nodes.Dict, scope: Scope) -> Value:
        pairs = [(self.value(p.key, scope), self.value(p.value, scope)) for p in node.items]
        return Dict(self._meter, pairs)

    def _on_Getattr(self, node: nodes.Getattr, scope: Scope) -> Value:
        return get_attribute(self._meter, self.value(node.node, scope), node.attr)

    def _on_Getitem(self, node: nodes.Getitem, scope: Scope) -> Value:
        value = self.value(node.node, scope)
        if not isinstance(node.arg, nodes.Slice):
            return get_item(self._meter, value, self.value(node.arg, scope))
        part = node.arg
        bounds = [
            None if bound is None else self.value(bound, scope)
            for bound in (part.start, part.stop, part.step)
        ]
        return get_slice(self._meter, value, slice(*bounds))

    def _on_Call(self, node: nodes.Call, scope: Scope) -> Value:
        function, (args, kwargs) = self.called(node, scope)
        return self.result(function, args, kwargs)

    def _on_Filter(self, node: nodes.Filter, scope: Scope) -> Value:
        assert node.node is not None
        args, kwargs = self._arguments(node, scope)
        return apply(self._meter, node.name, self.value(node.node, scope), *args, **kwargs)

    def filtered(self, node: nodes.Filter, value: Value, scope: Scope) -> Value:
        """The filters of a block, of which the innermost takes what the block has."""
        if node.node is not None:
            assert isinstance(node.node, nodes.Filter)
            value = self.filtered(node.node, value, scope)
        args, kwargs = self._arguments(node, scope)
        return apply(self._meter, node.name, value, *args, **kwargs)

    def _on_Test(self, node: nodes.Test, scope: Scope) -> Value:
        args, kwargs = self._arguments(node, scope)
        return check(self._meter, node.name, self.value(node.node, scope), *args, **kwargs)

    def _on_Concat(self, node: nodes.Concat, scope: Scope) -> Value:
        texts = [text_of(self._meter, self.value(part, scope)) for part in node.nodes]
        return Text.join(texts, self._meter)

    def _on_CondExpr(self, node: nodes.CondExpr, scope: Scope) -> Value:
        if is_true(self.value(node.test, scope)):
            return self.value(node.expr1, scope)
        if node.expr2 is not None:
            return self.value(node.expr2, scope)
        return Undefined(
            f"the inline if-expression on line {node.lineno} evaluated to false and no else "
            "section was defined."
        )

    def _on_And(self, node: nodes.And, scope: Scope) -> Value:
        left = self.value(node.left, scope)
        return self.value(node.right, scope) if is_true(left) else left

    def _on_Or(self, node: nodes.Or, scope: Scope) -> Value:
        left = self.value(node.left, scope)
        return left if is_true(left) else self.value(node.right, scope)

    def _on_Not(self, node: nodes.Not, scope: Scope) -> Value:
        return not is_true(self.value(node.node, scope))

    def _unary(self, node: nodes.UnaryExpr, scope: Scope) -> Value:
        return unary(node.operator, self.value(node.node, scope))

    def _binary(self, node: nodes.BinExpr, scope: Scope) -> Value:
        left = self.value(node.left, scope)
        return binary(self._meter, node.operator, left, self.value(node.right, scope))

    _on_Neg = _on_Pos = _unary
    _on_Add = _on_Sub = _on_Mul = _on_Div = _on_FloorDiv = _on_Mod = _on_Pow = _binary

    def _on_Compare(self, node: nodes.Compare, scope: Scope) -> Value:
        left = self.value(node.expr, scope)
        for operand in node.ops:
            right = self.value(operand.expr, scope)
            if not self._holds(operand.op, left, right):
                return False
            left = right
        return True

    def _holds(self, sign: str, left: Value, right: Value) -> bool:
        if sign in ("eq", "ne"):
            return equal(self._meter, left, right) == (sign == "eq")
        if sign in ("in", "notin"):
            return contains(self._meter, right, left) == (sign == "in")
        return in_order(self._meter, _SIGNS[sign], left, right)
