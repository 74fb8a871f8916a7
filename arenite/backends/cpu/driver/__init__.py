"""The native driver: launch tables walked by a team of threads."""
