"""Products with block-quantised weights."""
