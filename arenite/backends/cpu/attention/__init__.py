"""Attention as micro-kernels: for few queries, and for panels of many."""
