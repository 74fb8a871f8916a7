"""Ops in the layouts of this back end's kernels; importing this package adds them to `OPS`."""

from arenite.backends.cpu.ops import (  # noqa: F401
    attention_parts,
    blocks,
    byte_products,
    channels_last,
    panels,
    winograd,
)
