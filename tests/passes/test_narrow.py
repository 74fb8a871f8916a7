"""The pass that holds narrow values one element a byte: what is narrow after it, and that nothing
means anything else."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from arenite import ir
from arenite.dtype import BY_NAME, DType, Kind
from arenite.errors import TypeMismatch
from arenite.ir import reference, verify
from arenite.ir.graph import Graph
from arenite.ir.node import Node, Origin, Origins
from arenite.ir.ops.narrow import HELD
from arenite.ir.regions import loop
from arenite.passes import run
from arenite.passes.narrow import codes, narrow, of_codes
from tests.passes.lists import PASSES

BOOL, INT64, FLOAT32, INT8 = (BY_NAME[n] for n in ("bool", "int64", "float32", "int8"))
INT4, UINT4, INT2, FLOAT4 = (BY_NAME[n] for n in ("int4", "uint4", "int2", "float4_e2m1fn"))


def x_of(*shape: int, index: int = 0, dtype: DType = INT4) -> Node:
    return ir.graph_input(f"x{index}", index, shape, dtype)


def test_only_what_lies_in_memory_stays_narrow() -> None:
    x, table = x_of(3, 5), ir.buffer(np.arange(15).reshape(3, 5).astype(ml_dtypes.int4))
    y = ir.make("cast", ir.make("mul", ir.make("add", x, table), x), dtype=FLOAT4)
    graph = narrow(Graph((x,), (y, x, ir.make("lt", x, table))))
    verify(graph)
    assert {node.op for node in graph.nodes if node.dtype in HELD} == {"input", "buffer", "pack"}
    assert [node.dtype for node in graph.outputs] == [FLOAT4, INT4, BOOL]
    assert graph.outputs[1] is x


def test_a_graph_without_narrow_values_stays_as_it_is() -> None:
    x = x_of(3, dtype=FLOAT32)
    graph = Graph((x,), (ir.make("neg", x),))
    assert narrow(graph) is graph


def test_results_and_states_of_bodies_mean_the_same() -> None:
    x, flag = x_of(4), x_of(index=1, dtype=BOOL)
    i, carried = ir.parameter((), INT64), ir.parameter((4,), INT4)
    halved = ir.make("floordiv", carried, ir.full((4,), -3, INT4))
    last, rows = loop(
        ir.full((), 3, INT64),
        [x],
        ((i, carried), [ir.make("sub", halved, x)]),
        rows=[ir.make("cast", carried, dtype=INT2)],
    )
    graph = Graph((x, flag), (ir.make("if", flag, last, x), rows))
    held = narrow(graph)
    verify(held)
    inside = [node for node in held.everything if node not in held.nodes]
    assert inside
    assert not any(node.dtype in HELD for node in inside)
    array = np.array([-8, 7, 3, -1], np.int8).astype(ml_dtypes.int4)
    for holds in (True, False):
        arrays = [array, np.asarray(holds)]
        for one, other in zip(
            reference.evaluate(graph, arrays), reference.evaluate(held, arrays), strict=True
        ):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", HELD, ids=str)
def test_codes_and_held_values_are_each_others_inverse(dtype: DType) -> None:
    array = np.arange(1 << dtype.bits, dtype=np.uint8)
    code = x_of(len(array), dtype=BY_NAME["uint8"])
    held = of_codes(code, dtype)
    values, back = reference.evaluate(Graph((code,), (held, codes(held, dtype))), [array])
    if dtype.kind is Kind.FLOAT:
        expected = array.view(getattr(ml_dtypes, dtype.name)).astype(np.float32)
    else:
        bound = 1 << dtype.bits
        is_signed = dtype.name.startswith("int")
        expected = np.where(is_signed & (array >= bound // 2), array - float(bound), array)
    assert values.astype(np.float32).tolist() == expected.tolist()
    assert back.tolist() == array.tolist()


def test_what_is_wrapped_is_wrapped_once() -> None:
    x = x_of(6, dtype=INT8)
    small = ir.make("cast", x, dtype=INT2)
    again = ir.make("cast", ir.make("cast", small, dtype=INT8), dtype=INT4)
    one = narrow(Graph((x,), (ir.make("cast", again, dtype=INT8),)))
    assert sum(node.op == "shift_right" for node in one.nodes) == 1
    larger = ir.make("cast", ir.make("cast", x, dtype=INT4), dtype=INT2)
    two = narrow(Graph((x,), (ir.make("cast", larger, dtype=INT8),)))
    [made] = reference.evaluate(two, [np.array([0, 1, 2, 3, 4, -7], np.int8)])
    assert made.tolist() == [0, 1, -2, -1, 0, 1]


def test_a_graph_in_which_nothing_is_narrow_stays_itself() -> None:
    x = x_of(3, dtype=INT8)
    graph = Graph((x,), (ir.make("neg", x),))
    assert run(graph, PASSES[:2])[0] is graph


def test_lines_are_kept() -> None:
    x = x_of(3)
    y = ir.make("mul", x, x)
    here = Origin("model.py", 4)
    graph, _ = run(Graph((x,), (y,), (), Origins({y: [here]})), PASSES)
    made = [node for node in graph.nodes if node.op in ("mul", "pack")]
    assert len(made) == 2
    assert all(graph.origins.of(node) == (here,) for node in made)


def test_chains_are_as_long_as_they_like() -> None:
    x = x_of(2)
    y = x
    for _ in range(20_000):
        y = ir.make("add", y, x)
    assert len(narrow(Graph((x,), (y,)))) > 60_000


def test_packing_takes_narrow_types_and_what_holds_them() -> None:
    with pytest.raises(TypeMismatch, match=r"unpack is for int4.*not for float8_e5m2\[3\]"):
        ir.make("unpack", x_of(3, dtype=BY_NAME["float8_e5m2"]))
    with pytest.raises(TypeMismatch, match=r"pack is for int4.*not for int8"):
        ir.make("pack", x_of(3, dtype=BY_NAME["uint8"]), dtype=INT8)
    with pytest.raises(TypeMismatch, match=r"what holds int4 must be int8, not uint8\[3\]"):
        ir.make("pack", x_of(3, dtype=BY_NAME["uint8"]), dtype=INT4)


def test_states_are_narrow_in_memory_alone() -> None:
    x = x_of(3)
    state = ir.make("state", name="total", shape=(3,), dtype=INT8)
    total = ir.make("add", state, ir.make("cast", ir.make("mul", x, x), dtype=INT8))
    graph = narrow(Graph((x,), (ir.make("cast", total, dtype=INT4),), updates=((state, total),)))
    verify(graph)
    [(kept, becomes)] = graph.updates
    assert kept is state
    assert (becomes.op, becomes.dtype) == ("add", INT8)
    assert {node.op for node in graph.nodes if node.dtype in HELD} == {"input", "pack"}
    small = ir.make("state", name="small", shape=(3,), dtype=INT4)
    graph = narrow(Graph((), (small,), updates=((small, ir.make("neg", small)),)))
    verify(graph)
    [(kept, becomes)] = graph.updates
    assert kept is small
    assert becomes.op == graph.outputs[0].op == "pack"
    assert {node.op for node in graph.nodes if node.dtype in HELD} == {"state", "pack"}
