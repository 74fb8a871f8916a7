"""Convolutions with channels last, as micro-kernels."""
