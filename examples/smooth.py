"""A filter with memory: what it has seen is a state, which lives in the plan from call to call.

python examples/smooth.py
"""

from __future__ import annotations

import numpy as np

import arenite
from arenite import State, Tensor


def smooth(samples: Tensor) -> Tensor:
    """A running average of blocks of samples, and how far the newest one is from it."""
    average = State((4,), name="average")
    average.set(average.value * 0.9 + samples.mean(0) * 0.1)
    return samples[-1] - average.value


def main() -> None:
    rng = np.random.default_rng(0)
    level = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    program = arenite.compile(smooth, arenite.spec((16, 4)))
    print(program.plan, end="\n\n")
    for step in range(60):
        distance = program(level + rng.standard_normal((16, 4)).astype(np.float32))
        if step % 20 == 19:
            print(f"after {step + 1} blocks the newest sample is off by {distance.round(2)}")
    average = program.state["average"].numpy()
    print(f"the average is {average.round(2)}, the level was {level}")
    assert np.abs(average - level).max() < 0.5


if __name__ == "__main__":
    main()
