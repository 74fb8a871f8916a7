"""The rooms stand one above the other: imports go upwards only, and importing is quick."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import arenite.backends.cpu.ops  # noqa: F401
from arenite.codegen import loop_ir
from arenite.ir.ops import OPS

PACKAGE = Path(__file__).parent.parent / "arenite"

#: From the top down, as in the design: a room imports from itself and from rooms above it.
ROOMS = [
    "lazy",
    "digests",
    "saved_json",
    "records",
    "errors",
    "locks",
    "garbage",
    "dtype",
    "device",
    "show",
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
    "serve",
    "cli",
    "__main__",
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
        "def f():\n    from arenite.cli import output",
    ],
)
def test_an_import_downwards_would_be_seen(line: str) -> None:
    assert wrong_imports(PACKAGE / "device" / "made_up.py", line) != []
    assert wrong_imports(PACKAGE / "cli" / "made_up.py", line) == []


#: Rooms that ask what an op is, and may not know it themselves. What makes nodes names ops.
ASKING = ["memory", "ir", "passes", "schedule", "codegen", "program", "runtime", "pipeline"]
#: Ops that the CPU has made up for its kernels.
LAYOUTS = {op.name for op in OPS.values() if op.infer.__module__.startswith("arenite.backends.cpu")}
#: Those of the loop IR, which has some names in common with the graph's ops.
LOOP_IR = loop_ir.UNARY_OPS | loop_ir.BINARY_OPS | loop_ir.ACCUMULATE_OPS | {"argmax", "argmin"}


def outside_of_cpu() -> list[Path]:
    cpu = PACKAGE / "backends" / "cpu"
    return [file for file in sorted(PACKAGE.rglob("*.py")) if cpu not in file.parents]


def cpu_words(source: str) -> list[str]:
    """What only the CPU's back end may say: its compiler, and the names of its layouts."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("llvmlite")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("llvmlite"):
            found.append(node.module or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [word for word in node.value.split() if word in LAYOUTS]
    return found


def test_only_the_cpu_knows_its_compiler_and_its_layouts() -> None:
    assert len(LAYOUTS) > 8
    words = {str(file): cpu_words(file.read_text()) for file in outside_of_cpu()}
    assert {file: found for file, found in words.items() if found} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from llvmlite import binding",
        "def f():\n    import llvmlite.binding",
        'is_packed = node.op == "matmul_panels"',
        '_PACKED = frozenset("conv_last depthwise_last".split())',
    ],
)
def test_what_only_the_cpu_knows_would_be_seen(line: str) -> None:
    assert cpu_words(line) != []


def op_sets(room: str, source: str) -> list[list[str]]:
    """Collections of names of ops: a property that belongs in their definitions. What a pass
    compares with is what it rewrites."""
    tree = ast.parse(source)
    compared = [node for one in ast.walk(tree) if isinstance(one, ast.Compare)
                for node in one.comparators]  # fmt: skip
    found = []
    for node in ast.walk(tree):
        names: list[object] = []
        if isinstance(node, ast.Set | ast.Tuple | ast.List):
            names = [one.value if isinstance(one, ast.Constant) else None for one in node.elts]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [*node.value.split()]
        words = [name for name in names if isinstance(name, str) and name in OPS]
        if len(words) < 2 or len(words) < len(names):
            continue
        if (room == "passes" and node in compared) or (room == "codegen" and {*words} <= LOOP_IR):
            continue
        found.append(words)
    return found


def test_what_an_op_is_stands_in_its_definition() -> None:
    found = {}
    for room in ASKING:
        for file in sorted((PACKAGE / room).rglob("*.py")):
            if file.parent.name not in ("ops", "compose"):
                found[str(file)] = op_sets(room, file.read_text())
    assert len(found) > 100
    assert {file: sets for file, sets in found.items() if sets} == {}


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("schedule", 'CONSTRUCTS = frozenset({"branch", "loop", "cut", "host"})'),
        ("schedule", 'is_piece = node.op in ("concat", "pad")'),
        ("passes", '_CHEAP = frozenset("full iota size".split())'),
        ("codegen", 'is_sort = node.op in ("sort", "argsort")'),
    ],
)
def test_a_set_of_ops_would_be_seen(room: str, line: str) -> None:
    assert op_sets(room, line) != []


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
