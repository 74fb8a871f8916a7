"""Programs of C as executables of their own, with every warning an error and every access checked.

A main reads inputs from a file into blocks of memory of just their size, runs the program, and
writes what it returned; sanitizers end it at the first wrong byte or undefined operation.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arenite.backends.c.header import header
from arenite.backends.c.layout import Layout, SourceOptions
from arenite.backends.c.program import source
from arenite.ir import reference
from arenite.ir.dim import bounds, evaluate
from arenite.ir.element import numpy_dtype, packed, unpacked
from arenite.ir.graph import Graph
from arenite.ir.interface import GraphInterface
from arenite.program.compiled import Compiled
from tests.backends.c.compiled import compiled_c, constants_of
from tests.pipeline.trial import Trial, same

Array = NDArray[Any]

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror")
SANITIZED = (*STRICT, "-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]

#: What is missing where there is no compiler.
needs_compiler = pytest.mark.skipif(
    not COMPILERS, reason="neither gcc nor clang is on the PATH: apt-get install gcc"
)


class CProgram:
    """One program, compiled to an executable in a folder of its own."""

    def __init__(
        self,
        graph: Graph,
        compiler: str = (*COMPILERS, "gcc")[0],
        flags: Sequence[str] = SANITIZED,
        options: SourceOptions | None = None,
        compiled: Compiled | None = None,
    ) -> None:
        self.interface = GraphInterface.of(graph)
        self.options = options or SourceOptions("trial", memory="caller")
        self.compiled = compiled or compiled_c(graph)
        self.layout = Layout(self.compiled, self.interface, self.options)
        self.folder = Path(tempfile.mkdtemp(prefix="arenite-trial-"))
        weakref.finalize(self, shutil.rmtree, self.folder)
        name = self.options.name
        (self.folder / f"{name}.h").write_text(header(self.layout))
        (self.folder / f"{name}.c").write_text(source(self.layout))
        (self.folder / "weights").write_bytes(weights_of(self.layout))
        (self.folder / "main.c").write_text(_main(self.layout))
        line = [compiler, *flags, f"{name}.c", "main.c", "-o", "trial", "-lm"]
        ran = subprocess.run(line, cwd=self.folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[:4000]

    def __call__(self, *arrays: Array, **sizes: int) -> list[Array]:
        [results] = self.calls([arrays], sizes)
        return results

    def calls(
        self, calls: Sequence[Sequence[Array]], sizes: Mapping[str, int]
    ) -> list[list[Array]]:
        """Runs one after the other, of one program with its states; a failed one ends it."""
        raw = bytearray(len(calls).to_bytes(8, "little"))
        for name in (var.name for var in self.layout.sizes):
            raw += int(sizes[name]).to_bytes(8, "little")
        for arrays in calls:
            for array, port in zip(arrays, self.interface.inputs, strict=True):
                held = packed(array, port.dtype) if port.dtype.bits < 8 else array
                raw += held.nbytes.to_bytes(8, "little") + held.tobytes()
        (self.folder / "inputs").write_bytes(raw)
        ran = subprocess.run(
            ["./trial"], cwd=self.folder, capture_output=True, text=True, check=False
        )
        self.status = ran.returncode
        assert ran.returncode < 64, (ran.returncode, ran.stderr[:4000])
        assert not ran.stderr, ran.stderr[:4000]
        if ran.returncode:
            return []
        rest = (self.folder / "outputs").read_bytes()
        found: list[list[Array]] = []
        for _ in calls:
            n_found = len(self.layout.found)
            known = dict(sizes)
            for k, size in enumerate(self.layout.found):
                known[size.name] = int.from_bytes(rest[8 * k : 8 * k + 8], "little")
            rest = rest[8 * n_found :]
            results = []
            for number in self.compiled.outputs:
                value = self.compiled.values[number]
                most = bounds(value.nbytes)[1]
                shape = tuple(evaluate(dim, known) for dim in value.shape)
                one = np.frombuffer(rest[: value.dtype.nbytes(shape)], np.uint8)
                rest = rest[most:]
                if value.dtype.bits < 8:
                    results.append(unpacked(one, value.dtype, shape))
                else:
                    results.append(one.view(numpy_dtype(value.dtype)).reshape(shape))
            found.append(results)
        return found


class CTrial(Trial):
    """A Trial that runs as C."""

    def __init__(self, compiler: str, options: SourceOptions | None = None) -> None:
        super().__init__()
        self.compiler, self.options = compiler, options

    def run(self) -> None:
        expected = reference.evaluate(self.graph, self.arrays)
        program = CProgram(self.graph, self.compiler, options=self.options)
        results = program(*self.arrays)
        for (node, ulps), one, wanted in zip(self.outputs, results, expected, strict=True):
            same(one, wanted, ulps, node)


def weights_of(layout: Layout) -> bytes:
    raw = bytearray(layout.weights_nbytes)
    for number, array in constants_of(layout.compiled, layout.interface).items():
        start = layout.offsets[number]
        raw[start : start + array.nbytes] = array.tobytes()
    return bytes(raw)


def _main(layout: Layout) -> str:
    """Reads `inputs` and `weights`, writes `outputs`; ends with the code of the program."""
    prefix, macro = layout.prefix, layout.macro
    is_static = layout.options.memory == "static"
    self_ = [] if is_static else ["&program"]
    init = [*self_, *([] if is_static else ["memory", f"{macro}_ARENA_BYTES"])]
    lines = [
        f'#include "{layout.options.name}.h"',
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "static void *block(size_t nbytes) { return malloc(nbytes ? nbytes : 1); }",
        "static int64_t number(FILE *file) {",
        "    int64_t n;",
        "    if (fread(&n, 8, 1, file) != 1) exit(97);",
        "    return n;",
        "}",
        "static void *array(FILE *file) {",
        "    const size_t nbytes = (size_t)number(file);",
        "    void *made = block(nbytes);",
        "    if (nbytes && fread(made, 1, nbytes, file) != nbytes) exit(99);",
        "    return made;",
        "}",
        "int main(void) {",
        '    FILE *in = fopen("inputs", "rb"), *out = fopen("outputs", "wb");',
    ]
    if not is_static:
        lines += [
            f"    static {prefix}_program program;",
            f"    void *memory = aligned_alloc(64, ({macro}_ARENA_BYTES + 127) / 64 * 64);",
        ]
    if layout.offsets:
        lines += [
            f"    const size_t n_weights = {macro}_WEIGHTS_BYTES;",
            "    unsigned char *weights = aligned_alloc(64, (n_weights + 127) / 64 * 64);",
            '    FILE *file = fopen("weights", "rb");',
            "    if (fread(weights, 1, n_weights, file) != n_weights) return 98;",
            "    fclose(file);",
        ]
        init.append("weights")
    lines += [
        f"    int code = {prefix}_init({', '.join(init)});",
        "    if (code) return code;",
        "    const int64_t n_calls = number(in);",
    ]
    lines += [f"    const int64_t {name} = number(in);" for name in layout.sizes.values()]
    lines.append("    for (int64_t call = 0; call < n_calls; call++) {")
    arguments = []
    values = [layout.compiled.values[number] for number in layout.compiled.outputs]
    for k in range(len(layout.inputs)):
        lines.append(f"        void *in{k} = array(in);")
        arguments.append(f"in{k}")
    for k, value in enumerate(values):
        lines.append(f"        void *out{k} = block({bounds(value.nbytes)[1]});")
        arguments.append(f"out{k}")
    arguments += layout.sizes.values()
    for k in range(len(layout.found)):
        lines.append(f"        int64_t found{k} = 0;")
        arguments.append(f"&found{k}")
    lines.append(f"        code = {prefix}_run({', '.join([*self_, *arguments])});")
    for k in range(len(layout.found)):
        lines.append(f"        fwrite(&found{k}, 8, 1, out);")
    for k, value in enumerate(values):
        lines.append(f"        fwrite(out{k}, 1, {bounds(value.nbytes)[1]}, out);")
        lines.append(f"        free(out{k});")
    lines += [f"        free(in{k});" for k in range(len(layout.inputs))]
    lines += ["        if (code) break;", "    }", "    fclose(in);", "    fclose(out);"]
    lines += ["    free(memory);"] if not is_static else []
    lines += ["    free(weights);"] if layout.offsets else []
    lines += ["    return code;", "}", ""]
    return "\n".join(lines)
