"""What the checker refuses, and that it says where and why."""

from __future__ import annotations

import pytest

from arenite.codegen import loop_ir as ir
from arenite.codegen.check import check
from arenite.dtype import BY_NAME, DType
from arenite.errors import InvalidArgument
from tests.codegen.building import F32, I32, I64, kernel, name, serial_for, vector_for

N = name("n")
AT = name("i")
X = ir.Load("x", AT, F32)
Y = ir.Store("y", AT, X)
ZERO = ir.Const(0.0, F32)


def refused(*body: ir.Stmt, because: str, x: DType = F32) -> None:
    with pytest.raises(InvalidArgument, match=because) as error:
        check(kernel([("x", x, "in"), ("y", F32, "out")], ["n"], body, title="mine"))
    assert "loop kernel mine" in str(error.value)


def test_a_good_kernel_passes() -> None:
    body = [ir.Accumulator("s", ZERO), vector_for("i", N, ir.Accumulate("s", "add", X), Y)]
    check(kernel([("x", F32, "in"), ("y", F32, "out")], ["n"], body))


def test_names() -> None:
    refused(ir.Store("y", name("j"), ZERO), because="j is not defined here")
    refused(ir.Let("n", ZERO), because="already in use")
    refused(ir.Let("x", ZERO), because="already in use")
    refused(
        serial_for("i", N, ir.Let("v", X)),
        ir.Store("y", ir.index(0), name("v", F32)),
        because="v is not defined here",
    )
    refused(ir.Store("z", ir.index(0), ZERO), because="there is no array z")
    refused(vector_for("i", N, ir.Accumulate("s", "add", X)), because="s is no accumulator")
    with pytest.raises(InvalidArgument, match="share a name"):
        check(kernel([("n", F32, "in")], ["n"], []))


def test_dtypes() -> None:
    whole = ir.Load("x", AT, I32)
    refused(vector_for("i", N, ir.Store("y", AT, whole)), because="mixes int32 and float32")
    refused(vector_for("i", N, ir.Store("y", X, X)), because="the index .* is float32")
    refused(vector_for("i", N, ir.Let("a", ir.Binary("add", X, AT))), because="mixes")
    refused(vector_for("i", N, ir.Let("a", ir.Unary("not", X))), because="not is not defined for")
    refused(vector_for("i", N, ir.Let("a", ir.Unary("exp", AT))), because="defined for floats")
    refused(vector_for("i", N, ir.Let("a", ir.Unary("cube", X))), because="no such operation")
    refused(vector_for("i", N, ir.Let("a", ir.Bitcast(X, I64))), because="no bitcast")
    refused(ir.Let("a", ir.Const(300, BY_NAME["uint8"])), because="300 is no uint8")
    refused(ir.Let("a", ir.Const(1, ir.BOOL)), because="1 is no bool")
    refused(ir.If(AT, ()), because="i is not defined here")
    refused(ir.If(N, ()), because="the condition n is int64 and must be bool")


def test_what_functions_are_made_of() -> None:
    state = name("s", F32)
    again = ir.Iterate((state,), (ZERO,), X < ZERO, (X,), state)
    table = ir.Table((1.0, 2.0), ir.index(1), F32)
    good = ir.Rare(X < ZERO, ir.Fma(X, X, table), ir.Binary("copysign", X, X))
    check(kernel([("x", F32, "in")], ["n"], [vector_for("i", N, ir.Let("a", good))]))
    refused(vector_for("i", N, ir.Let("a", again)), because="part of a function only")
    refused(ir.While(N > 0, ()), because="part of a function only")
    refused(ir.Let("a", ir.Fma(N, N, N)), because="fma is defined for float32")
    refused(ir.Let("a", ir.Table((1.0,), ZERO, F32)), because="indexed by float32")
    refused(ir.Let("a", ir.Table((-1,), N, BY_NAME["uint8"])), because="-1 is no uint8")
    refused(ir.Let("a", ir.Binary("mulhi", N, N)), because="mulhi is defined for uint32")
    refused(ir.Let("a", ir.Cast(ZERO, F32, True)), because="fits. is to an integer")
    refused(ir.Let("a", ir.Cast(N, I32, True)), because="fits. is from float32")


def test_small_floats_are_storage() -> None:
    bf16 = BY_NAME["bfloat16"]
    load = ir.Load("x", AT, bf16)
    double = ir.Let("a", ir.Binary("add", load, load))
    refused(vector_for("i", N, double), because="cast it to float32", x=bf16)
    refused(ir.Accumulator("a", ir.Cast(ZERO, bf16)), because="accumulate in float32")
    refused(because="has no element access", x=BY_NAME["int4"])
    refused(because="has no element access", x=BY_NAME["q4_0"])
    refused(because="has no element access", x=BY_NAME["complex64"])


def test_vector_loops() -> None:
    inner = serial_for("j", ir.Load("x", AT, F32), Y)
    refused(vector_for("i", N, inner), because="a bound .* is float32")
    refused(vector_for("i", N, serial_for("j", AT, Y)), because="differs between iterations")
    refused(vector_for("i", N, vector_for("j", N), Y), because="must be all of its body")
    reduced = (ir.Accumulate("s", "add", X), ir.Store("y", AT, name("s", F32)))
    refused(
        ir.Accumulator("s", ZERO),
        vector_for("i", N, *reduced),
        because="read inside the vector loop",
    )
    refused(
        ir.Accumulator("s", ZERO),
        vector_for("i", N, *reduced[::-1]),
        because="read inside the vector loop",
    )
    refused(
        ir.Accumulator("s", ZERO),
        vector_for("i", N, ir.Accumulate("s", "set", X)),
        because="set by every iteration",
    )
    refused(
        ir.Accumulator("s", ZERO),
        vector_for("i", N, ir.Accumulate("s", "add", X), ir.Accumulate("s", "max", X)),
        because="in two ways",
    )
    tile = vector_for("j", N, ir.Accumulator("s", ZERO))
    refused(vector_for("i", N, tile), because="Let and Store only")


def test_roles_and_depth() -> None:
    refused(vector_for("i", N, ir.Store("x", AT, X)), because="is an input")
    deep: ir.Expr = N
    for _ in range(2000):
        deep = ir.Binary("add", deep, N)
    refused(ir.Let("deep", deep), because="name parts of it with Let")


def test_a_shared_expression_is_checked_once() -> None:
    """Sixty doublings: walked as a tree this would never end."""
    shared: ir.Expr = N
    for _ in range(60):
        shared = ir.Binary("add", shared, shared)
    check(kernel([("y", I64, "out")], ["n"], [ir.Store("y", ir.index(0), shared)]))
