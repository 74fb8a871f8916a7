"""Backend: what a device does with kernels, and how it is found by the device's name.

In: kernels of a schedule. Out: loops as this device wants them cut, code, and a program in memory
that runs. Everything before that is the same for all devices; a back end is one folder in
`backends/`, whose module `backend` has the one object `BACKEND`.

    passes    its own rewrites of a graph, behind the neutral ones
    build     a kernel becomes loops
    compile   loops become code: bytes to keep, and where in them each kernel begins
    load      code and plan become a program that is called with arrays
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from arenite.errors import DeviceUnavailable

if TYPE_CHECKING:
    from arenite.codegen.kernels.built import Built
    from arenite.passes import Pass
    from arenite.program.cached_kernel import CachedKernel, ModuleText
    from arenite.program.options import Options
    from arenite.schedule import Kernel

#: Folders of `backends/`.
NAMES = ("cpu",)

#: Hears how many kernels are compiled, of how many.
OnCompiled = Callable[[int, int], None]


class KernelCode(NamedTuple):
    """Where the code of a kernel begins, and the text it was compiled from."""

    function: str
    entry: int
    text: str  # its loops, as a person reads them
    module: ModuleText


class Code(NamedTuple):
    """What compiling leaves: bytes to be loaded, and the part of each kernel, by its number."""

    image: bytes
    kernels: Mapping[int, KernelCode]


class Backend(Protocol):
    """One device. Nothing is imported or opened before a method needs it."""

    @property
    def name(self) -> str:
        """That of its folder, and of its devices."""
        ...

    def identity(self) -> tuple[str, ...]:
        """Compiler, driver, machine and limits, as part of the keys under which code is kept."""
        ...

    def ways(self, options: Options) -> tuple[tuple[Pass, ...], ...]:
        """Lists of passes of its own, behind the neutral ones: the quickest program first, those
        that take less memory behind it."""
        ...

    def build(self, kernel: Kernel, choice: str = "") -> Built:
        """The loops of a kernel, cut as one of its choices says if that is given; NotCompiled, with
        the reason, for what this device can't do."""
        ...

    def compile(self, built: Mapping[int, Built], on_progress: OnCompiled | None = None) -> Code:
        """The code of these kernels."""
        ...

    def assembly(self, kernel: CachedKernel) -> str:
        """What truly runs, as a person reads it."""
        ...


def backend_of(device: str) -> Backend:
    """The back end of a device by its name, such as "cpu" or "webgpu:1"."""
    name = device.partition(":")[0].lower()
    if name not in NAMES:
        known = ", ".join(f'"{one}"' for one in NAMES)
        raise DeviceUnavailable(f"no program runs on device {device!r}; there are: {known}")
    found: Backend = import_module(f"arenite.backends.{name}.backend").BACKEND
    return found
