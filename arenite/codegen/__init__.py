"""Kernels become loop IR, for all devices: loop nests, checks, the printed form."""
