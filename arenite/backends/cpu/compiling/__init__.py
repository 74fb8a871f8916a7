"""LLVM IR becomes machine code in memory: compiling in children, linking, loading."""
