"""Operators along axes: sums and their kin, ArgMax, cumulative ones, TopK."""
