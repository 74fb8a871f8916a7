"""Renderer: walks a template's tree, as Jinja would run it.

Scopes are Jinja's: loops, macros, blocks of `with`, `set`, `filter` and `call` have their own, `if`
has none. A signal says how a list of statements was left: at its end, by `break` or by `continue`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError

from arenite.generate.jinja.access import get_attribute, get_item, get_slice
from arenite.generate.jinja.comparison import contains, equal, in_order
from arenite.generate.jinja.filters import apply, check
from arenite.generate.jinja.functions import Loop, functions
from arenite.generate.jinja.meter import Meter, OverBudget
from arenite.generate.jinja.methods import need_text
from arenite.generate.jinja.operators import binary, unary
from arenite.generate.jinja.text import TEMPLATE, Text
from arenite.generate.jinja.values import (
    Dict,
    Function,
    Items,
    Macro,
    Namespace,
    Scope,
    Undefined,
    Value,
    as_list,
    is_true,
    kind,
    whole,
)
from arenite.generate.jinja.writing import text_of

MAX_CALLS = 200  # of macros inside of macros

_SIGNS = {"lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}

Arguments = tuple[list[Value], dict[str, Value]]
Signal = type[nodes.Break] | type[nodes.Continue] | None


class Renderer:
    """Renders one template once."""

    def __init__(self, tree: nodes.Template, meter: Meter, variables: Mapping[str, Value]) -> None:
        self._tree = tree
        self._meter = meter
        self._root = Scope(Scope(None, functions(meter)), dict(variables))
        self._literals: dict[int, Text] = {}
        self._n_calls = 0
        self._statements: dict[type, Callable[[Any, Scope, list[Text]], Signal]] = {
            nodes.Assign: self._assign,
            nodes.AssignBlock: self._assign_block,
            nodes.Block: self._block,
            nodes.Break: self._leave,
            nodes.CallBlock: self._call_block,
            nodes.Continue: self._leave,
            nodes.FilterBlock: self._filter_block,
            nodes.For: self._for,
            nodes.If: self._if,
            nodes.Macro: self._macro,
            nodes.Output: self._output,
            nodes.With: self._with,
        }
        self._expressions: dict[type, Callable[[Any, Scope], Value]] = {
            nodes.And: self._and,
            nodes.Call: self._call,
            nodes.Compare: self._compare,
            nodes.Concat: self._concat,
            nodes.CondExpr: self._conditional,
            nodes.Const: self._const,
            nodes.Dict: self._dict,
            nodes.Filter: self._filter,
            nodes.Getattr: self._getattr,
            nodes.Getitem: self._getitem,
            nodes.List: self._list,
            nodes.Name: self._name,
            nodes.Not: self._not,
            nodes.Or: self._or,
            nodes.TemplateData: self._data,
            nodes.Test: self._test,
            nodes.Tuple: self._tuple,
        }
        for sort in (
            nodes.Add,
            nodes.Sub,
            nodes.Mul,
            nodes.Div,
            nodes.FloorDiv,
            nodes.Mod,
            nodes.Pow,
        ):
            self._expressions[sort] = self._binary
        self._expressions |= {nodes.Neg: self._unary, nodes.Pos: self._unary}

    def render(self) -> Text:
        return self._rendered(self._tree.body, self._root)

    # Statements.

    def _run(self, body: Sequence[nodes.Node], scope: Scope, out: list[Text]) -> Signal:
        for node in body:
            self._meter.spend()
            statement = self._statements.get(type(node))
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

    def _output(self, node: nodes.Output, scope: Scope, out: list[Text]) -> Signal:
        for part in node.nodes:
            out.append(text_of(self._meter, self._value(part, scope)))
        return None

    def _if(self, node: nodes.If, scope: Scope, out: list[Text]) -> Signal:
        for branch in (node, *node.elif_):
            if is_true(self._value(branch.test, scope)):
                return self._run(branch.body, scope, out)
        return self._run(node.else_, scope, out)

    def _for(self, node: nodes.For, scope: Scope, out: list[Text]) -> Signal:
        self._loop(node, self._value(node.iter, scope), scope, out, 1)
        return None

    def _loop(
        self, node: nodes.For, values: Value, scope: Scope, out: list[Text], depth: int
    ) -> None:
        if node.test is not None:
            found = []
            for item in as_list(self._meter, values):
                inner = Scope(scope)
                self._bind(node.target, item, inner)
                if is_true(self._value(node.test, inner)):
                    found.append(item)
            values = Items(self._meter, found)

        def again(values: Value, depth: int) -> Text:
            inner: list[Text] = []
            self._nested(lambda: self._loop(node, values, scope, inner, depth))
            return Text.join(inner, self._meter)

        loop = Loop(self._meter, values, depth, again if node.recursive else None)
        for item in loop:
            inner = Scope(scope, {"loop": loop})
            self._bind(node.target, item, inner)
            if self._run(node.body, inner, out) is nodes.Break:
                break
        if loop.index0 < 0:
            self._run(node.else_, Scope(scope), out)

    def _leave(self, node: nodes.Break | nodes.Continue, scope: Scope, out: list[Text]) -> Signal:
        return type(node)

    def _assign(self, node: nodes.Assign, scope: Scope, out: list[Text]) -> Signal:
        self._bind(node.target, self._value(node.node, scope), scope)
        return None

    def _assign_block(self, node: nodes.AssignBlock, scope: Scope, out: list[Text]) -> Signal:
        value: Value = self._rendered(node.body, Scope(scope))
        if node.filter is not None:
            value = self._filtered(node.filter, value, scope)
        self._bind(node.target, value, scope)
        return None

    def _filter_block(self, node: nodes.FilterBlock, scope: Scope, out: list[Text]) -> Signal:
        inner = Scope(scope)
        value = self._filtered(node.filter, self._rendered(node.body, inner), inner)
        out.append(text_of(self._meter, value))
        return None

    def _with(self, node: nodes.With, scope: Scope, out: list[Text]) -> Signal:
        inner = Scope(scope)
        for target, value in zip(node.targets, node.values, strict=True):
            self._bind(target, self._value(value, scope), inner)
        return self._run(node.body, inner, out)

    def _block(self, node: nodes.Block, scope: Scope, out: list[Text]) -> Signal:
        return self._run(node.body, Scope(scope if node.scoped else self._root), out)

    def _macro(self, node: nodes.Macro, scope: Scope, out: list[Text]) -> Signal:
        scope.values[node.name] = Macro(node, scope)
        return None

    def _call_block(self, node: nodes.CallBlock, scope: Scope, out: list[Text]) -> Signal:
        function, (args, kwargs) = self._called(node.call, scope)
        kwargs["caller"] = Macro(node, scope)
        out.append(text_of(self._meter, self._result(function, args, kwargs)))
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

    # Calls.

    def _called(self, node: nodes.Call, scope: Scope) -> tuple[Value, Arguments]:
        return self._value(node.node, scope), self._arguments(node, scope)

    def _arguments(self, node: nodes.Call | nodes.Filter | nodes.Test, scope: Scope) -> Arguments:
        args = [self._value(part, scope) for part in node.args]
        kwargs: dict[str, Value] = {}
        for part in node.kwargs:
            assert isinstance(part, nodes.Keyword)
            kwargs[part.key] = self._value(part.value, scope)
        if node.dyn_args is not None:
            args += as_list(self._meter, self._value(node.dyn_args, scope))
        if node.dyn_kwargs is not None:
            more = self._value(node.dyn_kwargs, scope)
            if not isinstance(more, Dict):
                raise TypeError(f"argument after ** must be a mapping, not {kind(more)}")
            for key, item in more.items():
                self._meter.spend()
                kwargs[need_text(key).chars] = item
        return args, kwargs

    def _result(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self._meter.spend(16 * (len(args) + len(kwargs)))
        if isinstance(function, Function):
            return function.call(*args, **kwargs)
        if isinstance(function, Macro):
            return self._nested(lambda: self._expanded(function, args, kwargs))
        if isinstance(function, Loop):
            return function.again(*args, **kwargs)
        if isinstance(function, Undefined):
            raise function.fail()
        raise TypeError(f"{kind(function)!r} object is not callable")

    def _nested(self, run: Callable[[], Value]) -> Value:
        self._n_calls += 1
        if self._n_calls > MAX_CALLS:
            raise OverBudget("calls itself too deeply")
        result = run()
        self._n_calls -= 1
        return result

    def _expanded(self, macro: Macro, args: list[Value], kwargs: dict[str, Value]) -> Text:
        names, n_given = macro.arguments, min(len(args), len(macro.arguments))
        scope = Scope(macro.scope, dict(zip(names, args, strict=False)))
        defaults = macro.node.defaults
        for place in range(n_given, len(names)):
            name, default = names[place], place - len(names) + len(defaults)
            if name in kwargs:
                scope.values[name] = kwargs.pop(name)
            elif default >= 0:
                scope.values[name] = self._value(defaults[default], scope)
            else:
                scope.values[name] = Undefined(f"parameter {name!r} was not provided")
        if "caller" in macro.takes and "caller" not in names:
            scope.values["caller"] = kwargs.pop("caller", Undefined("No caller defined"))
        if "kwargs" in macro.takes:
            pairs = ((Text.of(key, TEMPLATE, self._meter), item) for key, item in kwargs.items())
            scope.values["kwargs"] = Dict(self._meter, pairs)
        elif kwargs:
            raise TypeError(
                f"macro {macro.name!r} takes no keyword argument {next(iter(kwargs))[:80]!r}"
            )
        if "varargs" in macro.takes:
            rest = args[len(names) :]
            self._meter.keep(56 + 8 * len(rest))
            scope.values["varargs"] = tuple(rest)
        elif len(args) > len(names):
            raise TypeError(f"macro {macro.name!r} takes not more than {len(names)} argument(s)")
        return self._rendered(macro.node.body, scope)

    # Expressions.

    def _value(self, node: nodes.Node, scope: Scope) -> Value:
        self._meter.spend()
        expression = self._expressions.get(type(node))
        if expression is None:
            raise SecurityError(f"has an expression that is not allowed: {type(node).__name__}")
        return expression(node, scope)

    def _literal(self, node: nodes.Node, chars: str) -> Text:
        found = self._literals.get(id(node))
        if found is None:
            found = self._literals[id(node)] = Text.of(chars, TEMPLATE, self._meter)
        return found

    def _data(self, node: nodes.TemplateData, scope: Scope) -> Value:
        return self._literal(node, node.data)

    def _const(self, node: nodes.Const, scope: Scope) -> Value:
        value = node.value
        if isinstance(value, str):
            return self._literal(node, value)
        return whole(value) if isinstance(value, int) else value

    def _name(self, node: nodes.Name, scope: Scope) -> Value:
        return scope.find(node.name)

    def _list(self, node: nodes.List, scope: Scope) -> Value:
        return Items(self._meter, [self._value(item, scope) for item in node.items])

    def _tuple(self, node: nodes.Tuple, scope: Scope) -> Value:
        self._meter.keep(56 + 8 * len(node.items))
        return tuple(self._value(item, scope) for item in node.items)

    def _dict(self, node: nodes.Dict, scope: Scope) -> Value:
        pairs = [(self._value(p.key, scope), self._value(p.value, scope)) for p in node.items]
        return Dict(self._meter, pairs)

    def _getattr(self, node: nodes.Getattr, scope: Scope) -> Value:
        return get_attribute(self._meter, self._value(node.node, scope), node.attr)

    def _getitem(self, node: nodes.Getitem, scope: Scope) -> Value:
        value = self._value(node.node, scope)
        if not isinstance(node.arg, nodes.Slice):
            return get_item(self._meter, value, self._value(node.arg, scope))
        part = node.arg
        bounds = [
            None if bound is None else self._value(bound, scope)
            for bound in (part.start, part.stop, part.step)
        ]
        return get_slice(self._meter, value, slice(*bounds))

    def _call(self, node: nodes.Call, scope: Scope) -> Value:
        function, (args, kwargs) = self._called(node, scope)
        return self._result(function, args, kwargs)

    def _filter(self, node: nodes.Filter, scope: Scope) -> Value:
        assert node.node is not None
        args, kwargs = self._arguments(node, scope)
        return apply(self._meter, node.name, self._value(node.node, scope), *args, **kwargs)

    def _filtered(self, node: nodes.Filter, value: Value, scope: Scope) -> Value:
        """The filters of a block, of which the innermost takes what the block has."""
        if node.node is not None:
            assert isinstance(node.node, nodes.Filter)
            value = self._filtered(node.node, value, scope)
        args, kwargs = self._arguments(node, scope)
        return apply(self._meter, node.name, value, *args, **kwargs)

    def _test(self, node: nodes.Test, scope: Scope) -> Value:
        args, kwargs = self._arguments(node, scope)
        return check(self._meter, node.name, self._value(node.node, scope), *args, **kwargs)

    def _concat(self, node: nodes.Concat, scope: Scope) -> Value:
        texts = [text_of(self._meter, self._value(part, scope)) for part in node.nodes]
        return Text.join(texts, self._meter)

    def _conditional(self, node: nodes.CondExpr, scope: Scope) -> Value:
        if is_true(self._value(node.test, scope)):
            return self._value(node.expr1, scope)
        if node.expr2 is not None:
            return self._value(node.expr2, scope)
        return Undefined(
            f"the inline if-expression on line {node.lineno} evaluated to false and no else "
            "section was defined."
        )

    def _and(self, node: nodes.And, scope: Scope) -> Value:
        left = self._value(node.left, scope)
        return self._value(node.right, scope) if is_true(left) else left

    def _or(self, node: nodes.Or, scope: Scope) -> Value:
        left = self._value(node.left, scope)
        return left if is_true(left) else self._value(node.right, scope)

    def _not(self, node: nodes.Not, scope: Scope) -> Value:
        return not is_true(self._value(node.node, scope))

    def _unary(self, node: nodes.UnaryExpr, scope: Scope) -> Value:
        return unary(node.operator, self._value(node.node, scope))

    def _binary(self, node: nodes.BinExpr, scope: Scope) -> Value:
        left = self._value(node.left, scope)
        return binary(self._meter, node.operator, left, self._value(node.right, scope))

    def _compare(self, node: nodes.Compare, scope: Scope) -> Value:
        left = self._value(node.expr, scope)
        for operand in node.ops:
            right = self._value(operand.expr, scope)
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
