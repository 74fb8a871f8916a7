"""WebGPU: kernels as WGSL, one group of threads a tile, run through wgpu."""
