"""The arenite command, as `python -m arenite`."""

from arenite.cli.main import run

if __name__ == "__main__":
    run()
