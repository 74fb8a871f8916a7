"""Functions made of primitive ops, on nodes: what `tensor/` offers and frontends import.

Dtypes are not promoted here; shapes broadcast.
"""
