"""Loop IR becomes vector code in LLVM IR."""
