"""Our side of `bench.gemm`, and the peak of one core."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

import arenite
from arenite.backends.cpu.compiling.link import link_objects
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES, compile_object
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.lowering.numeric import fma
from arenite.backends.cpu.lowering.vector import I64, Builder, Vec, VType
from arenite.backends.cpu.target import host
from bench.gemm_cases import inputs, is_transposed, n_products

#: Multiply-adds that do not wait for each other, and turns of the loop around them.
CHAINS = 12
TURNS = 20_000


def prepare(case: str, threads: int) -> Callable[[], None]:
    if case == "peak":
        return chains(VType("f", 32, host().vector_bits // 32), lambda x, y: fma(x, y, y))
    many, b = inputs(case)
    transposed = is_transposed(case)

    def one(x: Any, w: Any) -> Any:
        return x @ w.T if transposed else x @ w

    def all_of(xs: Any, w: Any) -> Any:
        return arenite.scan(lambda state, x: (state, one(x, w)), 0.0, xs)[1]

    a = np.stack(many) if n_products(case) > 1 else many[0]
    function = all_of if n_products(case) > 1 else one
    compiled = arenite.compile(function, a, b, threads=threads)

    def work() -> None:
        compiled(a, b)

    return work


def peak_operations() -> int:
    return 2 * CHAINS * TURNS * (host().vector_bits // 32)


def chains(t: VType, step: Callable[[Vec, Vec], Vec]) -> Callable[[], None]:
    """A loop of steps in registers, as many a turn as hide their latency; each takes what the one
    before it in its chain gave, and a number."""
    b = Builder(host())
    front, head, done = b.block, b.new_block("loop"), b.new_block("done")
    number = b.emit(f"load {t.scalar}, ptr %window, align 4", t.scalar)
    spread = b.broadcast(number, t.lanes)
    front.end = f"br label %{head.name}"
    b.block = head
    left, sums = Vec(b, b.new_name(), I64), [Vec(b, b.new_name(), t) for _ in range(CHAINS)]
    made = [step(total, spread) for total in sums]
    after = left - 1
    again = after.ne(0)
    head.end = f"br i1 {again.text}, label %{head.name}, label %{done.name}"
    b.set_phi(head, left.text, [(b.constant(TURNS, I64), front), (after, head)])
    for k, (phi, last) in enumerate(zip(sums, made, strict=True)):
        # Each begins elsewhere: equal chains would be one.
        b.set_phi(head, phi.text, [(b.constant(k, t), front), (last, head)])
    b.block = done
    for k, total in enumerate(made):
        where = b.offset("%window", 64 * k)
        b.emit_void(f"store {t} {total.text}, ptr {where}, align 4")
    done.end = "ret void"
    call = native(b)
    window = (ctypes.c_float * (16 * (CHAINS + 1)))(0.5)

    def work() -> None:
        call(ctypes.addressof(window))

    return work


def native(b: Builder) -> Callable[[int], None]:
    """What was built as a function of an address."""
    module = "\n".join(sorted(b.declarations)) + (
        f"\ndefine hidden void @built(ptr %window) {FUNCTION_ATTRIBUTES} {{\n{b.body_text()}\n}}\n"
    )
    image = link_objects([compile_object(module, host())])
    code = load_code(image.image)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address(image.entries["built"]))
