"""Classes of the CPU's back end and of the loop builders hold what they use, and inherit little."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import arenite.backends.cpu
import arenite.codegen.kernels


@pytest.mark.parametrize(
    "package", [arenite.backends.cpu, arenite.codegen.kernels], ids=["cpu", "kernels"]
)
def test_a_class_stands_at_most_two_deep(package: object) -> None:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")  # type: ignore[attr-defined]
    ]
    deep = {
        f"{cls.__module__}.{cls.__qualname__}": len(lineage)
        for module in modules
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__
        if len(lineage := [base for base in cls.__mro__ if base.__module__.startswith("arenite.")])
        > 2
    }
    assert not deep
