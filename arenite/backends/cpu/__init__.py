"""The CPU: LLVM, micro-kernels, a team of threads, one native driver."""
