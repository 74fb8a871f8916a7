"""wgpu's declarations are parsed once on a machine; where tables of them are wrong, again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.webgpu.runner import webgpu

CODE = """
import sys
import numpy as np
from arenite.backends.webgpu import declarations
made = declarations._tables
HERE
import arenite
program = arenite.compile(lambda x: x + 1, np.zeros(3, np.float32), device="webgpu")
assert program(np.ones(3, np.float32)).tolist() == [2, 2, 2]
program.profile(np.ones(3, np.float32))
print("pycparser" in sys.modules)
"""


def run(folder: Path, here: str = "") -> str:
    """Whether a new process, with a cache of its own, has parsed anything."""
    environment = {**os.environ, "ARENITE_CACHE_DIR": str(folder)}
    code = [sys.executable, "-c", CODE.replace("HERE", here)]
    done = subprocess.run(code, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_they_are_parsed_by_the_first_process_alone(tmp_path: Path) -> None:
    webgpu()
    assert [run(tmp_path) for _ in range(2)] == ["True", "False"]


@pytest.mark.parametrize(
    "tables",
    [
        "{}",
        '{"_version": 3, "_types": b"x"}',
        "{**made(header), '_globals': made(header)['_globals'][:400]}",
        "{}['damaged']",
    ],
)
def test_tables_that_are_wrong_are_not_used(tmp_path: Path, tables: str) -> None:
    webgpu()
    assert run(tmp_path, f"declarations._tables = lambda header: {tables}") == "True"


def test_who_has_imported_wgpu_already_keeps_it(tmp_path: Path) -> None:
    webgpu()
    run(tmp_path)
    assert run(tmp_path, "import wgpu.backends.wgpu_native") == "True"


def test_others_that_ask_for_a_parser_meanwhile_get_one() -> None:
    webgpu()
    import cffi  # type: ignore[import-untyped]

    from arenite.backends.webgpu.declarations import _declared

    with _declared({}):
        found = cffi.FFI()
    found.cdef("typedef struct { int a; } pair;")
    assert isinstance(found, cffi.FFI)
    assert found.sizeof("pair") == 4
