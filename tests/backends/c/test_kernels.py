"""Random nests of loops, branches, accumulators and stores as C, against the interpreter of the
loop IR; many in one file, since a compiler takes longer to start than to compile them."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from arenite.backends.c.helpers import Helpers
from arenite.backends.c.kernel import kernel_source
from arenite.backends.c.program import head
from arenite.backends.c.shared_object import FLAGS
from arenite.codegen import loop_ir as ir
from tests.backends.c.executables import COMPILERS, STRICT, needs_compiler
from tests.codegen import interpreter
from tests.codegen.building import I32, Guarded, same
from tests.codegen.test_random_kernels import INPUT_LENGTH, MOST, Maker, Place, block, store

pytestmark = needs_compiler

N_KERNELS = 8
N_TILES = 3
#: In vectors, and with every undefined operation caught.
BUILDS = (
    [*STRICT, *FLAGS],
    [*STRICT, "-O1", "-fPIC", "-shared", "-fsanitize=undefined", "-fno-sanitize-recover=all"],
)


def random_kernel(data: st.DataObject) -> tuple[ir.LoopKernel, list[int]]:
    maker = Maker(data.draw)
    body = (*block(maker, Place(("tile",))), store(maker, Place(("tile",))))
    outputs = tuple(ir.ArrayArg(f"y{at}", I32, "inout") for at in range(len(maker.outputs)))
    arrays = (ir.ArrayArg("x", I32, "in"), *outputs)
    kernel = ir.LoopKernel("random", arrays, ("m", "n"), ir.index(N_TILES), "tile", body)
    return kernel, maker.outputs


def file_of(kernels: list[ir.LoopKernel]) -> str:
    """A file with `kernelK(arrays, sizes)` for each of them."""
    helpers = Helpers()
    texts = []
    for k, kernel in enumerate(kernels):
        made = kernel_source(kernel, f"random{k}")
        for name in made.helpers:
            helpers.use(name)
        arguments = [f"arrays[{n}]" for n in range(len(kernel.arrays))]
        arguments += [f"sizes[{kernel.sizes.index(size)}]" for size in made.sizes]
        texts += [
            made.text,
            f"void kernel{k}(void *const *arrays, const int64_t *sizes);",
            f"void kernel{k}(void *const *arrays, const int64_t *sizes) {{",
            "    (void)sizes;",
            f"    {made.name}({', '.join(arguments)}, 0, {N_TILES});",
            "}",
            "",
        ]
    return "\n".join([head(), helpers.text_for(*texts), *texts])


@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_random_kernels_do_what_their_text_says(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    made = [random_kernel(data) for _ in range(N_KERNELS)]
    sizes = {"m": data.draw(st.integers(0, 5)), "n": data.draw(st.integers(0, MOST))}
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.c").write_text(file_of([kernel for kernel, _ in made]))
    # gcc's sanitizer comes with the shared object; clang's would have to be in the process.
    for compiler, flags in zip((COMPILERS[-1], COMPILERS[0]), BUILDS, strict=True):
        library = built(folder, compiler, flags, f"made{len(flags)}.so")
        for k, (kernel, lengths) in enumerate(made):
            check(library, k, kernel, lengths, sizes)


def built(folder: Path, compiler: str, flags: list[str], target: str) -> ctypes.CDLL:
    line = [compiler, *flags, "kernels.c", "-o", target, "-lm"]
    ran = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[:4000]
    return ctypes.CDLL(str(folder / target))


def check(
    library: ctypes.CDLL, k: int, kernel: ir.LoopKernel, lengths: list[int], sizes: dict[str, int]
) -> None:
    want = {"x": np.random.default_rng(0).integers(-9, 99, INPUT_LENGTH).astype(np.int32)}
    want |= {f"y{at}": np.full(n, -7, np.int32) for at, n in enumerate(lengths)}
    got = {key: Guarded(value.copy()) for key, value in want.items()}
    interpreter.run(kernel, want, sizes, N_TILES)
    addresses = [got[array.name].array.ctypes.data for array in kernel.arrays]
    given_sizes = [sizes[name] for name in kernel.sizes]
    library[f"kernel{k}"](
        (ctypes.c_void_p * len(addresses))(*addresses), (ctypes.c_int64 * 2)(*given_sizes)
    )
    for key, value in got.items():
        value.check()
        assert same(value.array.copy(), want[key]), (key, kernel_source(kernel, "random").text)
