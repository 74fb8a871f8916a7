"""A compiled program runs, on whatever device it is for: Executable, states, profile, checks."""
