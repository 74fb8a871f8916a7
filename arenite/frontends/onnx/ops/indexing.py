"""Operators that choose elements by index: Gather, Scatter, Slice, OneHot, NonZero, Unique."""
