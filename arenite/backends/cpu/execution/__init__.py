"""A program in memory: bound to its arena, its constants and the arrays of a caller."""
