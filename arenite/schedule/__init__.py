"""schedule/: a graph becomes kernels, fused with a reason for each border, in an order to run."""

from arenite.schedule.fuse import fuse, is_in_memory
from arenite.schedule.kernel import Kernel, Role, Schedule, Stage

__all__ = ["Kernel", "Role", "Schedule", "Stage", "fuse", "is_in_memory"]
