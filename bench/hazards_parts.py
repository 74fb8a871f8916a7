"""What it brings that hazards see the rows of a state that a kernel touches.

    python -m bench.hazards_parts

Prints for each graph the launches, how many accesses are of a part of a value, and, with whole
values and with parts: the edges between launches, the pairs of launches that may run side by side,
and how many launches stand one behind the other at the least. The order is that of data alone,
which a program planned for concurrency has; planned for memory, values that share bytes add edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import arenite
from arenite.fetch import obtain
from arenite.frontends.language.file import LanguageFile
from arenite.generate.model import Settings
from arenite.hazards import order
from arenite.ir.graph import Graph
from arenite.memory import ValueId
from arenite.pipeline.build import plan_program
from arenite.pipeline.steps import Lowered
from arenite.pipeline.windows import blocks_of
from arenite.program.launch import Launch
from arenite.program.launch_hazards import data_hazards
from arenite.program.options import Options
from arenite.tensor.state import State
from arenite.tensor.tracing import tracing
from bench.hazards import table
from bench.recurrent_cases import CASES, inputs, weights

LAYERS, BATCH, WIDTH = 4, 16, 256


def smollm2() -> Graph:
    """Prompt and decoding are one graph; keys and values are a state each a layer."""
    file = LanguageFile.open(obtain("smollm2-135m-instruct"))
    return Settings(file, context=2048).graph


def lstm() -> Graph:
    case = CASES["LSTM 128, 100 steps"]
    w, r, bias = weights(case)
    return traced(lambda x, h, c: arenite.lstm(x, w, r, bias, (h, c)), *inputs(case))


def two_branches() -> Graph:
    def network(x: Any) -> Any:
        for _ in range(LAYERS):
            left = x.conv(random(32, 64, 1, 1)).maximum(0).conv(random(32, 32, 3, 3), padding=1)
            x = arenite.concat([left, x.conv(random(32, 64, 1, 1))], 1).maximum(0)
        return x

    return traced(network, random(1, 64, 28, 28))


def stacked_lstm() -> Graph:
    """One step of a stacked LSTM whose layers have their rows in one state."""
    hidden, cell = (State((LAYERS, BATCH, WIDTH), name=name) for name in ("hidden", "cell"))
    layers = [
        [random(4 * WIDTH, WIDTH), random(4 * WIDTH, WIDTH), random(4 * WIDTH)]
        for _ in range(LAYERS)
    ]

    def step(x: Any) -> Any:
        for k, (w, r, bias) in enumerate(layers):
            gates = x @ w.T + hidden.value[k] @ r.T + bias
            i, o, f, g = (gates[:, n * WIDTH : (n + 1) * WIDTH] for n in range(4))
            c = f.sigmoid() * cell.value[k] + i.sigmoid() * g.tanh()
            x = o.sigmoid() * c.tanh()
            cell.write(c[None], np.int64(k))
            hidden.write(x[None], np.int64(k))
        return x

    return traced(step, random(BATCH, WIDTH))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "SmolLM2-135M": smollm2,
    "LSTM 128, 100 steps": lstm,
    "two branches, concat": two_branches,
    "stacked LSTM, one state": stacked_lstm,
}


def random(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def traced(function: Callable[..., Any], *arrays: NDArray[Any]) -> Graph:
    given = [arenite.spec(a.shape, a.dtype).argument(f"x{k}", k) for k, a in enumerate(arrays)]
    with tracing() as states:
        made = function(*given)
    outputs = made if isinstance(made, tuple) else (made,)
    flat = [one for some in outputs for one in (some if isinstance(some, tuple) else (some,))]
    return Graph(
        tuple(one.node for one in given),
        tuple(one.node for one in flat),
        (),
        updates=tuple(states.updates),
    )


class Concurrency(NamedTuple):
    n_edges: int
    n_pairs: int
    depth: int


def concurrency(program: Lowered, launches: Sequence[Launch]) -> Concurrency:
    targets: dict[ValueId, Sequence[ValueId]] = {
        k: value.targets for k, value in enumerate(program.values) if value.targets
    }
    n_edges = n_pairs = depth = 0
    for first, stop, _ in blocks_of(program):
        earlier, level = [0] * (stop - first), [1] * (stop - first)
        for edge in order(data_hazards(launches[first:stop], targets)):
            earlier[edge.after] |= earlier[edge.before] | 1 << edge.before
            level[edge.after] = max(level[edge.after], level[edge.before] + 1)
            n_edges += 1
        n_pairs += sum(k - one.bit_count() for k, one in enumerate(earlier))
        depth += max(level)
    return Concurrency(n_edges, n_pairs, depth)


def main() -> None:
    rows: list[Sequence[str]] = [
        ("graph", "launches", "parts", "edges", "pairs side by side", "depth")
    ]
    for name, make in GRAPHS.items():
        program = plan_program(make(), Options(plan="concurrency")).program
        whole = concurrency(program, [one._replace(parts=()) for one in program.launches])
        parts = concurrency(program, program.launches)
        rows.append(
            (
                name,
                f"{len(program.launches)}",
                f"{sum(len(one.parts) for one in program.launches)}",
                *(f"{a} -> {b}" for a, b in zip(whole, parts, strict=True)),
            )
        )
    print(table(rows))


if __name__ == "__main__":
    main()
