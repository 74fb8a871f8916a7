"""What machine code comes out: wide instructions, no library calls, on every target."""

from __future__ import annotations

import re

import pytest

from arenite.backends.cpu.compiling import llvm
from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.lowering.lower import lower
from arenite.codegen import loop_ir as ir
from arenite.codegen.check import is_storable
from arenite.dtype import BY_NAME, DType, Kind
from tests.codegen import targets
from tests.codegen.building import F32, elementwise, kernel, name, serial_for, vector_for

ALL_TARGETS = ["x86-64", "avx2", "avx512", "neon"]
N = name("n")
AT = name("i")
COMPUTED = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()


def ops(dtype: DType) -> list[ir.Expr]:
    """One expression for every op the dtype has."""
    a, b = (ir.Load(x, AT, dtype) for x in "ab")
    if dtype.kind is Kind.BOOL:
        pairs = ir.BITWISE_OPS | ir.COMPARISONS | {"max", "min"}
        return [ir.Unary("not", a), *(ir.Binary(op, a, b) for op in sorted(pairs))]
    if dtype.kind is Kind.FLOAT:
        single, pairs = ir.UNARY_OPS - {"not"}, ir.BINARY_OPS - ir.BITWISE_OPS - ir.SHIFTS
    else:
        single, pairs = ir.UNARY_OPS - ir.FLOAT_UNARY_OPS, ir.BINARY_OPS - ir.FLOAT_BINARY_OPS
    if dtype.kind is not Kind.UNSIGNED or dtype.bits < 32:
        pairs = pairs - ir.UNSIGNED_OPS
    unary = [ir.Unary(op, a) for op in sorted(single)]
    return [*unary, *(ir.Binary(op, a, b) for op in sorted(pairs))]


@pytest.mark.parametrize("target", ALL_TARGETS)
@pytest.mark.parametrize("dtype", [BY_NAME[x] for x in COMPUTED], ids=str)
def test_no_op_needs_a_library(target: str, dtype: DType) -> None:
    """The linker refuses every symbol that is not in the module."""
    modules = [
        elementwise([dtype, dtype], value.dtype, lambda *_, v=value: v) for value in ops(dtype)
    ]
    named = [
        ir.LoopKernel(f"op{at}", k.arrays, k.sizes, k.tiles, k.tile_var, k.body)
        for at, k in enumerate(modules)
    ]
    compiled_for = targets.named(target)
    image = link_objects([llvm.compile_object(lower(named, compiled_for), compiled_for)])
    assert {k.name for k in named} <= {*image.entries}


@pytest.mark.parametrize("target", ALL_TARGETS)
def test_no_cast_needs_a_library(target: str) -> None:
    dtypes = [dtype for dtype in BY_NAME.values() if is_storable(dtype)]
    kernels = []
    for source in dtypes:
        k = elementwise([source], F32, lambda x: ir.Cast(x, F32))
        stores = tuple(
            ir.Store(f"y{at}", AT, ir.Cast(ir.Load("a", AT, source), dtype))
            for at, dtype in enumerate(dtypes)
        )
        outputs = [ir.ArrayArg(f"y{at}", dtype, "out") for at, dtype in enumerate(dtypes)]
        loop = ir.For("i", ir.index(0), N, stores, True)
        title = f"from_{source}"
        arrays = (k.arrays[0], *outputs)
        kernels.append(ir.LoopKernel(title, arrays, k.sizes, k.tiles, k.tile_var, (loop,)))
    compiled_for = targets.named(target)
    link_objects([llvm.compile_object(lower(kernels, compiled_for), compiled_for)])


def listing(k: ir.LoopKernel, target: str) -> str:
    compiled_for = targets.named(target)
    return llvm.assembly(lower(k, compiled_for), compiled_for)


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


