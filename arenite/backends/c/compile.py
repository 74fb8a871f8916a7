"""Kernels become functions of C, those that are alike but for their names one function; and C
becomes a shared object, by the compiler of the system."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from arenite.backends.c.c_types import Names
from arenite.backends.c.helpers import Helpers
from arenite.backends.c.kernel import CKernel, kernel_source
from arenite.backends.c.program import Image
from arenite.codegen.kernels.built import Built
from arenite.codegen.printer import kernel_text
from arenite.errors import CompileFailed, DeviceUnavailable
from arenite.program.backend import Code, KernelCode, OnCompiled
from arenite.program.cached_kernel import ModuleText

COMPILERS = ("cc", "gcc", "clang")
#: For what runs in process; nothing that changes results.
FLAGS = ("-std=c11", "-O2", "-march=native", "-fPIC", "-shared", "-fvisibility=hidden")
_LAST_LINES = 20


def compiled(built: Mapping[int, Built], on_progress: OnCompiled | None = None) -> Code:
    """The functions of kernels; `entry` counts them."""
    helpers = Helpers()
    taken = Names()
    known: dict[str, CKernel] = {}
    kernels: dict[int, KernelCode] = {}
    for k, (number, one) in enumerate(built.items()):
        if on_progress is not None:
            on_progress(k, len(built))
        text = kernel_source(one.loops, "this_kernel", helpers).text
        if text not in known:
            known[text] = kernel_source(one.loops, taken.take(one.loops.name), helpers)
        function = known[text]
        entry = list(known).index(text)
        module = ModuleText.of(function.text)
        size = (one.tiles, 1, 1)
        kernels[number] = KernelCode(function.name, entry, kernel_text(one.loops), module, size)
    if on_progress is not None and built:
        on_progress(len(built), len(built))
    image = Image({one.name: one for one in known.values()}, helpers.names)
    return Code("c", image.to_bytes(), kernels)


@cache
def compiler() -> str:
    """The compiler of the system; DeviceUnavailable without one."""
    for name in COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return path
    raise DeviceUnavailable(
        f'device "c" needs a C compiler, and none of {", ".join(COMPILERS)} is on the PATH; '
        "install gcc or clang (Debian: apt-get install gcc; macOS: xcode-select --install)"
    )


@cache
def identity() -> tuple[str, ...]:
    """The compiler and its version, and the flags."""
    path = compiler()
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return ("c", path, told.stdout.partition("\n")[0], *FLAGS)


def shared_object(sources: Mapping[str, str], flags: Sequence[str] = FLAGS) -> bytes:
    """Files of C, by name, as one shared object; CompileFailed with what the compiler says."""
    with tempfile.TemporaryDirectory(prefix="arenite-c-") as folder:
        compile_files(Path(folder), sources, [compiler(), *flags], "program.so")
        return (Path(folder) / "program.so").read_bytes()


def compile_files(
    folder: Path, sources: Mapping[str, str], command: Iterable[str], target: str
) -> None:
    for name, text in sources.items():
        (folder / name).write_text(text)
    files = [name for name in sources if name.endswith(".c")]
    line = [*command, *files, "-o", target, "-lm"]
    ran = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        said = "\n".join(ran.stderr.strip().split("\n")[:_LAST_LINES])
        raise CompileFailed(f"{' '.join(line)} failed:\n{said}")


def content_key(sources: Mapping[str, str]) -> str:
    """What is compiled and by what, hashed."""
    hashed = hashlib.sha256()
    for part in (*identity(), *sources, *sources.values()):
        hashed.update(part.encode() + b"\0")
    return hashed.hexdigest()
