"""Operators by family: each module adds its handlers to the registry."""
