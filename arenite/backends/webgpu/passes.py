"""Passes for this back end's kernels, which run behind the neutral ones."""

from __future__ import annotations

from arenite.passes.attention import plain_attention
from arenite.passes.half_factors import half_factors
from arenite.passes.rewrite import Pass
from arenite.passes.simplify import fold, simplify
from arenite.passes.split import split
from arenite.passes.transfers import transfers

PASSES = (
    Pass("attention", plain_attention),
    Pass("halves", half_factors),
    Pass("fold", fold),
    Pass("split", split),
    Pass("simplify", simplify),
    Pass("transfers", before=transfers("webgpu")),
)
