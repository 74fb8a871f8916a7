"""Names of the tensors and arrays that a function closes over, as its source refers to them.

In: a function. Out: `w`, `params.layer0.wq`, `self.weights[3]`: what it can reach through its
closure, the globals it mentions, its defaults and the object it is a method of, in containers, in
objects, and in the functions it mentions. What is nearest counts. Nothing of the user's is run: no
property, no `__getattr__`, no `__iter__`; and no more is looked at than the limits say.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from types import (
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, TypeAlias

import numpy as np

from arenite.errors import printable
from arenite.ir.node import Node, Origin, Origins
from arenite.tensor.base import ARRAY_NAMES, Base

#: Values that are looked at for one function, and of each container, object or module.
MAX_VALUES = 20_000
MAX_ITEMS = 4096
#: Containers in one another.
MAX_DEPTH = 8
#: Characters of a name, and nodes between a tensor and the array that it was made of.
MAX_LENGTH = 120
MAX_NODES = 64

#: Whose objects and functions hold no weights of the user's.
_NOT_LOOKED_INTO = frozenset({"arenite", "builtins", "numpy", "ml_dtypes"})
_SOURCES = ("constant", "buffer")
#: How Python itself gets at these, whatever a class says.
_NODE = Base.__dict__["_node"]
_CLASS_DICT, _MODULE_DICT = type.__dict__["__dict__"], vars(ModuleType)["__dict__"]
_NAMESPACE_DICT = vars(SimpleNamespace)["__dict__"]
_MRO = type.__dict__["__mro__"]

#: A value by what it is called, and how deep it lies.
_Found: TypeAlias = tuple[str, Any, int]


class ClosureNames:
    """What a function calls the tensors and arrays that it closes over."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._tensors: list[tuple[str, Node]] = []
        self._arrays: dict[int, tuple[str, Any]] = {}  # by id; keeps them, and so their ids
        self._of_arrays: dict[Node, str] = {}
        for name, value in _reached(function):
            if issubclass(type(value), Base):
                self._tensors.append((name, _NODE.__get__(value)))
            else:
                self._arrays.setdefault(id(value), (name, value))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While a function is traced: hear what nodes its arrays become."""
        token = ARRAY_NAMES.set(self._hear)
        try:
            yield
        finally:
            ARRAY_NAMES.reset(token)

    def _hear(self, array: object, node: Node) -> None:
        known = self._arrays.get(id(array))
        if known is not None:
            self._of_arrays.setdefault(node, known[0])

    def give_to(self, origins: Origins, nodes: list[Node]) -> None:
        """Name those of the nodes that hold data and have no name."""
        names = {node: name for name, node in reversed(self._tensors) if node.op in _SOURCES}
        names |= {node: name for node, name in self._of_arrays.items() if node not in names}
        for name, node in self._tensors:
            source = None if node.op in _SOURCES else _only_source(node)
            if source is not None:
                names.setdefault(source, name)
        for node in nodes:
            known = origins.of(node)
            if node in names and not any(origin.name for origin in known):
                file, line, _ = known[0] if known else Origin("")
                origins.put(node, Origin(file, line, _shown(names[node])), *known)


def _only_source(node: Node) -> Node | None:
    """The array that a tensor was made of, if it is one: `w.T`, `w * 2`."""
    sources: set[Node] = set()
    seen = {node}
    pending = [node]
    while pending:
        one = pending.pop()
        if one.op in _SOURCES:
            sources.add(one)
        for value in one.inputs:
            if value not in seen:
                seen.add(value)
                pending.append(value)
        if len(sources) > 1 or len(seen) > MAX_NODES:
            return None
    return next(iter(sources), None)


def _shown(name: str) -> str:
    """A name as it may be sent to a terminal, and not longer than people read."""
    text = printable(name[: MAX_LENGTH + 1])
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"


def _reached(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Tensors and arrays with their names, near ones first."""
    pending: deque[_Found] = deque([("", function, 0)])
    seen: dict[int, Any] = {}  # keeps them, and so their ids
    left = MAX_VALUES
    while pending:
        name, value, depth = pending.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        kind = type(value)
        if issubclass(kind, Base | np.ndarray):
            yield name, value
        elif depth < MAX_DEPTH and len(name) <= MAX_LENGTH:
            some = list(islice(_inside(name, value, kind, depth + 1), min(left, MAX_ITEMS)))
            left -= len(some)
            pending.extend(some)


def _inside(name: str, value: Any, kind: type, depth: int) -> Iterator[_Found]:
    """What a value holds, by name."""
    if kind is FunctionType:
        yield from _of_function(name, value, depth)
    elif kind is MethodType:
        yield from _of_method(name, value.__func__, value.__self__, depth)
    elif kind is functools.partial:
        yield from _of_partial(name, value, depth)
    elif issubclass(kind, dict):
        for key, item in dict.items(value):
            if type(key) is str:
                yield (f"{name}.{key}", item, depth)
            elif type(key) is int:
                yield (f"{name}[{key}]", item, depth)
    elif issubclass(kind, list | tuple):
        names = _field_names(kind)
        items = list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value)
        for k, item in enumerate(items):
            yield (f"{name}.{names[k]}" if k < len(names) else f"{name}[{k}]", item, depth)
    elif kind is SimpleNamespace:
        yield from _named_items(f"{name}.", _NAMESPACE_DICT.__get__(value), depth)
    elif not issubclass(kind, type | ModuleType) and _is_users(kind):
        yield from _of_object(name, value, kind, depth)


