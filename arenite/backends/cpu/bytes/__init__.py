"""Products and convolutions of bytes."""
