"""passes/: named rewrites of a graph into an equal, simpler one."""

from arenite.lazy import lister
from arenite.passes.blocks import blocks, share_panels
from arenite.passes.expand import expand
from arenite.passes.integers import integers
from arenite.passes.layout import layout
from arenite.passes.narrow import narrow
from arenite.passes.norms import fold_norms
from arenite.passes.panels import panels
from arenite.passes.planes import planes
from arenite.passes.recognise import recognise
from arenite.passes.rewrite import Pass, Record, apply, run
from arenite.passes.rounded import stay_numbers
from arenite.passes.row_scales import row_scales
from arenite.passes.simplify import fold, simplify
from arenite.passes.split import split
from arenite.passes.transposed import transposed
from arenite.passes.winograd import winograd

#: In this order; each sees what the one before left.
PASSES = (
    Pass("planes", before=planes),
    Pass("narrow", before=narrow),
    Pass("transposed", transposed),
    Pass("expand", expand, before=recognise),
    Pass("integers", integers),
    Pass("layout", layout, before=fold_norms),
    Pass("row_scales", row_scales),
    Pass("fold", fold, before=stay_numbers),
    Pass("split", split),
    Pass("blocks", blocks, before=share_panels),
    Pass("panels", panels),
    Pass("winograd", winograd),
    Pass("simplify", simplify),
)

#: The same, with every convolution summed product by product.
WITHOUT_WINOGRAD = tuple(one for one in PASSES if one.name != "winograd")
#: And with the weights of products read where they are, which takes no memory for packed ones.
IN_PLACE = tuple(one for one in WITHOUT_WINOGRAD if one.name not in ("row_scales", "panels"))

__all__ = ["IN_PLACE", "PASSES", "WITHOUT_WINOGRAD", "Pass", "Record", "apply", "run"]

__dir__ = lister("arenite.passes")
