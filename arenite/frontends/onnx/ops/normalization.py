"""Norms: of batches, layers, groups, instances; softmax and its kin."""
