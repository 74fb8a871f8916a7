"""Loaded: a program in the memory of its device, as every back end has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from arenite.dtype import Array

if TYPE_CHECKING:
    from arenite.ir.interface import GraphInterface
    from arenite.program.compiled import Compiled
    from arenite.program.decoding import Decoder
    from arenite.program.limits import Limits
    from arenite.schedule import Schedule


#: Hears how many parts of the load step are done, of how many.
OnPacked = Callable[[int, int], None]


class Timings(NamedTuple):
    """When the kernels of one run began and ended, tile by tile where tiles run apart."""

    records: NDArray[Any]  # worker, kernel, tile, begin and end, in clocks
    clocks_per_second: float
    n_lost: int  # calls that were not noted for lack of room
    sizes: Mapping[str, int]  # of the run, those it found among them
    limits: Callable[[int], Limits]  # of the device, with so many workers at once
    about: str = ""  # what else there is to say of a run, in a line

    def seconds(self) -> dict[int, float]:
        """What kernels took, over all threads, by their numbers."""
        clocks: dict[int, int] = {}
        for record in self.records:
            kernel = int(record["kernel"])
            clocks[kernel] = clocks.get(kernel, 0) + int(record["end"] - record["begin"])
        return {kernel: count / self.clocks_per_second for kernel, count in clocks.items()}


class Quick(Protocol):
    """A short way to run again: no check in Python."""

    def run(self, arrays: Sequence[Any], out: Sequence[Any] | None) -> list[Array] | None:
        """Run, if these are arrays like those before; else do nothing, and give None."""


class Loaded(Protocol):
    """One thread at a time calls it, and none while a run is in progress but `cancel`.

    A launch that fails, or a file that changes under a run, raises, and leaves in `failure` why
    there can be no other run before `reset`.
    """

    @property
    def failure(self) -> str | None:
        """Why there can be no run before `reset`."""

    @property
    def is_lost(self) -> bool:
        """Whether its device is gone, with all memory there, until `reset` opens it again."""

    def fail(self, why: str) -> None:
        """Let no run begin before `reset`."""

    @property
    def load_ns(self) -> int | None:
        """What computing the packed values took, once they are there."""

    @property
    def n_binds(self) -> int:
        """How often the program was bound to sizes."""

    @property
    def kept_nbytes(self) -> int:
        """What is kept for the next results, of those the caller has let go of."""

    @property
    def n_state_sets(self) -> int:
        """How many copies of every state there are."""

    @property
    def quick(self) -> Quick | None:
        """For arrays like those of the last run, where the device has a short way for them."""

    @property
    def decoder(self) -> Decoder | None:
        """Begins runs that choose their own tokens, where the device does that."""

    def run(
        self, arrays: list[Array], sizes: dict[str, int], out: Sequence[Array | None] | None
    ) -> list[Array]:
        """Run with arrays that fit; the results as new arrays, or written into those of `out`,
        where None stands for a new one."""

    def run_checked(self, arrays: list[Array], sizes: dict[str, int]) -> list[Array]:
        """Run launch by launch with every byte watched, where the device can."""

    def profile(self, arrays: list[Array], sizes: dict[str, int]) -> Timings:
        """Run once with time stamps."""

    def pack(self, on_progress: OnPacked | None) -> None:
        """Compute now what depends on constants alone, if it is not there yet."""

    def keep_results(self, keeps: bool) -> None:
        """Whether memory of large results is kept for the next ones."""

    def state(self, number: int) -> AbstractContextManager[NDArray[np.uint8]]:
        """The bytes of a state, by number of the value, to read and to write."""

    def use_state_set(self, number: int) -> None:
        """From now on runs, and `state`, work on this copy of every state."""

    def verify(self, schedule: Callable[[], Schedule]) -> None:
        """Prove the order on final addresses; RaceFound or InvalidPlan."""

    def cancel(self) -> None:
        """End the run in progress, from another thread."""

    def reset(self) -> None:
        """After a failure: all but the states is as it was before the first run."""

    def close(self) -> None:
        """Give every byte back."""
        ...


class LoadedProgram:
    """What is alike in programs that have one way to run, and whose results are new arrays."""

    quick = None
    decoder: Decoder | None = None
    kept_nbytes = 0

    def __init__(self, interface: GraphInterface, compiled: Compiled) -> None:
        self.interface, self.compiled = interface, compiled
        self.failure: str | None = None
        self.load_ns: int | None = None
        self.n_binds = 0
        self.state_numbers = compiled.frame.numbers("state")
        slots = [slot for slot in compiled.plan.slots.values() if slot.region == "state"]
        self.n_state_sets = len(slots) // max(len(self.state_numbers), 1) or 1

    @property
    def is_lost(self) -> bool:
        return False

    def fail(self, why: str) -> None:
        self.failure = why

    def keep_results(self, keeps: bool) -> None:
        """There are none to keep."""
