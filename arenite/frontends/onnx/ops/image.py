"""Operators on images: Resize, GridSample, RoiAlign, AffineGrid, DepthToSpace."""
