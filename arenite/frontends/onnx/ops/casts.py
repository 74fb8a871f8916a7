"""Operators that change the type of elements: Cast, CastLike, BitCast."""
