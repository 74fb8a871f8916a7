"""What people see of the package: names, types and docstrings, in help(), dir() and checkers."""

from __future__ import annotations

import ast
import inspect
import pydoc
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

import arenite
from arenite.generate.sampling import Sampling, SamplingOptions
from arenite.tensor import functions

ROOMS = (
    "device dtype errors fetch frontends.gguf frontends.language frontends.safetensors generate "
    "hazards ir memory passes schedule tensor"
).split()


def imported_for_types(module: str) -> set[str]:
    """The names that a package imports for those who read types alone."""
    path = Path(import_module(module).__file__ or "")
    tree = ast.parse(path.read_text())
    blocks = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.name
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_checkers_see_every_name_at_the_top() -> None:
    tensor = set(import_module("arenite.tensor").__all__)
    assert imported_for_types("arenite") - {"*"} | tensor == {*arenite._NAMES, *arenite._ROOMS}
    assert set(import_module("arenite").__all__) == {*arenite._NAMES, *arenite._ROOMS}
    imported = ast.parse(Path(arenite.tensor.__file__).read_text()).body
    names = [node.names for node in imported if isinstance(node, ast.ImportFrom)]
    defined = ast.parse(Path(functions.__file__).read_text()).body
    own = {node.name for node in defined if isinstance(node, ast.FunctionDef)}
    own |= {ast.unparse(node.targets[0]) for node in defined if isinstance(node, ast.Assign)}
    public = {name for name in own if not name.startswith("_")}
    assert tensor == {alias.name for some in names for alias in some if alias.asname} | public


@pytest.mark.parametrize("room", ["generate", "hazards", "ir"])
def test_checkers_see_every_name_of_rooms_that_load_late(room: str) -> None:
    assert set(import_module(f"arenite.{room}").__all__) == imported_for_types(f"arenite.{room}")


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_dir_shows_what_is_public(room: str) -> None:
    module = import_module(f"arenite.{room}".rstrip("."))
    public = [name for name in dir(module) if not name.startswith("_")]
    if "__dir__" in vars(module):
        assert public == sorted(module.__all__)
    for name in public:
        getattr(module, name)


def test_everything_can_be_imported_with_a_star() -> None:
    found: dict[str, object] = {}
    exec("from arenite import *", found)
    assert set(import_module("arenite").__all__) <= set(found)


def test_help_lists_functions() -> None:
    page = pydoc.plain(pydoc.render_doc(arenite))
    for said in ("load(", "compile(", "spec(", "class LanguageModel", "class Tensor"):
        assert said in page


def undocumented() -> Iterator[str]:
    for room in ROOMS:
        module = import_module(f"arenite.{room}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            if not value.__doc__:
                yield f"{room}.{name}"
            if inspect.isclass(value):
                yield from (f"{room}.{name}.{member}" for member in _silent_members(value))


def _silent_members(kind: type) -> Iterator[str]:
    for name in dir(kind):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("arenite"):
            continue
        member = vars(owner)[name]
        is_told = inspect.isfunction(member) or isinstance(
            member, property | staticmethod | classmethod
        )
        if (is_told or hasattr(member, "attrname")) and not inspect.getdoc(member):
            yield name


def test_every_public_name_says_what_it_is() -> None:
    assert list(undocumented()) == []


def test_options_of_sampling_have_the_types_that_sampling_has() -> None:
    assert get_type_hints(SamplingOptions) == get_type_hints(Sampling)


def typed_calls(lm: arenite.LanguageModel) -> None:
    """Never called: here the checker says whether it sees what it should, for an `ignore` that is
    not needed is an error."""
    lm.generate("text", temperature=0.5, stop="end", max_tokens=3)
    lm.generate("text", temprature=0.5)  # type: ignore[call-arg]
    lm.session().chat([], seed="one")  # type: ignore[arg-type]
    arenite.load("model.gguf", contxt=3)  # type: ignore[call-overload]
    arenite.load("model.gguf").generate("text", temprature=0.5)  # type: ignore[call-arg]
    arenite.load("model.onnx").generat("text")  # type: ignore[attr-defined]
    arenite.load("model.gguf").plan.total_nbytes + arenite.load("model.onnx").plan(batch=2)
    arenite.zeroes((3,))  # type: ignore[attr-defined]
    arenite.compile(3)  # type: ignore[arg-type]
    arenite.device.get(3)  # type: ignore[arg-type]
