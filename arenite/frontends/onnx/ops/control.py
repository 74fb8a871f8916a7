"""Control flow: If, Loop, Scan."""
