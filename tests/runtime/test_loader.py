"""Code in memory: executable, never writable at the same time, gone after close."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

from arenite.backends.cpu.compiling import loader
from arenite.backends.cpu.compiling.link import CodeImage, link_objects
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES, compile_object
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.driver import native
from arenite.backends.cpu.target import X86_64
from arenite.errors import InvalidArgument


@pytest.fixture(scope="module")
def answer() -> CodeImage:
    text = f"define hidden i64 @answer() {FUNCTION_ATTRIBUTES} {{\n ret i64 42\n}}"
    return link_objects([compile_object(text, X86_64)])


def protection(address: int) -> str:
    """How the system has mapped an address: `r-xp`, or nothing where it is not."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end, flags = re.match(r"(\w+)-(\w+) (\S+)", line).groups()  # type: ignore[union-attr]
        if int(start, 16) <= address < int(end, 16):
            return flags
    return ""


def call(address: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(address)())


def test_loaded_code_runs_and_can_not_be_written(answer: CodeImage) -> None:
    code = load_code(answer.image)
    address = code.address(answer.entries["answer"])
    assert call(address) == 42
    assert protection(address) == "r-xp"
    code.close()
    assert protection(address) == ""
    code.close()
    with pytest.raises(InvalidArgument, match="was closed"):
        code.address(0)
    assert "closed" in repr(code)


def test_where_memory_can_not_be_made_executable_a_file_in_memory_serves(
    answer: CodeImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(view: memoryview) -> int:
        raise PermissionError(13, "not allowed")

    monkeypatch.setattr(loader, "_map_and_protect", forbidden)
    code = load_code(answer.image)
    assert call(code.address(answer.entries["answer"])) == 42
    assert protection(code.base).startswith("r-x")
    code.close()


def test_offsets_are_checked(answer: CodeImage) -> None:
    code = load_code(answer.image)
    for offset in (-1, code.nbytes, 2**40):
        with pytest.raises(InvalidArgument, match="not within"):
            code.address(offset)
    code.close()
    with pytest.raises(InvalidArgument, match="no bytes"):
        load_code(b"")


def test_the_runtime_image_stays() -> None:
    code = native.runtime().code
    with pytest.raises(InvalidArgument, match="stays"):
        code.close()
    assert protection(code.base) == "r-xp"


def test_a_warm_process_never_imports_the_compiler(cache_folder: Path) -> None:
    native.runtime()
    code = (
        "import sys\n"
        "from arenite.backends.cpu.driver import native\n"
        "from tests.runtime.table_builder import TableBuilder\n"
        "bound = native.BoundTable(*TableBuilder().finish())\n"
        "assert bound.run().kind == 0 and bound.run(threads=2).kind == 0\n"
        "assert not {'llvmlite', 'arenite.backends.cpu.driver.driver_ir'} & {*sys.modules}"
    )
    root = Path(__file__).parent.parent.parent
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


BEGUN = """
import sys, threading
from arenite.backends.cpu.driver import native
from arenite.errors import CompileFailed
build, are_counted = native._build, threading.Event()
def late():
    are_counted.wait()
    if sys.argv[1] == "fails":
        raise CompileFailed("nothing is compiled here")
    return build()
native._build = late
for _ in range(2):
    native.begin_runtime()
threads = [one for one in threading.enumerate() if one is not threading.main_thread()]
are_counted.set()
for one in threads:
    one.join()
print(len(threads), native._runtime is not None)
try:
    native.runtime()
except CompileFailed as failure:
    print(failure)
"""


@pytest.mark.parametrize(
    ("how", "told"), [("works", ["1 True"]), ("fails", ["1 False", "nothing is compiled here"])]
)
def test_the_runtime_image_is_begun_once_and_tells_who_asks(
    how: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARENITE_CACHE_DIR", str(tmp_path))
    given = [sys.executable, "-c", BEGUN, how]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == told
    assert not done.stderr
