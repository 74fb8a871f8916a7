"""The rooms stand one above the other: imports go upwards only, and importing is quick."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "arenite"

#: From the top down, as in the design: a room imports from itself and from rooms above it.
ROOMS = [
    "lazy",
    "errors",
    "locks",
    "dtype",
    "device",
    "hazards",
    "memory",
    "ir",
    "frontends",
    "passes",
    "schedule",
    "codegen",
    "program",
    "backends",
    "runtime",
    "fetch",
    "pipeline",
    "tensor",
    "model",
    "generate",
    "loading",
    "exporting",
    "onnxruntime",
    "show",
    "serve",
    "cli",
]


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported_modules(tree: ast.AST) -> list[str]:
    """Modules of the package that a file imports, at its top or inside a function."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [alias.name for alias in node.names]
            found += [f"arenite.{n}" for n in names] if node.module == "arenite" else []
            found += [node.module or ""] if node.module != "arenite" else []
    return [m for m in found if m.split(".")[0] == "arenite" and m != "arenite.__version__"]


def wrong_imports(file: Path, source: str) -> list[str]:
    room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room == "__init__":
        return []
    return [
        f"{file.relative_to(PACKAGE)} imports {module}"
        for module in imported_modules(ast.parse(source))
        if room_of(module) and ROOMS.index(room_of(module)) > ROOMS.index(room)
    ]


def test_every_import_goes_to_the_same_room_or_one_above() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 20
    assert [w for file in files for w in wrong_imports(file, file.read_text())] == []


@pytest.mark.parametrize(
    "line",
    [
        "import arenite.memory",
        "from arenite import memory",
        "from arenite.memory.plan import Slot",
        "def f():\n    from arenite.cli import manner",
    ],
)
def test_an_import_downwards_would_be_seen(line: str) -> None:
    assert wrong_imports(PACKAGE / "device" / "made_up.py", line) != []
    assert wrong_imports(PACKAGE / "cli" / "made_up.py", line) == []


def test_importing_the_package_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys; before = set(sys.modules); import arenite\n"
        "print(*sorted(m for m in sys.modules if m not in before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    heavy = {"numpy", "llvmlite", "onnx", "typer", "rich", "torch", "ml_dtypes", "jinja2"}
    assert "arenite" in loaded
    assert not loaded & heavy


def test_rooms_load_on_first_use() -> None:
    import arenite

    assert arenite.memory.plan([]).peak_nbytes == 0
    assert "device" in dir(arenite)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = arenite.nonsense  # type: ignore[attr-defined]
