"""cli/: the `arenite` command."""
