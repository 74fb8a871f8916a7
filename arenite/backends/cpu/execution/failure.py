"""What a run that failed raises: the kernel by name, and the lines it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arenite.errors import AreniteError, IndexOutOfRange, RunFailed

if TYPE_CHECKING:
    from arenite.backends.cpu.driver.native import Outcome
    from arenite.program.cached_kernel import CachedKernel


def error_of(kernel: CachedKernel | None, outcome: Outcome, about_state: str) -> AreniteError:
    """What a failed launch of a kernel raises; `about_state` is what else there is to know."""
    if kernel is None:
        return RunFailed(f"a run failed at {outcome.site} with code {outcome.code}{about_state}")
    if outcome.code == IndexOutOfRange.code:
        return IndexOutOfRange(
            f"an index is outside its axis, in kernel {kernel.with_origins}{about_state}; correct "
            "the indices"
        )
    return RunFailed(f"kernel {kernel.with_origins}, failed with code {outcome.code}{about_state}")
