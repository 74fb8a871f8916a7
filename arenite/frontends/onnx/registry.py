"""Operators by domain, name and the version of the operator set since which they mean this.

    @operator("Clip", since=11)
    def clip(call: Call) -> Result: ...

A handler reads its inputs and attributes through `Call` and returns the value of its output, or a
tuple of values. Of several versions that one is taken that is the newest not above the model's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from arenite.frontends.onnx.values import AnyValue
from arenite.ir import Node

if TYPE_CHECKING:
    from arenite.frontends.onnx.call import Call

#: What a handler returns: nodes become values.
Output: TypeAlias = Node | AnyValue | None
Result: TypeAlias = Output | Sequence[Output]
Handler: TypeAlias = Callable[["Call"], Result]

DEFAULT, ML, MICROSOFT = "", "ai.onnx.ml", "com.microsoft"
TRAINING, PREVIEW = "ai.onnx.preview.training", "ai.onnx.preview"

#: (domain, name) to [(since, handler)], newest first.
OPERATORS: dict[tuple[str, str], list[tuple[int, Handler]]] = {}
#: Operators whose outputs do not follow from their inputs alone.
IMPURE: set[tuple[str, str]] = set()


def operator(
    *names: str, since: int = 1, domain: str = DEFAULT, pure: bool = True
) -> Callable[[Handler], Handler]:
    """Say what operators mean from a version on. `pure`: outputs follow from the inputs alone."""

    def add(handler: Handler) -> Handler:
        for name in names:
            versions = OPERATORS.setdefault((domain, name), [])
            assert since not in [version for version, _ in versions], f"{name} is defined twice"
            versions.append((since, handler))
            versions.sort(key=lambda pair: -pair[0])
            if not pure:
                IMPURE.add((domain, name))
        return handler

    return add


def handler_of(domain: str, name: str, version: int) -> Handler | None:
    """The handler for an operator in a version of its domain's operator set."""
    for since, handler in OPERATORS.get((domain, name), ()):
        if since <= version:
            return handler
    return None
