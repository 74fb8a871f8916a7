"""Passes for this back end's kernels, which run behind the neutral ones."""

from __future__ import annotations

from arenite.passes.attention import plain_attention
from arenite.passes.plain_blocks import plain_blocks
from arenite.passes.rewrite import Pass
from arenite.passes.simplify import fold, simplify
from arenite.passes.split import split
from arenite.passes.transfers import transfers

PASSES = (
    Pass("attention", plain_attention),
    Pass("blocks", plain_blocks),
    Pass("fold", fold),
    Pass("split", split),
    Pass("simplify", simplify),
    Pass("transfers", before=transfers("webgpu")),
)
