"""Products as register tiles in explicit vector code, and what other micro-kernels share with
them."""
