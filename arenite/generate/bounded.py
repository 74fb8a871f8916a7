"""BoundedEnvironment: Jinja for templates that strangers wrote.

Jinja's sandbox keeps a template from reaching Python; this one also keeps it from running for ever
and from filling the memory. Every loop turn, call, filter and joined text costs steps, more for
larger values, and a render has so many steps. No value may grow over a size. What the sandbox can't
see (loops, comparisons, slices, lists) is rewritten into calls before the template is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from arenite.generate.priced import (
    ELEMENT_SIZE,
    MAX_INTEGER_BITS,
    MAX_WIDTH,
    OverBudget,
    as_text,
    charged,
    counted,
    formatted,
    indent,
    join,
    length_of,
    replace,
    rounded,
    size_of,
    spend,
    text_of,
    to_json,
)

_METHODS = frozenset(
    "capitalize casefold copy count endswith find format get index isalnum isalpha isdecimal "
    "isdigit islower isnumeric isspace istitle isupper items join keys lower lstrip partition "
    "removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines "
    "startswith strip swapcase title upper values".split()
)
_FILTERS = (
    "abs capitalize count d default dictsort first float groupby int items last length list lower "
    "map max min reject rejectattr reverse select selectattr sort title trim unique upper"
).split()
#: Filters and tests that compare values, down to all that is in them.
_COMPARING = frozenset(
    "dictsort groupby max min sort unique in eq == equalto ne != lt < lessthan le <= gt > "
    "greaterthan ge >=".split()
)


#: Filters that only look at a value from outside.
_GLANCING = frozenset("count d default first last length".split())


def _paid(function: Callable[..., Any], price: Callable[[Any], int]) -> Callable[..., Any]:
    """A filter or test that pays for what it is given and for what it returns."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        spend(sum(map(price, (*args, *kwargs.values()))))
        result = function(*args, **kwargs)
        spend(0 if price is _glance else length_of(result))
        return result

    return run


def _glance(_value: Any) -> int:
    return ELEMENT_SIZE


class _Generation(Extension):
    """The tag that marks a model's own words for training; its content is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox with a budget. Compile and render inside `budget_for`."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])
    charged = staticmethod(charged)
    counted = staticmethod(counted)
    concat = staticmethod(join)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=as_text,
            extensions=[_Generation, loopcontrols],
        )
        filters: dict[str, Any] = {}
        tests: dict[str, Any] = self.tests
        self.tests = {
            name: _paid(test, size_of if name in _COMPARING else _glance)
            for name, test in tests.items()
        }
        for name in _FILTERS:
            price = size_of if name in _COMPARING else _glance if name in _GLANCING else length_of
            filters[name] = _paid(self.filters[name], price)
        self.filters = filters
        self.filters |= {
            "format": formatted,
            "indent": indent,
            "join": join,
            "replace": replace,
            "round": rounded,
            "safe": str,
            "string": text_of,
            "tojson": to_json,
        }
        self.globals = {
            "range": self.globals["range"],
            "namespace": self.globals["namespace"],
            "cycler": self.globals["cycler"],
            "joiner": self.globals["joiner"],
            "dict": lambda *args, **kwargs: dict(*args, **kwargs),
        }

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            return formatted(left, *(right if isinstance(right, tuple) else (right,)))
        if operator == "+":
            spend(length_of(left) + length_of(right))
        elif isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            grown = bits * max(right, 0) if operator == "**" else bits + right.bit_length()
            if grown > MAX_INTEGER_BITS:
                raise OverBudget(f"makes a number of over {MAX_INTEGER_BITS} bits")
            spend()
        elif operator == "*":
            times, value = (left, right) if isinstance(left, int) else (right, left)
            spend(length_of(value) * max(times, 0) if isinstance(times, int) else 0)
        return super().call_binop(context, operator, left, right)

    def call(*args: Any, **kwargs: Any) -> Any:
        self, context, called, *given = args
        owner = getattr(called, "__self__", None)
        if isinstance(owner, str | list | tuple | dict | int | float | bytes):
            name = getattr(called, "__name__", "")
            if name not in _METHODS:
                raise SecurityError(f"calls {type(owner).__name__}.{name}")
            if isinstance(owner, str) and name == "replace":
                return replace(owner, *given)
            if isinstance(owner, str) and name == "join":
                return join(given[0] if given else (), owner)
        is_ours = isinstance(called, Macro | LoopContext) or called in (charged, counted, join)
        if is_ours:
            spend(ELEMENT_SIZE * (len(given) + len(kwargs)))
        else:  # it may compare or hash what it is given
            searched = owner if isinstance(owner, str | list | tuple) else None
            spend(sum(map(size_of, (searched, *given, *kwargs.values()))))
        result = ImmutableSandboxedEnvironment.call(self, context, called, *given, **kwargs)
        return result if is_ours else counted(result)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        plain = super().wrap_str_format(value)
        if plain is None:
            return None
        text = value.__self__

        def run(*args: Any, **kwargs: Any) -> str:
            if re.search(r"\{[^{}]*(\{|\d{4,})", text.replace("{{", "")):
                raise SecurityError(f"formats a field wider than {MAX_WIDTH} characters")
            size = sum(size_of(as_text(value)) for value in (*args, *kwargs.values()))
            spend(text.count("{") * (size + MAX_WIDTH) + len(text))
            return plain(*args, **kwargs)

        return run

    def bounded(self, source: str) -> nodes.Template:
        """A template's tree, with a price on what the sandbox can't see."""
        tree: nodes.Template = _Price().visit(self.parse(source))
        tree.set_environment(self)
        return tree


def _call(name: str, *values: nodes.Node, line: int) -> nodes.Call:
    function = nodes.EnvironmentAttribute(name, lineno=line)
    return nodes.Call(function, list(values), [], None, None, lineno=line)


class _Price(NodeTransformer):
    """Rewrites what the sandbox can't see into calls of the environment."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _call("counted", node.iter, line=node.lineno)
        turn = _call("counted", nodes.Const(0, lineno=node.lineno), line=node.lineno)
        node.body.insert(0, nodes.ExprStmt(turn, lineno=node.lineno))
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _charged(node.expr)
        for operand in node.ops:
            operand.expr = _charged(operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _call("counted", node.node, line=node.lineno)
        else:
            node.arg = _charged(node.arg)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        values = nodes.Tuple(node.nodes, "load", lineno=node.lineno)
        return _call("concat", values, line=node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("counted", node, line=node.lineno)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        for pair in node.items:
            pair.key = _charged(pair.key)
        return _call("counted", node, line=node.lineno)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("counted", node, line=node.lineno) if node.ctx == "load" else node


def _charged(node: nodes.Node) -> Any:
    """What is compared or hashed, at the price of all that is in it."""
    is_constant = isinstance(node, nodes.Const)
    return node if is_constant else _call("charged", node, line=node.lineno)
