"""schedule/: a graph becomes kernels, fused with a reason for each border, in an order to run."""

from arenite.lazy import lister
from arenite.schedule.branches import branches_of_ifs
from arenite.schedule.fuse import fuse
from arenite.schedule.kernel import (
    Branch,
    Cut,
    HostCall,
    Kernel,
    Loop,
    Role,
    Schedule,
    Stage,
    Step,
)
from arenite.schedule.roots import is_in_memory

__all__ = [
    "Branch",
    "Cut",
    "HostCall",
    "Kernel",
    "Loop",
    "Role",
    "Schedule",
    "Stage",
    "Step",
    "branches_of_ifs",
    "fuse",
    "is_in_memory",
]

__dir__ = lister("arenite.schedule")
