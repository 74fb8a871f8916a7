"""The text of a kernel: what a person reads, and stable enough to key a cache."""

from __future__ import annotations

from arenite.codegen import loop_ir as ir
from arenite.codegen.printer import expression_text, kernel_text
from arenite.dtype import BY_NAME
from tests.codegen.building import F32, I32, I64, kernel, name, serial_for, vector_for

A, B, C = name("a"), name("b"), name("c")


def test_a_kernel_reads_like_c() -> None:
    r, c, n = name("r"), name("c"), name("n")
    x = ir.Load("x", r * n + c, F32)
    k = kernel(
        [("x", F32, "in"), ("y", F32, "inout")],
        ["rows", "n"],
        [
            ir.Accumulator("top", ir.Const(float("-inf"), F32)),
            vector_for("c", n, ir.Accumulate("top", "max", x)),
            ir.Accumulator("s", ir.Const(0.0, F32)),
            serial_for(
                "c",
                n,
                ir.Let("e", ir.Unary("exp", ir.Binary("sub", x, name("top", F32)))),
                ir.Accumulate("s", "add", name("e", F32)),
                ir.If(
                    ir.Binary("gt", name("e", F32), ir.Const(0.5, F32)),
                    (ir.Store("y", r * n + c, name("e", F32)),),
                    (ir.Store("y", r * n + c, name("s", F32), c < 7),),
                ),
                unroll=2,
            ),
            ir.Require(n > 0, ir.index(5)),
        ],
        name("rows"),
        "r",
        "softmax",
    )
    assert kernel_text(k) == (
        "void softmax(const float32 x[], inout float32 y[], int64 rows, int64 n)\n"
        "for (int64 r in tiles of rows) {\n"
        "    float32 top = -inf;\n"
        "    vector_for (int64 c in 0 .. n) {\n"
        "        top max= x[r * n + c];\n"
        "    }\n"
        "    float32 s = 0.0f;\n"
        "    for (int64 c in 0 .. n) unroll(2) {\n"
        "        const float32 e = exp(x[r * n + c] - top);\n"
        "        s += e;\n"
        "        if (e > 0.5f) {\n"
        "            y[r * n + c] = e;\n"
        "        } else {\n"
        "            if (c < 7) y[r * n + c] = s;\n"
        "        }\n"
        "    }\n"
        "    require(n > 0, 5);\n"
        "}\n"
    )


def test_parentheses_only_where_they_matter() -> None:
    assert expression_text((A + B) * C - (A - (B - C))) == "(a + b) * c - (a - (b - c))"
    assert expression_text(A + B * C) == "a + b * c"
    assert expression_text(A // 2 % 3) == "mod(floordiv(a, 2), 3)"
    assert expression_text(ir.Unary("neg", A + B)) == "-(a + b)"
    both = ir.Binary("and", A < B, ir.Binary("eq", B, C))
    assert expression_text(both) == "a < b & b == c"
    assert (
        expression_text(ir.Select(A < B, A, ir.Select(B < C, B, C))) == "a < b ? a : b < c ? b : c"
    )


def test_constants_and_casts_say_their_dtype() -> None:
    assert expression_text(ir.Const(3, I64)) == "3"
    assert expression_text(ir.Const(3, I32)) == "(int32)3"
    assert expression_text(ir.Const(-3, I64)) == "-3"
    assert expression_text(ir.Const(0.1, F32)) == "0.1f"
    assert expression_text(ir.Const(0.1, BY_NAME["float64"])) == "0.1"
    assert expression_text(ir.Const(float("nan"), F32)) == "nan"
    assert expression_text(ir.Const(True, ir.BOOL)) == "true"
    assert expression_text(ir.Cast(A + B, F32)) == "(float32)(a + b)"
    assert expression_text(ir.Bitcast(ir.Cast(A, F32), I32)) == "bits_as_int32((float32)a)"


def test_what_functions_are_made_of() -> None:
    x, s = ir.Name("x", F32), ir.Name("s", F32)
    near = ir.Fma(x, x, ir.Table((0.5, 2.0), A, F32))
    assert expression_text(near) == "fma(x, x, (float32[]){0.5f, 2.0f}[a])"
    assert expression_text(ir.Rare(x < 0.5, x, -x)) == "rare(x < 0.5f, x, -x)"
    assert expression_text(ir.Cast(x, I32, True)) == "int32_fits(x)"
    body = (ir.Accumulator("s", x), ir.While(s > 1.0, (ir.Accumulate("s", "set", s / 2.0),)))
    assert kernel_text(kernel([], [], body)).splitlines()[2:] == [
        "    float32 s = x;",
        "    while (s > 1.0f) {",
        "        s = s / 2.0f;",
        "    }",
        "}",
    ]


def test_masked_loads() -> None:
    load = ir.Load("x", A, F32, A < B)
    assert expression_text(load) == "a < b ? x[a] : 0"
    other = ir.Load("x", A, F32, A < B, ir.Const(1.0, F32))
    assert expression_text(ir.Unary("neg", other)) == "-(a < b ? x[a] : 1.0f)"


def test_index_arithmetic_folds_what_is_obvious() -> None:
    assert A + 0 == A
    assert A * 1 == A
    assert ir.index(0) == A * 0
    assert 0 + A == A
    assert ir.index(3) * 4 - 2 == ir.index(10)
    assert A // 1 == A
    assert expression_text(2 * A - 1) == "2 * a - 1"
    assert expression_text(5 - A) == "5 - a"
