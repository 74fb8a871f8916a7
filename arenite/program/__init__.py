"""What back ends and runtime share: launches, values, steps, and the file of a program."""
