"""A small network: compiled to one native program, run, and shown from plan to machine code.

python examples/network.py
"""

from __future__ import annotations

import numpy as np

import arenite
from arenite import Tensor, Var


def network(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor) -> Tensor:
    """Two layers and a softmax; NumPy's names, nothing is computed yet."""
    hidden = (x @ w1 + b1).gelu()
    normal = hidden.layer_norm()
    return (normal @ w2).softmax(-1)


def main() -> None:
    batch = Var("batch", 1, 64)
    rng = np.random.default_rng(0)
    w1, b1, w2 = (
        rng.standard_normal(shape).astype(np.float32) * 0.1
        for shape in ((784, 256), (256,), (256, 10))
    )
    program = arenite.compile(network, arenite.spec((batch, 784)), w1, b1, w2, memory="1.5MiB")

    print(program.plan, end="\n\n")
    for kernel in program.kernels:
        print(f"{kernel.entry_point}: ends here because {kernel.border}")

    images = rng.standard_normal((32, 784)).astype(np.float32)
    answer = program(images, w1, b1, w2)
    print(f"\n{answer.shape} probabilities, the first row sums to {answer[0].sum():.6f}\n")
    print(program.profile(images, w1, b1, w2))
    program.verify()
    print("\nplan sound, every conflicting byte range ordered")


if __name__ == "__main__":
    main()
