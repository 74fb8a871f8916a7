"""Ops on numbers of 64 bits: the examples of all ops, with other types, and the page that says
where each of them runs."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from arenite.backends.webgpu.build import build
from arenite.codegen.kernels.built import Built
from arenite.dtype import BY_NAME, DType
from arenite.errors import AreniteError
from arenite.ir import OPS, graph_input, make
from arenite.ir.node import Node, Origins
from arenite.pipeline.fallback import Fallback
from arenite.program.options import Options
from arenite.schedule import Kernel
from tests.ir.op_examples import NEUTRAL_EXAMPLES

PAGE = Path(__file__).parents[3] / "docs" / "webgpu-types.md"

TYPES = ("int64", "uint64", "float64")
FEATURES = frozenset({"shader-int64", "shader-f64"})
#: Types of the examples that stand for any number.
_NUMBERS = frozenset({"float32", "int32"})


HEAD = """# Numbers of 64 bits on WebGPU

WGSL's core has none. `python docs/make_webgpu_types.py` writes this page by building each op for
two devices: one of the core alone, and one with `shader-int64` and `shader-f64`. What a device does
not do runs on the CPU in segments of its own, which the plan shows and `on_cpu` lists with the
reason: it is never counted as run by the device.

- **device**: on any device. Where it has no such numbers they are pairs of words
  (`codegen/word_pairs.py`).
- **feature**: on a device with `shader-int64`, or `shader-f64` for float64; else on the CPU.
- **CPU**: always there.
- An empty cell: the op does not take this type.

"""


@cache
def wide_examples(dtype: str) -> dict[str, Node]:
    """By op, those that there are of a type."""
    found: dict[str, Node] = {}
    for op, example in NEUTRAL_EXAMPLES.items():
        node = example()
        try:
            wide = _widened(node, BY_NAME[dtype])
        except (AreniteError, TypeError, ValueError):
            continue  # not for this type
        if wide is not node:
            found[op] = wide
    return found


def _widened(node: Node, dtype: DType) -> Node:
    if node.op == "input":
        if node.dtype.name not in _NUMBERS:
            return node
        return graph_input(node.attr("name"), node.attr("index"), node.shape, dtype)
    if OPS[node.op].is_construct or not node.inputs:
        return node
    inputs = [_widened(one, dtype) for one in node.inputs]
    if inputs == list(node.inputs):
        return node
    return make(node.op, *inputs, **dict(node.attrs))


def where(op: str, dtype: str) -> str:
    """Where an op of a type runs; "" for a type that it does not take."""
    node = wide_examples(dtype).get(op)
    if node is None:
        return ""
    for word, features in (("device", frozenset()), ("feature", FEATURES)):
        fallback = Fallback(Options(device="webgpu"), Origins())
        fallback._build = partial(_built, features=features)
        try:
            if not fallback.is_needed(node):
                return word
        except AreniteError:
            continue
    return "CPU"


def _built(kernel: Kernel, choice: str = "", *, features: frozenset[str]) -> Built:
    return build(kernel, features)


def page() -> str:
    """The whole text."""
    ops = sorted({op for dtype in TYPES for op in wide_examples(dtype)})
    rows = [f"| op | {' | '.join(TYPES)} |", f"|---|{'---|' * len(TYPES)}"]
    rows += [f"| `{op}` | {' | '.join(where(op, dtype) for dtype in TYPES)} |" for op in ops]
    return HEAD + "\n".join(rows) + "\n"
