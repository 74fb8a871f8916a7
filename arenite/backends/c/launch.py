"""One kernel launched by itself, on buffers of the caller."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from arenite.backends.c.helpers import Helpers
from arenite.backends.c.layout import Image
from arenite.backends.c.program import head
from arenite.backends.c.shared_object import SharedObject
from arenite.device import Buffer
from arenite.errors import IndexOutOfRange, RunFailed
from arenite.ir.dim import Var, evaluate
from arenite.program.cached_kernel import CachedKernel


def kernel_file(kernel: CachedKernel) -> str:
    """A file of C with the kernel alone, and `launch`, which takes its arguments in arrays."""
    function = Image.from_bytes(kernel.program.image).kernels[kernel.program.entry_point]
    helpers = Helpers()
    for name in function.helpers:
        helpers.use(name)
    arguments = [f"arrays[{k}]" for k in range(len(kernel.arrays))]
    arguments += [f"sizes[{k}]" for k in range(len(function.sizes))]
    arguments += ["0", "tiles"] if function.has_tiles else []
    arguments += ["&error"] if function.has_error else []
    lines = [
        "int launch(void *const *arrays, const int64_t *sizes, int64_t tiles) {",
        "    int error = 0;",
        "    (void)sizes;",
        "    (void)tiles;",
        f"    {function.name}({', '.join(arguments)});",
        "    return error;",
        "}",
        "",
    ]
    return "\n".join([head(), helpers.text_for(function.text), function.text, *lines])


def launch(kernel: CachedKernel, buffers: Sequence[Buffer], sizes: Mapping[str, int]) -> None:
    """Run all tiles of a kernel; raises what it reports."""
    function = Image.from_bytes(kernel.program.image).kernels[kernel.program.entry_point]
    names = {var.symbol: var.name for var in kernel.launch.sizes if isinstance(var, Var)}
    given = [sizes[names[symbol]] for symbol in function.sizes]
    library = SharedObject({"kernel.c": kernel_file(kernel)})
    try:
        code = library.call(
            "launch",
            (ctypes.c_void_p * len(buffers))(*(buffer.raw_ptr for buffer in buffers)),
            (ctypes.c_int64 * max(1, len(given)))(*given),
            ctypes.c_int64(evaluate(kernel.launch.tiles, sizes)),
        )
    finally:
        library.close()
    if code == IndexOutOfRange.code:
        raise IndexOutOfRange(f"an index is outside its axis, in kernel {kernel.entry_point}")
    if code:
        raise RunFailed(f"kernel {kernel.entry_point} failed with code {code}")
