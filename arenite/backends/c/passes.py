"""Passes of the C back end, behind the neutral ones: nothing is laid out in another order."""

from __future__ import annotations

from arenite.passes.attention import plain_attention
from arenite.passes.rewrite import Pass
from arenite.passes.selection import selection
from arenite.passes.simplify import fold, simplify

PASSES = (
    Pass("selection", selection),
    Pass("attention", plain_attention),
    Pass("fold", fold),
    Pass("simplify", simplify),
)