def _field_names(kind: type) -> tuple[str, ...]:
    """Those of a named tuple."""
    fields = next((_own(one)["_fields"] for one in _mro(kind) if "_fields" in _own(one)), ())
    is_names = type(fields) is tuple and all(type(field) is str for field in fields)
    return fields if is_names else ()


def _of_function(name: str, function: FunctionType, depth: int) -> Iterator[_Found]:
    """The cells and globals that its code refers to, and what its parameters are by default. In
    functions that are made several times cells are told apart by what the function is called."""
    known = function.__globals__
    if _package(dict.get(known, "__name__")) in _NOT_LOOKED_INTO:
        return
    code, prefix = function.__code__, name and f"{name}."
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield (prefix + variable, cell.cell_contents, depth)
        except ValueError:  # it is empty
            continue
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    for variable, value in zip(positional[::-1], defaults[::-1], strict=False):
        yield (prefix + variable, value, depth)
    yield from _named_items(prefix, function.__kwdefaults__, depth)
    mentioned = _mentioned(code)
    used = [one for one in mentioned if dict.__contains__(known, one)]
    yield from _meant([(one, dict.__getitem__(known, one), depth) for one in used], mentioned)


def _meant(found: list[_Found], mentioned: dict[str, None]) -> Iterator[_Found]:
    """Values that code may mean; of modules and classes what it mentions of them, near ones
    first."""
    pending = deque(found)
    seen: set[int] = set()
    while pending:
        name, value, depth = pending.popleft()
        if not issubclass(type(value), ModuleType | type):
            yield (name, value, depth)
        elif depth < MAX_DEPTH and id(value) not in seen and _is_users(value):
            seen.add(id(value))
            inside = _own(value)
            pending += [(f"{name}.{k}", inside[k], depth + 1) for k in mentioned if k in inside]


def _mentioned(code: CodeType) -> dict[str, None]:
    """Names of globals and attributes in a function, and in those inside it."""
    names: dict[str, None] = {}
    pending = [code]
    while pending and len(names) < MAX_ITEMS:
        one = pending.pop()
        names |= dict.fromkeys(one.co_names)
        pending += [inner for inner in one.co_consts if type(inner) is CodeType]
    return names


def _of_method(name: str, function: Any, owner: Any, depth: int) -> Iterator[_Found]:
    if type(function) is FunctionType:
        code = function.__code__
        first = (*code.co_varnames[: code.co_argcount], "self")[0]
        owners = f"{name}.{first}" if name else first
        yield from _meant([(owners, owner, depth - 1)], _mentioned(code))
        yield (name, function, depth - 1)


def _of_partial(name: str, value: functools.partial[Any], depth: int) -> Iterator[_Found]:
    function, prefix = value.func, name and f"{name}."
    if type(function) is FunctionType:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        yield from ((prefix + k, v, depth) for k, v in zip(names, value.args, strict=False))
    yield from _named_items(prefix, value.keywords, depth)
    yield (name, function, depth - 1)


def _of_object(name: str, value: Any, kind: type, depth: int) -> Iterator[_Found]:
    """What an object has by itself, what its class has for all, and what its methods mention."""
    prefix = f"{name}." if name else "self."
    methods: list[FunctionType] = []
    for one in _mro(kind):
        for attribute, held in islice(_own(one).items(), MAX_ITEMS):
            if type(held) is FunctionType:
                methods.append(held)
            elif attribute == "__dict__" and type(held) is GetSetDescriptorType:
                yield from _named_items(prefix, held.__get__(value), depth)
            elif type(held) is MemberDescriptorType:
                try:
                    yield (f"{prefix}{attribute}", held.__get__(value), depth)
                except AttributeError:  # it was not set
                    continue
            elif issubclass(type(held), Base | np.ndarray | dict | list | tuple):
                yield (f"{prefix}{attribute}", held, depth)
    yield from (("", method, depth) for method in methods)


def _named_items(prefix: str, items: dict[Any, Any] | None, depth: int) -> Iterator[_Found]:
    if items is not None:
        for key, item in dict.items(items):
            if type(key) is str:
                yield (prefix + key, item, depth)


def _mro(kind: type) -> tuple[type, ...]:
    """The classes that are not Python's or ours."""
    return tuple(one for one in _MRO.__get__(kind) if _is_users(one))


def _own(value: type | ModuleType) -> Mapping[Any, Any]:
    """What is in a class or a module itself."""
    reader = _MODULE_DICT if issubclass(type(value), ModuleType) else _CLASS_DICT
    inside: Mapping[Any, Any] = reader.__get__(value)
    return inside


def _is_users(value: type | ModuleType) -> bool:
    """Whether a class or a module is neither Python's own nor one of the libraries beneath."""
    key = "__name__" if issubclass(type(value), ModuleType) else "__module__"
    return _package(_own(value).get(key, "builtins")) not in _NOT_LOOKED_INTO


def _package(module: Any) -> str:
    return module.partition(".")[0] if type(module) is str else ""
