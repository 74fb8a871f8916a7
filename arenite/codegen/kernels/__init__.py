"""codegen/kernels: what a fused Kernel does, as loops. `choose.build` makes them."""
