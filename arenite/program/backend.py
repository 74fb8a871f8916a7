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

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from arenite.errors import DeviceUnavailable, InvalidArgument, NotSupported
from arenite.records import NamedTuple

if TYPE_CHECKING:
    from arenite.codegen.kernels.built import Built
    from arenite.device import Buffer
    from arenite.ir.dim import Dim, Var
    from arenite.ir.interface import GraphInterface
    from arenite.memory import MemoryPlan
    from arenite.passes import Pass
    from arenite.program.cached_kernel import CachedKernel, ModuleText
    from arenite.program.compiled import Compiled
    from arenite.program.launch import Launch
    from arenite.program.limits import Limits
    from arenite.program.loaded import Loaded
    from arenite.program.options import Options
    from arenite.program.value_spec import ValueSpec
    from arenite.schedule import Kernel

#: Folders of `backends/`.
NAMES = ("c", "cpu", "webgpu")

#: Hears how many kernels are compiled, of how many.
OnCompiled = Callable[[int, int], None]


class KernelCode(NamedTuple):
    """Where the code of a kernel begins, and the text it was compiled from."""

    function: str
    entry: int
    text: str  # its loops, as a person reads them
    module: ModuleText
    global_size: tuple[Dim, Dim, Dim]
    local_size: tuple[Dim, Dim, Dim] | None = None
    host_parallel_safe: bool = True


class Code(NamedTuple):
    """What compiling leaves: bytes to be loaded, and the part of each kernel, by its number."""

    image: bytes
    kernels: Mapping[int, KernelCode]


class BuiltKernels(Protocol):
    """The kernels of a program, which are built by whoever asks for them."""

    def __iter__(self) -> Iterator[Built]:
        """Each as soon as it is built, to begin with its code; it may still become one with others
        that are much alike."""

    def by_number(self) -> Mapping[int, Built]:
        """All, as they are to be compiled."""


class DeviceNeeds(NamedTuple):
    """What a program is made of, for who asks what its device takes beside all values."""

    values: Sequence[ValueSpec]
    load: Sequence[Launch]
    launches: Sequence[Launch]
    n_state_sets: int


class DeviceMemory(NamedTuple):
    """Bytes that a program takes beside its values, by what for."""

    device: Mapping[str, int]
    host: Mapping[str, int]


class Trial(Protocol):
    """Programs of one kernel by choice; cases are sets of sizes."""

    def add(self, choices: Sequence[str]) -> None:
        """Compile the kernel in these ways, where it is not yet."""

    def seconds(self, choice: str, case: int, threads: int) -> float:
        """What a launch takes."""

    def result(self, choice: str, case: int, threads: int) -> bytes:
        """The bytes that a run leaves behind."""

    def close(self) -> None:
        """Give its memory back."""


class Backend(ABC):
    """One device. What is said here is what most do: modules of its folder have what differs.

    Nothing is imported or opened before a method needs it.
    """

    #: That of its folder, and of its devices.
    name: str
    #: Whether launches that wait for the same are joined into one: then values have bytes of their
    #: own for as long as any launch that data does not keep apart may touch them.
    joins_launches = False
    #: Whether one worker runs launches that are not shared among workers one after the other, so
    #: that between two of these no wait needs a flag.
    runs_in_order = False
    #: Whether the arena grows with sizes as they come; else it is that of their bounds.
    arena_grows = False
    #: Whether its compiler is given LLVM IR.
    uses_llvm = False
    #: The device whose memory weights and the arena are in: "cpu" where it is the host's.
    memory: str

    def module(self, name: str) -> Any:
        """A module of its folder."""
        return import_module(f"arenite.backends.{self.name}.{name}")

    @abstractmethod
    def identity(self, device: str) -> tuple[str, ...]:
        """Compiler, driver, machine and limits of a device by its name, as part of the keys under
        which code is kept."""

    def ways(self, options: Options) -> tuple[tuple[Pass, ...], ...]:
        """Lists of passes of its own, behind the neutral ones: the quickest program first, those
        that take less memory behind it."""
        return (self.module("passes").PASSES,)

    def prepare(self) -> None:
        """Begin with what a compilation that is about to come would wait for: nothing, for most."""
        return

    def build(self, kernel: Kernel, choice: str = "") -> Built:
        """The loops of a kernel, cut as one of its choices says if that is given; NotCompiled, with
        the reason, for what this device can't do."""
        built: Built = self.module("build").build(kernel)
        return built

    def shared(self, built: dict[int, Built], at_load: Collection[int]) -> dict[int, Built]:
        """Kernels, where some that are much alike may have become the same; `at_load` are those
        that run once."""
        return built

    def builder(self, options: Options) -> Callable[[Kernel, str], Built]:
        """`build` for the device of these options, which may do more or less than others of its
        kind, and in the way they ask for."""
        return self.build

    def device_memory(
        self, needs: DeviceNeeds, device: str, plan: MemoryPlan | None = None
    ) -> DeviceMemory:
        """What a program takes of the device's memory, and of the host's, beside its values: as far
        as it is known before its plan is made, or all of it."""
        return DeviceMemory({}, {})

    def estimated_ns(self, kernel: Kernel) -> int:
        """What a launch may take, at the largest sizes: decides what is shared among workers."""
        return 0

    def compile(self, kernels: BuiltKernels, on_progress: OnCompiled | None = None) -> Code:
        """The code of these kernels."""
        code: Code = self.module("compile").compiled(kernels.by_number(), on_progress)
        return code

    def load(self, interface: GraphInterface, compiled: Compiled, threads: int) -> Loaded:
        """A program in memory, to be run by so many workers where it is they that are counted."""
        loaded: Loaded = self.module("load").load(interface, compiled)
        return loaded

    def limits(self, device: str, n_workers: int = 1) -> Limits:
        """What one worker can do at most, when so many work at once; or the device as a whole."""
        limits: Limits = self.module("limits").limits(device)
        return limits

    def launch(
        self, kernel: CachedKernel, buffers: Sequence[Buffer], sizes: Mapping[str, int]
    ) -> None:
        """Run a kernel by itself, with arguments that were checked."""
        self.module("launch").launch(kernel, buffers, sizes)

    def trial(
        self,
        kernel: Kernel,
        variables: Mapping[str, Var],
        bindings: Sequence[Mapping[str, int]],
        program_nbytes: int,
    ) -> Trial:
        """One kernel alone in a program, to be cut in several ways. `variables` are those of the
        kernel by symbol, `bindings` values of them by name, once for each case;
        `program_nbytes` is what a run of the whole program reads."""
        raise NotSupported(
            f"kernels of device {self.name!r} are cut in one way: there is nothing to tune"
        )

    def assembly(self, kernel: CachedKernel) -> str:
        """What truly runs, as a person reads it."""
        text: str = self.module("compile").assembly(kernel)
        return text


def backend_of(device: str) -> Backend:
    """The back end of a device by its name, such as "cpu" or "webgpu:1"."""
    known = ", ".join(f'"{one}"' for one in NAMES)
    if not isinstance(device, str):
        raise InvalidArgument(f"a device name is a string, not {device!r}; there are: {known}")
    name = device.partition(":")[0].lower()
    if name not in NAMES:
        raise DeviceUnavailable(f"no program runs on device {device!r}; there are: {known}")
    found: Backend = import_module(f"arenite.backends.{name}.backend").BACKEND
    return found
