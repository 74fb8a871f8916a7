"""schedule/: a graph becomes kernels, fused with a reason for each border, in an order to run."""

from arenite.schedule.fuse import fuse
from arenite.schedule.kernel import Kernel, Role, Schedule, Stage
from arenite.schedule.roots import is_in_memory

__all__ = ["Kernel", "Role", "Schedule", "Stage", "fuse", "is_in_memory"]
