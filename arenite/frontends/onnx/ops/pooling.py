"""Pools: MaxPool, AveragePool, LpPool, global ones, MaxUnpool."""