EXP = elementwise([F32], F32, lambda x: ir.Unary("exp", x))
DOT = kernel(
    [("x", F32, "in"), ("w", F32, "in"), ("y", F32, "out")],
    ["n"],
    [
        ir.Accumulator("s", ir.Const(0.0, F32)),
        vector_for(
            "i",
            N,
            ir.Accumulate(
                "s", "add", ir.Binary("mul", ir.Load("x", AT, F32), ir.Load("w", AT, F32))
            ),
        ),
        ir.Store("y", ir.index(0), name("s", F32)),
    ],
)
COLUMN_SUM = kernel(
    [("x", F32, "in"), ("y", F32, "out")],
    ["rows", "n"],
    [
        vector_for(
            "i",
            N,
            ir.Accumulator("s", ir.Const(0.0, F32)),
            serial_for(
                "r", name("rows"), ir.Accumulate("s", "add", ir.Load("x", name("r") * N + AT, F32))
            ),
            ir.Store("y", AT, name("s", F32)),
            unroll=4,
        )
    ],
)


def test_avx512_uses_its_widest_registers_and_masks() -> None:
    text = listing(EXP, "avx512")
    assert count(r"vfmadd\w+ps.*zmm", text) >= 12
    assert count(r"vscalefps.*zmm", text) == 2
    assert count(r"vmovups.*zmm\d+ \{%k\d\} \{z\}", text) == 1
    assert count(r"\bcall", text) == 0


def test_avx2_and_plain_x86_do_the_same_with_what_they_have() -> None:
    wide, narrow = listing(EXP, "avx2"), listing(EXP, "x86-64")
    assert count(r"vfmadd\w+ps.*ymm", wide) >= 6
    assert "zmm" not in wide
    assert count(r"\bmulps.*xmm", narrow) >= 6
    assert "ymm" not in narrow
    assert count(r"\bcall", wide + narrow) == 0


def test_a_reduction_keeps_four_partial_results() -> None:
    text = listing(DOT, "avx512")
    assert count(r"vfmadd231ps.*\(%r\w+.*zmm", text) >= 4


def test_columns_are_summed_in_registers() -> None:
    """Four accumulators go through one inner loop: adds from memory, no store in between."""
    text = listing(COLUMN_SUM, "avx512")
    assert count(r"vaddps\s+(-?\d+)?\(%r.*zmm", text) >= 4


def test_neon_multiplies_and_adds_in_vectors_of_four() -> None:
    text = listing(EXP, "neon")
    assert count(r"fml[as]\s+v\d+\.4s", text) >= 6
    assert count(r"ldr\s+q\d+|ldp\s+q\d+|ld1\s", text) >= 1
    assert count(r"str\s+q\d+|stp\s+q\d+|st1\s", text) >= 1
    assert count(r"\bbl\s", text) == 0
    assert count(r"fmla\s+v\d+\.4s", listing(DOT, "neon")) >= 4


def test_a_kernel_declares_the_agreed_signature() -> None:
    text = lower(DOT, targets.named("avx512"))
    assert (
        "define hidden void @kernel(ptr %window, i64 %tile_begin, i64 %tile_end, ptr %worker) "
        + llvm.FUNCTION_ATTRIBUTES
    ) in text


def test_lowering_is_deterministic() -> None:
    for k in (EXP, DOT, COLUMN_SUM):
        assert lower(k, targets.named("avx2")) == lower(k, targets.named("avx2"))


@pytest.mark.parametrize(
    ("op", "multiplies", "adds"), [("gelu", 12, 2), ("erf1p", 12, 2), ("sigmoid", 10, 5)]
)
def test_what_an_activation_costs_a_vector(op: str, multiplies: int, adds: int) -> None:
    """By the units that do it; a cold path for tails, if there is one, not counted."""
    text = listing(elementwise([F32], F32, lambda x: ir.Unary(op, x)), "avx512")
    blocks = re.split(r"^\.L\w+:$|^\s(?:j\w+)\s.*$", text, flags=re.MULTILINE)
    hot = next(block for block in blocks if re.search(r"vfn?m(add|sub)\w+ps", block))
    n_multiplies = count(r"\bv(?:mul|fn?madd\d+|fn?msub\d+|cmp\w*|div)ps", hot)
    n_adds = count(r"\bv(?:add|sub|min|max|rndscale|scalef)ps", hot)
    assert n_multiplies <= multiplies
    assert n_adds <= adds
