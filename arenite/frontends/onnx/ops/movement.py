"""Operators that move elements: Reshape, Transpose, Concat, Split, Pad, Tile, Expand."""
