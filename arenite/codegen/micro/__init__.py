"""Micro-kernels: register tiles in explicit vector code, and the kernels made of them."""
