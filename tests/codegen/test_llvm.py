"""LLVM text to objects: for every target, without library calls, with LLVM's own messages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from arenite.backends.cpu.compiling.llvm import (
    FUNCTION_ATTRIBUTES,
    assembly,
    compile_object,
    functions_defined,
)
from arenite.backends.cpu.target import AVX2, AVX512, NEON, X86_64, Target
from arenite.errors import CompileFailed
from tests.codegen.targets import named

ALL = ["x86-64", "avx2", "avx512", "avx512vnni", "neon", "host"]

#: Zeroes memory in a loop: without "no-builtins" LLVM calls memset.
ZERO = f"""
define hidden void @zero(ptr %p, i64 %n) {FUNCTION_ATTRIBUTES} {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %q = getelementptr i64, ptr %p, i64 %i
  store i64 0, ptr %q
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
VECTORS = f"""
define internal <16 x float> @twice(<16 x float> %v) alwaysinline {FUNCTION_ATTRIBUTES} {{
  %w = fadd <16 x float> %v, %v
  ret <16 x float> %w
}}
define hidden void @add(ptr %p) {FUNCTION_ATTRIBUTES} {{
  %v = load <16 x float>, ptr %p, align 4
  %w = call <16 x float> @twice(<16 x float> %v)
  store <16 x float> %w, ptr %p, align 4
  ret void
}}
"""


@pytest.mark.parametrize("name", ALL)
def test_objects_are_elf_for_their_machine(name: str) -> None:
    for text in (ZERO, VECTORS):
        obj = compile_object(text, named(name))
        assert obj[:4] == b"\x7fELF"
        assert int.from_bytes(obj[18:20], "little") == (183 if name == "neon" else 62)
        assert b"memset" not in obj
        assert b".eh_frame" not in obj
        assert b"twice" not in obj, "what must be inlined was not"


@pytest.mark.parametrize(
    ("target", "register"), [(X86_64, "xmm"), (AVX2, "ymm"), (AVX512, "zmm"), (NEON, "v0.4s")]
)
def test_vectors_are_as_wide_as_the_target_has_them(target: Target, register: str) -> None:
    assert register in assembly(VECTORS, target)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define hidden void @broken(ptr %p) {\n nonsense\n}", "(?s)kernels broken.*instruction"),
        ("define hidden i64 @types(i64 %a) {\n %b = add i32 %a, 1\n ret i64 %b\n}", "types.*i32"),
        ("define hidden void @x() {\n br label %y\ny:\n %a = add i64 %b, 1\n %b = add i64 %a, 1\n"
         " ret void\n}", "(?s)kernels x.*dominate"),
        ("nothing at all", "none named"),
    ],
)  # fmt: skip
def test_llvms_message_comes_with_the_kernels_names(text: str, message: str) -> None:
    with pytest.raises(CompileFailed, match=message.replace(".*", "(?s:.*)")):
        compile_object(text, X86_64)


def test_an_unknown_architecture_is_refused() -> None:
    strange = Target("pdp11-unknown-none-elf", "x", "", 128, 16, *[False] * 5)
    with pytest.raises(CompileFailed, match="no target pdp11"):
        compile_object(ZERO, strange)


def test_kernels_are_the_functions_that_can_be_seen() -> None:
    assert functions_defined(VECTORS + ZERO) == ["add", "zero"]
    quoted = 'define hidden void @"a b"() {\n ret void\n}\ndefine private void @c() {\n}'
    assert functions_defined(quoted) == ["a b"]


def test_equal_text_gives_equal_bytes() -> None:
    assert compile_object(VECTORS, AVX2) == compile_object(VECTORS, AVX2)


def test_importing_the_room_does_not_import_llvm() -> None:
    code = "import sys, arenite.backends.cpu.compiling.llvm; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
