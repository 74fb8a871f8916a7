"""What differs by device, one folder each: its passes and layouts, how kernels are cut, lowered,
compiled, bound and launched."""
