"""Kernels become machine code: targets, loop IR, LLVM."""
