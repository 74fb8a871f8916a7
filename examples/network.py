"""A small network: compiled to one native program, run, and shown from plan to machine code.

python examples/network.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import arenite
from arenite import Tensor, Var


def network(params: dict[str, dict[str, Tensor]], x: Tensor) -> Tensor:
    """Two layers and a softmax; NumPy's names, nothing is computed yet."""
    hidden = (x @ params["hidden"]["weight"] + params["hidden"]["bias"]).gelu()
    normal = hidden.layer_norm()
    return (normal @ params["output"]["weight"]).softmax(-1)


def main() -> None:
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32) * 0.1

    params = {
        "hidden": {"weight": weights(784, 256), "bias": weights(256)},
        "output": {"weight": weights(256, 10)},
    }
    batch = Var("batch", 1, 64)
    # The budget is for everything: weights, inputs, outputs and what lies between the kernels.
    program = arenite.compile(network, params, arenite.spec((batch, 784)), memory="1.25MiB")

    print(program.plan, end="\n\n")
    for kernel in program.kernels:
        print(f"{kernel.entry_point}: ends here because {kernel.border}")

    images = rng.standard_normal((32, 784)).astype(np.float32)
    answer = program(params, images)
    print(f"\n{answer.shape} probabilities, the first row sums to {answer[0].sum():.6f}\n")
    print(program.profile(params, images))
    program.verify()
    print("\nplan sound, every conflicting byte range ordered")


if __name__ == "__main__":
    main()
