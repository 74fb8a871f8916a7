"""Passes for this back end's kernels, which run behind the neutral ones."""

from arenite.backends.cpu import ops  # noqa: F401  # what passes make nodes of
from arenite.backends.cpu.passes.attention import attention, spelled_attentions
from arenite.backends.cpu.passes.blocks import blocks, share_panels
from arenite.backends.cpu.passes.byte_casts import stay_numbers
from arenite.backends.cpu.passes.integers import integers
from arenite.backends.cpu.passes.layout import layout
from arenite.backends.cpu.passes.panels import all_panels, panels
from arenite.backends.cpu.passes.pools import pools
from arenite.backends.cpu.passes.row_scales import row_scales
from arenite.backends.cpu.passes.selection import selection
from arenite.backends.cpu.passes.winograd import winograd
from arenite.passes.rewrite import Pass
from arenite.passes.simplify import fold, simplify
from arenite.passes.split import split

#: In this order; each sees what the one before left.
PASSES = (
    Pass("selection", selection),
    Pass("attention", attention, before=spelled_attentions),
    Pass("integers", integers),
    Pass("layout", layout),
    Pass("pools", pools),
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
#: And with those of all products packed, beside which rows are added up in one order.
SAME_SUMS = tuple(
    Pass("all panels", all_panels) if one.name == "panels" else one for one in WITHOUT_WINOGRAD
)
