"""Passes for this back end's kernels, which run behind the neutral ones."""

from __future__ import annotations

from arenite.backends.webgpu.ops import joined_products
from arenite.passes.attention import plain_attention
from arenite.passes.factors import narrow_factors
from arenite.passes.rewrite import Pass
from arenite.passes.simplify import fold, simplify
from arenite.passes.split import split
from arenite.passes.transfers import transfers

PASSES = (
    Pass("attention", plain_attention),
    Pass("fold", fold),
    Pass("split", split),
    Pass("factors", narrow_factors),
    Pass("blocks", joined_products),
    Pass("simplify", simplify),
    Pass("transfers", before=transfers("webgpu")),
)
