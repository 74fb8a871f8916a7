"""Products: MatMul, Gemm, Einsum, Det."""
