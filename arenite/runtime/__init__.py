"""Compiled code runs: linking, loading, launch tables, the native driver, the team, the cache."""
