"""Every op of the IR as C, under sanitizers, with every warning an error: examples of all of them,
and those of `tests/pipeline/test_ops` for dtypes that differ in how C holds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from arenite.backends.c.layout import SourceOptions
from arenite.dtype import BY_NAME, DType, Kind
from arenite.errors import NotCompiled
from arenite.ir import OPS
from arenite.ir.graph import Graph
from arenite.ir.node import Node
from arenite.ir.ops.blocks import dequantise
from tests.backends.c.executables import COMPILERS, CProgram, CTrial, needs_compiler
from tests.ir.op_examples import NEUTRAL_EXAMPLES, numbers
from tests.pipeline import test_ops

pytestmark = needs_compiler

#: What no C program can have.
REFUSED = {"host"}

SAMPLE: dict[Callable[[DType], None], str] = {
    test_ops.test_functions_of_floats: "float32 float64 bfloat16",
    test_ops.test_arithmetic: "bool float32 float16 int8 int64 uint32 uint64",
    test_ops.test_casts_to_every_dtype: (
        "bool float64 float16 float8_e4m3b11fnuz float8_e8m0fnu int64 uint64"
    ),
    test_ops.test_movement: "complex64",
    test_ops.test_reductions: "float32 bool uint8",
    test_ops.test_scans: "int16",
    test_ops.test_sorting: "bool",
    test_ops.test_contractions: "float32 bfloat16 int8",
}
CASES = [(check, BY_NAME[name]) for check, names in SAMPLE.items() for name in names.split()]


def examples(trial: CTrial) -> None:
    """All op examples that are one program, over inputs."""
    given: dict[Node, Node] = {}
    for op, example in NEUTRAL_EXAMPLES.items():
        is_left = op in ("size", "parameter") or op in REFUSED
        if is_left or (OPS[op].family == "control" and op not in ("if", "branch", "loop", "cut")):
            continue
        graph = Graph.of([example()])
        mapping: dict[Node, Node] = {}
        for value in graph.nodes:
            if value.op in ("input", "constant"):
                array = numbers(value) if value.op == "input" else value.attr("data").array
                mapping[value] = given.setdefault(value, trial.input(array))
        made = graph.replace(mapping).outputs[0]
        made = dequantise(made) if made.dtype.is_block else made
        is_exact = made.dtype.kind is not Kind.FLOAT or OPS[op].family == "movement"
        trial.expect(made, ulps=0 if is_exact else test_ops.SUM_ULPS.get(op, 16))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_op_has_a_kernel(compiler: str) -> None:
    trial = CTrial(compiler)
    examples(trial)
    trial.run()


@pytest.mark.parametrize(
    ("check", "dtype"), CASES, ids=[f"{check.__name__[5:]}-{dtype}" for check, dtype in CASES]
)
def test_every_dtype(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[DType], None], dtype: DType
) -> None:
    # Both compilers see about half of them.
    compiler = COMPILERS[len(dtype.name) % len(COMPILERS)]
    monkeypatch.setattr(test_ops, "Trial", lambda: CTrial(compiler))
    check(dtype)


@pytest.mark.parametrize("dtype", [BY_NAME["float32"], BY_NAME["float64"]], ids=str)
def test_functions_without_the_library(monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    options = SourceOptions("trial", memory="caller", freestanding=True)
    monkeypatch.setattr(test_ops, "Trial", lambda: CTrial(COMPILERS[0], options))
    test_ops.test_functions_of_floats(dtype)


@pytest.mark.parametrize("op", sorted(REFUSED))
def test_what_is_no_c_is_refused(op: str) -> None:
    with pytest.raises(NotCompiled, match="host can't be written in C"):
        CProgram(Graph.of([NEUTRAL_EXAMPLES[op]()]))
