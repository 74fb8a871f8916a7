"""C source: the plainest reading of the loop IR. Programs that any C11 compiler takes, and the
judge of the other back ends."""
