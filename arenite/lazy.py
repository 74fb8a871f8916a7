"""Names of a package that load on first use, so that importing the package is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_of(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package; `places` are the modules in it, each
    with its names. No name may be that of a module: an import of that would take its place."""
    modules = {name: module for module, names in places.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lister(package), sorted(modules)


def lister(package: str) -> Callable[[], list[str]]:
    """The `__dir__` of a package: what it says is public, and what every module has."""

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted([*module.__all__, *(name for name in vars(module) if name.startswith("__"))])

    return names


def folder_of(package: str) -> str | None:
    """Where a package of others lies, without importing it; None where there is none."""
    found = (finder.find_spec(package, None) for finder in sys.meta_path)
    spec = next((spec for spec in found if spec is not None), None)
    folders = spec.submodule_search_locations if spec is not None else None
    return folders[0] if folders else None


def public_names(names: Mapping[str, object]) -> list[str]:
    """The `__all__` of a package: the classes and functions of its own that it imports."""
    return sorted(
        name
        for name, value in names.items()
        if (getattr(value, "__module__", None) or "").startswith(f"{names['__name__']}.")
    )
