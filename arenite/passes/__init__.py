"""passes/: named rewrites of a graph into an equal, simpler one.

A graph goes through `NEUTRAL`, then through what its back end lists: passes of its own, and in
between or behind them `fold` and `simplify`, which clear up what others leave.
"""

from arenite.lazy import lister
from arenite.passes.conv_transpose import transposed
from arenite.passes.expand import expand
from arenite.passes.narrow import narrow
from arenite.passes.norms import fold_norms
from arenite.passes.planes import planes
from arenite.passes.quantised import quantised
from arenite.passes.rewrite import Pass, Record, apply, run

#: For all back ends, in this order; each sees what the one before left.
NEUTRAL = (
    Pass("planes", before=planes),
    Pass("narrow", before=narrow),
    Pass("quantised", quantised),
    Pass("transposed", transposed),
    Pass("expand", expand),
    Pass("norms", before=fold_norms),
)

__all__ = ["NEUTRAL", "Pass", "Record", "apply", "run"]

__dir__ = lister("arenite.passes")
