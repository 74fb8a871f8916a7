"""Objects become images that run anywhere; what could not is refused, and nothing crashes."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.backends.cpu.compiling.link import AARCH64, link_objects
from arenite.backends.cpu.compiling.llvm import FUNCTION_ATTRIBUTES, compile_object
from arenite.backends.cpu.compiling.loader import load_code
from arenite.backends.cpu.driver.driver_ir import runtime_module
from arenite.backends.cpu.target import NEON, X86_64, Target
from arenite.errors import BadObject
from tests.codegen.targets import named
from tests.runtime.kernels import kernel_module

#: A constant table, a jump table and a call: each needs relocations of its own kind.
SWITCHES = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
define internal i64 @twice(i64 %x) noinline ATTRIBUTES {
  %y = mul i64 %x, 2
  ret i64 %y
}
define hidden i64 @NAME(i64 %x) ATTRIBUTES {
  switch i64 %x, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c  i64 3, label %d
                                i64 4, label %e ]
a: ret i64 111
b: ret i64 -5
c: %p = getelementptr i64, ptr @table, i64 %x
   %v = load i64, ptr %p
   ret i64 %v
d: %t = call i64 @twice(i64 %x)
   ret i64 %t
e: ret i64 8
other:
   %low = and i64 %x, 3
   %q = getelementptr i64, ptr @table, i64 %low
   %w = load i64, ptr %q
   ret i64 %w
}
"""
EXPECTED = {0: 111, 1: -5, 2: 30, 3: 6, 4: 8, 5: 20, 7: 40}


def module(text: str, name: str = "kernel") -> str:
    return text.replace("ATTRIBUTES", FUNCTION_ATTRIBUTES).replace("NAME", name)


def call(image: bytes, offset: int, argument: int) -> int:
    code = load_code(image)
    try:
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address(offset))
        return int(function(argument))
    finally:
        code.close()


def test_an_image_runs_with_its_constants_jump_tables_and_calls() -> None:
    image = link_objects([compile_object(module(SWITCHES), X86_64)])
    assert list(image.entries) == ["kernel"]
    for argument, expected in EXPECTED.items():
        assert call(image.image, image.entries["kernel"], argument) == expected


def test_several_objects_become_one_image() -> None:
    objects = [compile_object(module(SWITCHES, f"kernel{i}"), X86_64) for i in range(3)]
    image = link_objects(objects)
    assert sorted(image.entries) == ["kernel0", "kernel1", "kernel2"]
    for offset in image.entries.values():
        assert {x: call(image.image, offset, x) for x in EXPECTED} == EXPECTED


def test_two_functions_of_one_name_are_refused() -> None:
    obj = compile_object(module(SWITCHES), X86_64)
    with pytest.raises(BadObject, match="two functions are named kernel"):
        link_objects([obj, obj])


def test_objects_for_two_machines_are_refused() -> None:
    objects = [compile_object(module(SWITCHES), target) for target in (X86_64, NEON)]
    with pytest.raises(BadObject, match="2 kinds of machine"):
        link_objects(objects)
    with pytest.raises(BadObject, match="0 kinds of machine"):
        link_objects([])


@pytest.mark.parametrize("name", ["x86-64", "avx2", "avx512", "avx512vnni", "neon", "host"])
def test_the_runtime_image_links_for_every_target(name: str) -> None:
    target = named(name)
    image = link_objects([compile_object(runtime_module(target), target)])
    expected = {"run_serial", "run_parallel", "cancel", "worker", "stop", "clock"}
    assert expected <= {*image.entries}
    assert len(image.image) < 20_000
    assert (image.machine == AARCH64) is (name == "neon")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("declare void @exp()\ndefine hidden void @NAME() A {\n call void @exp()\n ret void\n}",
         r"symbols from outside: exp \(from kernel\)"),
        ("@state = internal global i64 0\ndefine hidden void @NAME() A {\n"
         " store volatile i64 1, ptr @state\n ret void\n}", "writable section, with state"),
        ("@seen = constant i64 5\ndefine hidden ptr @NAME() A {\n ret ptr @seen\n}",
         "relocation kind 42 in kernel"),
        ("@table = internal constant [2 x ptr] [ptr @NAME, ptr @NAME]\n"
         "define hidden ptr @NAME(i64 %i) A {\n %q = getelementptr ptr, ptr @table, i64 %i\n"
         " %r = load ptr, ptr %q\n ret ptr %r\n}", "writable section|relocation kind"),
        ("define hidden float @NAME(float %a, float %b) A {\n %r = frem float %a, %b\n"
         " ret float %r\n}", r"fmodf \(from kernel\)"),
    ],
    ids=["external", "writable", "got", "pointers", "library call"],
)  # fmt: skip
def test_what_could_not_run_by_itself_is_refused_by_name(text: str, message: str) -> None:
    text = module(text.replace(" A {", " ATTRIBUTES {"))
    with pytest.raises(BadObject, match=message):
        link_objects([compile_object(text, X86_64)])


def test_code_that_unwinds_is_refused() -> None:
    text = "declare void @f()\ndefine hidden void @kernel() uwtable {\n ret void\n}"
    with pytest.raises(BadObject, match="section of type"):
        link_objects([compile_object(text, X86_64)])


@pytest.fixture(scope="module", params=[X86_64, NEON], ids=["x86-64", "aarch64"])
def an_object(request: pytest.FixtureRequest) -> bytes:
    target: Target = request.param
    return compile_object(module(SWITCHES) + kernel_module(), target)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_mutated_objects_link_or_are_refused(an_object: bytes, data: st.DataObject) -> None:
    mutated = bytearray(an_object)
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(mutated) - 1))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        value = data.draw(st.sampled_from([0, 1, 2, 0x7F, 2**63, 2**64 - 1, 2**31, 4096]))
        mutated[place : place + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
    cut = data.draw(st.one_of(st.just(len(mutated)), st.integers(0, len(mutated))))
    try:
        image = link_objects([bytes(mutated[:cut])])
    except BadObject:
        return
    assert all(0 <= offset <= len(image.image) for offset in image.entries.values())


def test_hostile_headers_are_refused(an_object: bytes) -> None:
    """Every field of every section, symbol and relocation in turn, at its extremes."""
    section_start = int(np.frombuffer(an_object, "<u8", 1, 40)[0])
    for place in range(section_start, len(an_object) - 8, 4):
        for value in (0, 2**32 - 1, 2**31):
            mutated = bytearray(an_object)
            mutated[place : place + 4] = value.to_bytes(4, "little")
            try:
                link_objects([bytes(mutated)])
            except BadObject:
                continue
