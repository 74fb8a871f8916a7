"""C as a back end: source that any C11 compiler takes, exported or run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenite.errors import NotSupported
from arenite.memory.plan import HOST
from arenite.program.backend import Backend

if TYPE_CHECKING:
    from arenite.program.limits import Limits
    from arenite.schedule import Kernel


class CBackend(Backend):
    """Kernels are functions of C in the image; a program is compiled when it is loaded."""

    name = "c"
    memory = HOST
    runs_in_order = True

    def identity(self, device: str) -> tuple[str, ...]:
        """Source is the same for every compiler; what is compiled of it is kept by its content."""
        return ("c11",)

    def estimated_ns(self, kernel: Kernel) -> int:
        from arenite.ir.dim import bounds, product

        return bounds(product(kernel.space))[1]  # a point in a nanosecond, about

    def limits(self, device: str, n_workers: int = 1) -> Limits:
        raise NotSupported("what a core does in C depends on the compiler, and is not measured")


BACKEND = CBackend()
